"""POST /v1/optin-records: validate opt-in users' records against their epoch and queue them.

Promises:
- A user id is hashed under the epoch's key, with the space that the application's token assigns,
  before its record is read; it is neither stored nor sent on. Nothing in a request chooses the
  space.
- A token of one user admits only that user's records.
- Accepted means in time by the broker's append time, by which the workers decide too.
- A retry that repeats user, epoch and slot counts once, even after the epoch's end, because the
  stated epoch decides, not the time of arrival.
- Only one cohort of users is admitted in an epoch.
- A user without a record sends "no record", which is queued like a record: who takes part must not
  depend on who searched.
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
    QueuedSlice,
    Reason,
    Verdict,
    refusal,
)
from blendstream.agents.tokens import Sender
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import normalise
from blendstream.streams.wire.frames import OptinEntry
from blendstream.streams.wire.submissions import MAX_USER_ID_BYTES

__all__ = ["Cohorts", "queue_optin_records"]


class Cohorts:
    """Assigns each user to one of R cohorts, by a keyed hash that is constant over epochs.

    Epoch e admits cohort e mod R, so that a person who is always present spends R times slower. The
    key should outlive the epochs' master secrets: a new key assigns new cohorts, and a person may
    be admitted twice in a row. So an epoch uses the key with which it was opened and charged. For
    the same reason a cohort depends on the user id alone: it stays constant when an application's
    users move to another space.
    """

    def __init__(self, secrets: Mapping[str, bytes], cohort_id: str = "") -> None:
        """Take secrets by id; `cohort_id` is for epochs opened before the log named theirs."""
        self._keys = {name: _cohort_key(secret) for name, secret in secrets.items()}
        self._cohort_id = cohort_id

    def admits(self, user_id: bytes, target: OptinTarget) -> bool:
        """Return True if the target's epoch admits this user's cohort."""
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


_OTHER_COHORT = refusal(
    Reason.OTHER_COHORT,
    "this epoch admits another cohort of users, so that each user spends less privacy budget; this "
    "is not an error, and the record may be deleted",
)
_OTHER_USER = refusal(
    Reason.OTHER_USER,
    "the token must be minted for the user whose record this is; get one from the application's "
    "backend for that user",
)
_USER_ID = refusal(
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
) -> QueuedSlice:
    """Validate each entry (a string is a decoding fault) and queue the valid ones.

    The sender's token determines the space of the user ids.
    """
    current = targets.now(now_ms)
    queued = QueuedSlice([])
    places: dict[Delivered, list[int]] = {}
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            queued.verdicts.append(refusal(Reason.MALFORMED, entry))
            continue
        target = current
        if entry.epoch is not None:
            target = targets.stated(entry.epoch, now_ms)
        if target is None:
            queued.verdicts.append(_wrong_epoch(current, paused_detail))
            continue
        result = _queue(entry, sender, target, cohorts, writer)
        if isinstance(result, Verdict):
            queued.verdicts.append(result)
        else:
            queued.verdicts.append(ACCEPTED)
            if result not in places:
                places[result] = []
                queued.waiting.append((result, target, places[result]))
            places[result].append(i)
    return queued


def _queue(
    record: OptinRecord, sender: Sender, target: OptinTarget, cohorts: Cohorts, writer: FrameWriter
) -> Verdict | Delivered:
    # msgspec rejects unpaired surrogates, so this cannot fail.
    user_id = record.user_id.encode()
    if not 0 < len(user_id) <= MAX_USER_ID_BYTES:
        return _USER_ID
    if not sender.may_send_for(user_id) or not cohorts.admits(user_id, target):
        return _OTHER_COHORT if sender.may_send_for(user_id) else _OTHER_USER
    contributor = target.contributor(sender.application.user_ids, user_id)
    if record.slot >= target.records_per_user:
        return refusal(
            Reason.OVER_LIMIT,
            f"slot must be below {target.records_per_user}, the limit of records per user in "
            f"epoch {target.epoch}; send no more than that, chosen at random",
        )
    try:
        query, url = _text(record)
    except ParameterError as error:
        return refusal(Reason.MALFORMED, str(error))
    entry = OptinEntry(contributor, record.slot, query.encode(), url.encode())
    partition = target.keys.partition_of(contributor, target.partitions)
    if not writer.has_room(len(entry.query) + len(entry.url) + 64) or writer.is_stalled(
        target.frames.topic, partition
    ):
        return BUSY
    return writer.add_optin_record(target.frames, partition, entry)


def _text(record: OptinRecord) -> tuple[str, str]:
    """Return the normalised query and URL; both are empty for a user without a record."""
    if record.query is None or record.url is None:
        if record.query is None and record.url is None and record.slot == 0:
            return "", ""
        raise ParameterError(
            "query and url must both be text, or both null in slot 0, which means that the user "
            "has no record"
        )
    return normalise(record.query, record.url)


def _wrong_epoch(current: OptinTarget | None, paused_detail: str | None) -> Verdict:
    if current is None and paused_detail is not None:
        return refusal(Reason.PAUSED, paused_detail)
    now = "no epoch is open" if current is None else f"epoch {current.epoch} is open"
    return refusal(
        Reason.WRONG_EPOCH,
        f"epoch must be one that accepts records now (the open one, or the last one during its "
        f"grace); {now}; see /v1/epochs",
    )
