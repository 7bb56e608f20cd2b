"""Choose how many records an opt-in user should send, before any data exists.

More records per user mean more counts, but also more noise and a higher threshold. A record with a
share s of all activity has an expected count of S·s·E[min(R, m)] among S users who hold R records
and send m of them; if that is θ(m), it is found about every second time. So the smallest share that
can be found is

    s(m) = θ(m) / (S · E[min(R, m)])

and the best m minimises it. S changes the limit, but not which m is best.

Promises: uses no data; the distribution of R is an assumption that the operator states.
Symbols: m = m_O, R = distinct records that a user holds, θ = threshold, S = users who select.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from blendstream.blender.sharp.gaussian_histogram import calibrate
from blendstream.blender.sharp.stable_histogram import stable_threshold
from blendstream.blender.values.errors import require

__all__ = ["MAX_RECORDS", "DetectionLimit", "best_records_per_user", "detection_limit"]

#: Most records per user: for more, computing the noise takes minutes (the time grows with m^2.5:
#: 0.8 s for 30 records, 7 s for 100), and no setting that we know of would gain.
MAX_RECORDS: Final = 100

#: Candidates for the best m; between neighbours s(m) differs by a few per cent at most.
_CANDIDATES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 64, 80, MAX_RECORDS)


@dataclass(frozen=True, slots=True)
class DetectionLimit:
    """With m records per user, records of at least `smallest_share` of all activity are found."""

    records_per_user: int
    threshold: int
    smallest_share: float


def detection_limit(
    m: int, *, epsilon: float, delta: float, users: int, records_held: Mapping[int, float]
) -> DetectionLimit:
    """Return s(m) for users of whom a proportion `records_held[r]` holds r distinct records."""
    require(users >= 1, f"users must be at least 1, got users={users}")
    require(
        bool(records_held) and abs(sum(records_held.values()) - 1) < 1e-6,
        "records_held must be shares of users that sum to 1",
    )
    require(min(records_held) >= 0, "records_held counts records, which cannot be negative")
    sent = sum(share * min(records, m) for records, share in records_held.items())
    require(sent > 0, "records_held must leave at least one user with a record to send")
    threshold = (
        stable_threshold(epsilon, delta) if m == 1 else calibrate(epsilon, delta, m).threshold
    )
    return DetectionLimit(m, threshold, threshold / (users * sent))


def best_records_per_user(
    *, epsilon: float, delta: float, users: int, records_held: Mapping[int, float]
) -> DetectionLimit:
    """Return the m_O that finds the rarest records, for given sizes.

    >>> best_records_per_user(epsilon=4.0, delta=1e-5, users=35_000, records_held={1: 1.0})
    DetectionLimit(records_per_user=1, threshold=7, smallest_share=0.0002)
    """
    require(bool(records_held), "records_held must be shares of users that sum to 1")
    most = max(1, *records_held)
    tried = sorted({m for m in (*_CANDIDATES, most) if m <= min(most, MAX_RECORDS)})
    limits = [
        detection_limit(m, epsilon=epsilon, delta=delta, users=users, records_held=records_held)
        for m in tried
    ]
    return min(limits, key=lambda limit: limit.smallest_share)
