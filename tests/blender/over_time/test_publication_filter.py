"""The filter follows published documents alone: the same documents, the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blendstream.blender import HeadListMismatch, ParameterError, Record
from blendstream.blender.over_time.publication_filter import (
    ClientFigures,
    Publication,
    RecordFilter,
    observe_clients,
    observe_optin,
)

USERS, T_USERS, REPORTS = 30_000, 3_000, 600_000
RECORDS = tuple(Record(f"q{i // 2}", f"u{i}") for i in range(8))
P = 0.01 / (1 + np.arange(len(RECORDS)))


def publication(epoch: int, rng: np.random.Generator, size: int = 8) -> Publication:
    """Records in another order each time, the first three listed."""
    order = rng.permutation(size)
    p = P[order]
    listed = p[:3]
    variance = listed / REPORTS + 0.036 / REPORTS
    return Publication(
        epoch=epoch,
        records=tuple(RECORDS[i] for i in order),
        counts=rng.poisson(USERS * p),
        users=USERS,
        noise=0.36,
        listed=3,
        estimation=rng.poisson(T_USERS * listed),
        estimation_users=T_USERS,
        estimation_noise=0.36,
        clients=ClientFigures(listed + rng.normal(0, np.sqrt(variance)), variance, REPORTS),
    )


@pytest.fixture
def history() -> list[Publication]:
    rng = np.random.default_rng(7)
    sizes = (5, 5, 6, 8, 8, 8)
    return [publication(epoch, rng, size) for epoch, size in enumerate(sizes, start=1)]


def rebuild(history: list[Publication]) -> RecordFilter:
    """As a machine does that has lost everything but the publications."""
    current = RecordFilter.start()
    for one in history:
        current = current.follow(one)
    return current


def by_record(state: RecordFilter) -> dict[Record, tuple[float, float]]:
    of = state.state
    return dict(
        zip(state.records, zip(of.mean[0].tolist(), of.variance.tolist(), strict=True), strict=True)
    )


def test_the_order_of_records_in_a_document_carries_nothing(history):
    def turned(one: Publication) -> Publication:
        """The unlisted ones the other way round."""
        order = [0, 1, 2, *range(len(one.records) - 1, 2, -1)]
        return replace(one, records=tuple(one.records[i] for i in order), counts=one.counts[order])

    here, there = by_record(rebuild(history)), by_record(rebuild([turned(p) for p in history]))
    for record, (mean, variance) in here.items():
        assert there[record] == pytest.approx((mean, variance), rel=1e-9)


def test_what_a_publication_forgot_is_new_again(history):
    gone = history[1].records[-1]
    history[1] = replace(history[1], forgotten=(gone,))
    after = rebuild(history[:2])

    assert gone not in after.records
    assert len(after.records) == 4
    again = after.follow(history[2])
    assert again.records[-2:] == tuple(r for r in history[2].records if r not in after.records)


def test_estimates_are_ranked_have_intervals_and_sum_by_query(history):
    estimates = rebuild(history).estimates()
    of = estimates.of_records

    assert estimates.records[0] == RECORDS[0]
    assert (np.diff(of.probability) <= 0).all()
    assert (of.low < of.probability).all()
    assert (of.probability < of.high).all()
    assert estimates.queries[0] == "q0"
    both = [i for i, r in enumerate(estimates.records) if r.query == "q0"]
    assert of.probability[both].sum() == pytest.approx(estimates.of_queries.probability[0])
    assert of.variance[both].sum() == pytest.approx(estimates.of_queries.variance[0])


def test_what_the_groups_differ_by_is_shared_by_a_querys_records(history):
    """Opt-in users may like a query more with all its URLs: then the errors add up."""
    found = rebuild([replace(one, between_groups=0.1) for one in history]).estimates()
    both = [i for i, r in enumerate(found.records) if r.query == "q0"]
    variance = found.of_records.variance[both]

    assert variance.sum() * 1.05 < found.of_queries.variance[0] < np.sqrt(variance).sum() ** 2


def test_listed_records_are_summed_also_where_too_few_hold_them(history):
    """They have a row of their own in the publication, and a reader may add them up."""
    state = rebuild(history)
    hidden = replace(state, users=1)
    assert hidden.estimates().records == ()
    assert set(hidden.estimates(RECORDS[:2]).records) == set(RECORDS[:2])


def test_s_and_t_are_one_group_with_the_precision_of_both(history):
    one = history[0]
    both, s_alone = observe_optin(one), observe_optin(replace(one, estimation=None))

    assert both.users[:3] == pytest.approx(np.full(3, USERS + T_USERS), rel=0.01)
    assert both.users[3:].tolist() == s_alone.users[3:].tolist() == [USERS] * 2
    total = (one.counts[:3] + one.estimation) / (USERS + T_USERS)
    assert both.share[:3] == pytest.approx(total, rel=0.01)


def test_large_noise_makes_t_count_less(history):
    """Under a period's Gaussian noise the smaller group has the larger relative noise."""
    one = replace(history[0], noise=72.0, estimation_noise=72.0)
    both = observe_optin(one)

    p = both.share[:3]
    of_s, of_both = p / USERS + 72 / USERS**2, p / both.users[:3] + both.noise[:3]
    assert (of_both < of_s).all(), "T adds to what S says, never takes from it"


def test_unlisted_records_and_empty_epochs_say_nothing_of_clients(history):
    assert np.isnan(observe_clients(history[0]).share[3:]).all()
    nobody = replace(history[0], clients=ClientFigures(np.zeros(3), np.full(3, np.inf), 0))
    assert np.isnan(observe_clients(nobody).share).all()
    one = replace(history[0], clients=ClientFigures(np.zeros(3), np.full(3, np.inf), 1))
    assert np.isnan(observe_clients(one).share).all()


def test_epochs_without_a_publication_make_every_record_less_certain(history):
    """Time passes in them, too: a filter that skips them would trust what has had time to change.

    The reference records stay, and with them what was learned about how records move.
    """
    state = rebuild(history[:4])
    seen = history[4]
    at_once, later = (state.follow(replace(seen, epoch=seen.epoch + gap)) for gap in (0, 6))

    assert (later.state.variance > at_once.state.variance).all()
    carried = state.carry_to(seen.epoch + 5)
    assert carried.records == state.records
    assert carried.state.reference.rows.tolist() == state.state.reference.rows.tolist() != []
    assert carried.follow(replace(seen, epoch=seen.epoch + 6)).state.mean == pytest.approx(
        later.state.mean
    )
    assert state.carry_to(history[3].epoch) is state


def test_an_epoch_must_come_after_the_last_and_hold_all_that_is_known(history):
    state = rebuild(history[:3])
    with pytest.raises(ParameterError, match="in order, got epoch 3 after epoch 3"):
        state.follow(history[2])
    with pytest.raises(HeadListMismatch, match="all 6 known records, epoch 9 lacks 1"):
        state.follow(replace(history[1], epoch=9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": np.zeros(2, dtype=np.int64)}, "counts must run over the 5 records"),
        ({"listed": 6}, "at most all are listed"),
        ({"estimation": np.zeros(2, dtype=np.int64)}, "estimation must run over the 3 listed"),
        ({"listed": 2, "estimation": None}, "clients must run over the 2 listed"),
    ],
)
def test_a_publication_that_does_not_fit_itself_is_refused(history, change, message):
    with pytest.raises(HeadListMismatch, match=message):
        replace(history[0], **change)


def test_a_publication_without_users_is_refused(history):
    with pytest.raises(ParameterError, match="needs users"):
        replace(history[0], users=0)
