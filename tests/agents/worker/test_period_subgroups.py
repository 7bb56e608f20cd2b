"""In a budget period a person stays in one share, and no one can follow them through epochs."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from blendstream.agents.gateway.state.frame_writer import OptinFrames
from blendstream.agents.gateway.state.submission_targets import OptinTarget
from blendstream.agents.worker.entry_checks import judge_optin_records
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.streams.budget.epoch_plan import ClickGraphPlan, EpochParameters, begin_period
from blendstream.streams.budget.ledger import Ledger
from blendstream.streams.epoch_keys import EpochKeys, KeyRing
from blendstream.streams.names import OptinSubgroup
from blendstream.streams.releases import entries
from blendstream.streams.tables.batch_verdict import Delivery, Refusal
from blendstream.streams.tables.fingerprints import FingerprintTable
from blendstream.streams.wire.frames import OptinEntry, decode, encode_optin_records
from tests.agents.jobs.model_log import PLENTY, WINDOW_MS, ModelLog, plan
from tests.service.settings import MASTER

T = 3
PLAN = plan(
    period_epochs=T, known_records=100, optin_cohorts=1, cohorts=T, graph_share_ppm=200_000,
    click_graph=ClickGraphPlan(1.0, 1e-6, 1, 1), privacy=PrivacyParameters(selection_share=0.75),
)  # fmt: skip
RING = KeyRing({"k1": MASTER, "k2": bytes(range(1, 33))})
PEOPLE = [b"user %d" % n for n in range(600)]


def opened(*epochs: int, key_id: str = "k1") -> ModelLog:
    """A log with these epochs of one period; `key_id` opens all but its first."""
    log, period = ModelLog(), begin_period(PLAN, 0)
    for epoch in epochs:
        of_plan = plan(**{f: getattr(PLAN, f) for f in PLAN.__slots__}
                       | {"key_id": key_id if epoch else "k1"})  # fmt: skip
        charge = of_plan.charge(Ledger(), PLENTY, epoch, epoch * 60, period)
        start = epoch * WINDOW_MS
        log.commit(start, entries.epoch_opened(
            EpochParameters(epoch, start, start + WINDOW_MS, of_plan, charge)
        ))  # fmt: skip
    return log


def target(log: ModelLog, epoch: int) -> OptinTarget:
    """Return the epoch as a gateway accepts records for it."""
    state = log.log_state.epochs[epoch]
    parameters = state.parameters
    assert parameters.period is not None
    return OptinTarget(
        epoch=epoch, keys=RING.epoch(parameters.plan.key_id, epoch),
        frames=OptinFrames("topic", epoch, log_position=1), partitions=2, records_per_user=1,
        cohorts=1, cohort_id="", user_id_spaces=True, window_start_ms=parameters.window_start_ms,
        window_end_ms=parameters.window_end_ms, early_before_ms=0, late_from_ms=2**60,
        shares=RING.period_subgroups(parameters.period),
    )  # fmt: skip


def shares_in(log: ModelLog, epoch: int, space: str = "app") -> dict[bytes, OptinSubgroup]:
    """Return the subgroup in which the worker counts each person; each has a different record."""
    to = target(log, epoch)
    sent = [OptinEntry(to.contributor(space, who), 0, who, b"https://x.example/") for who in PEOPLE]
    frame = encode_optin_records(epoch, sent, log_position=1)
    delivery = Delivery(0, log.log_state.epochs[epoch].parameters.window_start_ms, decode(frame), 1)
    keys = {epoch: to.keys}
    verdict = judge_optin_records(0, [delivery], log.log_state, keys, defaultdict(FingerprintTable))
    tally = verdict.epochs[epoch]
    assert dict(tally.refused) == {}
    return {text.split(b"\t")[0]: share for share, texts in tally.records.items() for text in texts}


def test_a_person_is_in_the_same_share_in_every_epoch_of_a_period():
    """A person who changed subgroup would pay for two releases, which the ledger charges once."""
    log = opened(0, 1, 2)
    first = shares_in(log, 0)

    assert shares_in(log, 1) == shares_in(log, 2) == first
    sizes = Counter(first.values())
    assert 300 < sizes[OptinSubgroup.S] < 420
    assert 60 < sizes[OptinSubgroup.T] < 180
    assert 70 < sizes[OptinSubgroup.GRAPH] < 170


def test_a_new_master_secret_within_a_period_moves_no_one():
    log = opened(0, 1, key_id="k2")

    assert log.log_state.epochs[1].parameters.plan.key_id == "k2"
    assert shares_in(log, 1) == shares_in(log, 0)


def test_a_person_whose_application_moves_to_another_space_stays_in_their_share():
    log = opened(0, 1)

    assert shares_in(log, 1, "another") == shares_in(log, 0, "app")


def test_the_next_period_draws_shares_anew():
    one, other = (RING.period_subgroups(begin_period(PLAN, first)) for first in (0, T))
    moved = sum(one.of(who) != other.of(who) for who in PEOPLE)

    assert 200 < moved < 400, "two independent draws of 60, 20 and 20 % differ for 56 %"


def test_contributors_of_two_epochs_have_nothing_in_common():
    """A reader of Kafka's files must not be able to follow a person from epoch to epoch."""
    log = opened(0, 1)
    keys = [target(log, epoch) for epoch in (0, 1)]
    one, other = ([to.contributor("app", who) for who in PEOPLE] for to in keys)

    assert not set(one) & set(other)
    bits = np.frombuffer(b"".join(one), "u1") ^ np.frombuffer(b"".join(other), "u1")
    for place in range(16):
        same = np.count_nonzero(bits.reshape(-1, 16)[:, place] == 0)
        assert same < 15, f"byte {place}: two in 600 are alike by chance, four deviations are 9"


def test_the_last_byte_tells_the_share_to_who_has_the_key_alone():
    log = opened(0)
    to = target(log, 0)
    assert to.shares is not None
    last: dict[int, list[int]] = defaultdict(list)
    for who in PEOPLE:
        contributor = to.contributor("app", who)
        assert to.keys.subgroup_in(contributor) == to.shares.of(who)
        last[to.shares.of(who)].append(contributor[-1])
    for values in last.values():
        assert 100 < np.mean(values) < 155, "as random as any other byte"
        assert len(set(values)) > len(values) / 3


def test_a_contributor_that_no_gateway_made_is_refused():
    """Nearly every other last byte is that of no share: counted, it could be in any."""
    log = opened(0)
    keys = {0: RING.epoch("k1", 0)}
    rng = np.random.default_rng(4)
    sent = [OptinEntry(rng.bytes(16), 0, b"q", b"https://x.example/") for _ in range(500)]
    delivery = Delivery(0, 0, decode(encode_optin_records(0, sent, log_position=1)), 1)
    tally = judge_optin_records(
        0, [delivery], log.log_state, keys, defaultdict(FingerprintTable)
    ).epochs[0]

    assert tally.refused[Refusal.MALFORMED] > 480
    assert tally.received == 500 == tally.counted + tally.refused.total()


def test_without_a_period_nothing_changed():
    keys = EpochKeys.derive(MASTER, 5)
    assert len(keys.contributor_in(b"a", 1)) == len(keys.contributor_of(b"a")) == 16
    assert keys.contributor_in(b"a", 1)[:-1] == keys.contributor_of(b"a")[:-1]
