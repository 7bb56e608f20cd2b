"""The opt-in release as a document: everything that the estimates need, except the head list.

The head list is a separate document, because devices read it. This one contains T's noisy counts,
and how S's counts were drawn. Both are committed in one transaction, so that all of an epoch's
noise is in the log before any of it is published.

Promises: `read_optin_release` restores exactly the release that `write_optin_release` wrote; the
estimates follow from the numbers stored here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from blendstream.blender.epoch_estimates import Mechanisms, OptinRelease
from blendstream.blender.noise.exact_noise import laplace_variance
from blendstream.blender.paper.optin import NoisyCounts
from blendstream.blender.values.cells import HeadList
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.wire.canonical_json import canonical_json

__all__ = ["SCHEMA", "SelectionNumbers", "read_optin_release", "write_optin_release"]

SCHEMA = "blendstream/optin-release/1"


def write_optin_release(release: OptinRelease) -> bytes:
    """Encode everything but the head list as canonical bytes."""
    return canonical_json(
        {
            "schema": SCHEMA,
            "mechanisms": asdict(release.mechanisms),
            "noisy_counts": release.noisy.counts.tolist(),
            "noise_terms": release.noisy.noise_terms.tolist(),
            "noise_scale": release.noisy.scale,
            "noise_gaussian": release.noisy.gaussian,
            "noise_grid": release.noisy.grid,
            "estimation_users": release.noisy.users,
            "threshold": release.threshold,
            "selection_users": release.selection_users,
            "selection_scale": release.selection_scale,
            "below_threshold_probability": release.below_threshold_probability,
            "known": list(release.known),
            "forgotten": list(release.forgotten),
            "best_trimmed": release.best_trimmed,
        }
    )


@dataclass(frozen=True, slots=True)
class SelectionNumbers:
    """Noise and size of S for a head list, and the records that were dropped from it since."""

    users: int
    noise: float
    forgotten: tuple[int, ...]

    @classmethod
    def read(cls, data: bytes) -> SelectionNumbers:
        """Read these numbers from the bytes of an opt-in release, without estimating anything."""
        body = _body(data)
        scale = float(body["selection_scale"])
        laplace = body["mechanisms"]["selector"] in ("stable-histogram", "threshold")
        noise = laplace_variance(scale) if laplace else scale**2
        return cls(int(body["selection_users"]), noise, tuple(body.get("forgotten", ())))


def read_optin_release(data: bytes, head_list: HeadList) -> OptinRelease:
    """Read a release back, for the head list with which it was committed."""
    body = _body(data)
    noisy = NoisyCounts(
        counts=np.array(body["noisy_counts"], dtype=np.int64),
        noise_terms=np.array(body["noise_terms"], dtype=np.int64),
        scale=float(body["noise_scale"]),
        users=int(body["estimation_users"]),
        gaussian=bool(body["noise_gaussian"]),
        grid=int(body["noise_grid"]),
    )
    return OptinRelease(
        mechanisms=Mechanisms(**body["mechanisms"]),
        head_list=head_list,
        noisy=noisy,
        threshold=body["threshold"],
        selection_users=int(body["selection_users"]),
        selection_scale=float(body["selection_scale"]),
        # Older releases lack the next three.
        below_threshold_probability=float(body.get("below_threshold_probability", 0.0)),
        known=tuple(body.get("known", ())),
        forgotten=tuple(body.get("forgotten", ())),
        best_trimmed=body["best_trimmed"],
    )


def _body(data: bytes) -> Any:
    body: Any = json.loads(data)
    if body["schema"] != SCHEMA:
        raise StoreMismatch(f"an opt-in release must have the schema {SCHEMA}")
    return body
