"""POST /v1/optin-records: judge opt-in users' records against their epoch and queue them.

Promises: a user id is hashed, with the space that the application's token puts it in, under the
epoch's key before its record is looked at, and neither kept nor sent on; nothing in a request
chooses the space. A token of one user sends that user's records and no others. Accepted means in
time by the broker's append time, which is what the counters judge by. A retry that repeats user,
epoch and slot counts once, across the epoch's end too, since the epoch it states decides and not
the moment it arrives. Only one cohort of users is admitted in an epoch. A user without a record
says so and is queued like any other: who takes part must not depend on who searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from blendstream.agents.gateway.http.request_types import OptinRecord
from blendstream.agents.gateway.state.frame_writer import Delivered, FrameWriter
from blendstream.agents.gateway.state.submission_targets import OptinTarget, OptinTargets
from blendstream.agents.gateway.state.verdicts import (
    ACCEPTED,
    BUSY,
    Queued,
    Reason,
    Verdict,
    refused,
)
from blendstream.agents.tokens import Sender
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import normalise
from blendstream.streams.wire.frames import OptinEntry
from blendstream.streams.wire.submissions import MAX_USER_ID_BYTES

__all__ = ["Cohorts", "queue_optin_records"]


class Cohorts:
    """Which of R cohorts a user is in: a keyed hash that stays the same in every epoch.

    Epoch e admits cohort e mod R, so that a person who is always there spends R times slower. The
    key should outlive the epochs' master secrets: a new one shuffles the cohorts, and a person may
    be admitted twice in a row. So an epoch's key is the one it was opened with, and charged for.
    For the same reason a turn depends on the user id alone: it stays when an application's users
    come into another space.
    """

    def __init__(self, secrets: Mapping[str, bytes], cohort_id: str = "") -> None:
        """Secrets by id; `cohort_id` is for epochs opened before the log named theirs."""
        self._keys = {name: _cohort_key(secret) for name, secret in secrets.items()}
        self._cohort_id = cohort_id

    def admits(self, user_id: bytes, target: OptinTarget) -> bool:
        """Whether it is this user's turn."""
        if target.cohorts == 1:
            return True
        key = self._keys.get(target.cohort_id or self._cohort_id)
        if key is None:
            raise LookupError("an epoch with cohorts needs the setting keys.cohort_id")
        digest = blake2b(user_id, key=key, digest_size=8).digest()
        cohort = int.from_bytes(digest, "little") % target.cohorts
        return target.epoch % target.cohorts == cohort


def _cohort_key(secret: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=None, info=b"blendstream cohorts").derive(secret)


_OTHER_COHORT = refused(
    Reason.OTHER_COHORT,
    "it is not this user's turn in this epoch: users take turns so that each spends less of their "
    "privacy budget; nothing is wrong, and the record may be forgotten",
)
_OTHER_USER = refused(
    Reason.OTHER_USER,
    "the token must be minted for the user whose record this is; get one from the application's "
    "backend for that user",
)
_USER_ID = refused(
    Reason.MALFORMED, f"user_id must be text of 1 to {MAX_USER_ID_BYTES} bytes of UTF-8"
)


def queue_optin_records(
    entries: Sequence[OptinRecord | str],
    targets: OptinTargets,
    cohorts: Cohorts,
    writer: FrameWriter,
    *,
    sender: Sender,
    now_ms: float,
    paused_detail: str | None = None,
) -> Queued:
    """Judge each entry (or the sentence that says why it is none) and queue the good ones.

    The space of the user ids is the one that the sender's token puts them in.
    """
    current = targets.now(now_ms)
    queued = Queued([])
    places: dict[Delivered, list[int]] = {}
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            queued.verdicts.append(refused(Reason.MALFORMED, entry))
            continue
        target = current
        if entry.epoch is not None:
            target = targets.stated(entry.epoch, now_ms)
        if target is None:
            queued.verdicts.append(_wrong_epoch(current, paused_detail))
            continue
        fate = _queue(entry, sender, target, cohorts, writer)
        if isinstance(fate, Verdict):
            queued.verdicts.append(fate)
        else:
            queued.verdicts.append(ACCEPTED)
            if fate not in places:
                places[fate] = []
                queued.waiting.append((fate, target, places[fate]))
            places[fate].append(i)
    return queued


def _queue(
    record: OptinRecord, sender: Sender, target: OptinTarget, cohorts: Cohorts, writer: FrameWriter
) -> Verdict | Delivered:
    # msgspec lets no unpaired surrogates through, so this cannot fail.
    user_id = record.user_id.encode()
    if not 0 < len(user_id) <= MAX_USER_ID_BYTES:
        return _USER_ID
    if not sender.may_send_for(user_id) or not cohorts.admits(user_id, target):
        return _OTHER_COHORT if sender.may_send_for(user_id) else _OTHER_USER
    contributor = target.contributor(sender.application.user_ids, user_id)
    if record.slot >= target.records_per_user:
        return refused(
            Reason.OVER_LIMIT,
            f"slot must be below {target.records_per_user}, the records a user counts with in "
            f"epoch {target.epoch}; send no more than that, chosen at random",
        )
    try:
        query, url = _text(record)
    except ParameterError as error:
        return refused(Reason.MALFORMED, str(error))
    entry = OptinEntry(contributor, record.slot, query.encode(), url.encode())
    partition = target.keys.partition_of(contributor, target.partitions)
    if not writer.has_room(len(entry.query) + len(entry.url) + 64) or writer.is_stalled(
        target.frames.topic, partition
    ):
        return BUSY
    return writer.add_optin_record(target.frames, partition, entry)


def _text(record: OptinRecord) -> tuple[str, str]:
    """Query and URL as they are counted; both empty says that the user has no record."""
    if record.query is None or record.url is None:
        if record.query is None and record.url is None and record.slot == 0:
            return "", ""
        raise ParameterError(
            "query and url must both be text, or both null in slot 0, which says that the user has "
            "no record"
        )
    return normalise(record.query, record.url)


def _wrong_epoch(current: OptinTarget | None, paused_detail: str | None) -> Verdict:
    if current is None and paused_detail is not None:
        return refused(Reason.PAUSED, paused_detail)
    now = "no epoch is open" if current is None else f"epoch {current.epoch} is open"
    return refused(
        Reason.WRONG_EPOCH,
        f"epoch must be one that takes records now (the open one, or the last one during its "
        f"grace); {now}; see /v1/epochs",
    )
