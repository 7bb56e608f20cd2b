"""A log's users are divided at random; the truth is what they hold, as in the paper's Figure 9."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blendstream.blender.values.errors import ParameterError
from blendstream.evaluation.log_people import LogPeople
from blendstream.evaluation.populations import AOL, Setting, log_setting
from blendstream.evaluation.simulated_epochs import draw_optin, parameters_of, run_epoch
from tests.evaluation.aol_log import write_aol_log

#: Three users have ⟨a,x⟩, two ⟨a,y⟩, one ⟨b,x⟩; the fourth has a second record.
PEOPLE = LogPeople.of(
    [["a\tx", "a\tx", "a\ty", "a\ty", "b\tx", "a\tx"], [None, None, None, "c\tz", None, None]]
)


def setting_of(people: LogPeople) -> Setting:
    return replace(AOL, name="log", people=people, users=people.users)


def test_the_truth_is_one_record_per_user() -> None:
    """Worked by hand; the second record of a user counts for nobody's truth."""
    top = PEOPLE.top(4)

    assert PEOPLE.records(top) == [("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")]
    assert PEOPLE.probability(top).tolist() == pytest.approx([3 / 6, 2 / 6, 1 / 6, 0])
    assert PEOPLE.query_probability(top).tolist() == pytest.approx([5 / 6, 5 / 6, 1 / 6, 0])
    assert PEOPLE.records(PEOPLE.top_queries(2)) == [("a", "x"), ("b", "x")]


def test_optin_users_and_clients_are_all_users_each_once() -> None:
    """Whoever were in both groups would be asked twice, and the truth would be another one."""
    rng = np.random.default_rng(1)
    for optin in range(7):
        held, clients = PEOPLE.divide(optin, rng)
        together = [*held[0].tolist(), *clients.tolist()]
        assert held.shape == (2, optin)
        assert Counter(together) == Counter(PEOPLE.held[0].tolist())


def test_every_user_opts_in_equally_often() -> None:
    """Five standard errors for six numbers: one seed in 200 000 would fail."""
    one_each = LogPeople.of([[f"query\t{i}" for i in range(6)]])
    rng = np.random.default_rng(2)
    drawn = [number for _ in range(3_000) for number in one_each.divide(2, rng)[0][0].tolist()]

    assert all(abs(n - 1_000) < 5 * (3_000 * 2 / 9) ** 0.5 for n in Counter(drawn).values())


@pytest.mark.parametrize("profile", ["paper", "sharp"])
def test_clients_answer_with_the_records_that_the_others_have(
    tmp_path: Path, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices are counted in the cells of their own records, and ⟨q,⋆⟩ is theirs by query."""
    path = tmp_path / "log.txt"
    write_aol_log(path)
    log, _ = log_setting(path)
    given: list[np.ndarray] = []

    def answer_truthfully(_randomizer: object, holders: np.ndarray, _rng: object) -> np.ndarray:
        given.append(holders)
        return holders

    monkeypatch.setattr(
        "blendstream.evaluation.simulated_epochs.draw_report_counts", answer_truthfully
    )
    rng = np.random.default_rng(3)
    optin = draw_optin(log, rng, share=0.3)
    epoch = run_epoch(profile, log, optin, parameters_of(log), rng)
    cells = epoch.release.head_list.cells

    assert optin.clients is not None
    expected = Counter(cells.number(record) for record in log.people.records(optin.clients))
    assert dict(expected) == {i: n for i, n in enumerate(given[0].tolist()) if n}
    assert given[0].sum() == log.users - optin.users
    # All users together are the truth.
    everyone = Counter(cells.number(r) for r in log.people.records(log.people.held[0]))
    shares = [everyone[i] / log.users for i in range(len(cells))]
    assert epoch.truth.cells.tolist() == pytest.approx(shares)


def test_several_records_per_user_reach_the_head_list(tmp_path: Path) -> None:
    """m_O > 1: the clicks of one user, not fresh draws from everybody's."""
    path = tmp_path / "log.txt"
    write_aol_log(path)
    log, _ = log_setting(path, records_per_user=3)
    optin = draw_optin(log, np.random.default_rng(1), share=1.0)
    counts = optin.counts(1.0)

    assert optin.held.shape == (3, log.users)
    # All users have ⟨οδόσ strasse⟩ among their clicks; most have it among three.
    (common,) = (
        n for r, n in zip(counts.records, counts.selection, strict=True) if "ss" in r.query
    )
    assert common > 0.7 * log.users
    assert max(counts.selection) <= log.users


def test_a_smaller_log_is_a_log_of_some_of_the_users() -> None:
    """`--scale 0.5`; its truth is theirs."""
    half = setting_of(PEOPLE).scaled(0.5)

    assert half.users == 3
    assert isinstance(half.people, LogPeople)
    assert half.people.probability(half.people.top(9)).sum() == pytest.approx(1)
    with pytest.raises(ParameterError, match="scale must be at most 1 for a log, got 2"):
        setting_of(PEOPLE).scaled(2)


def test_more_people_than_users_are_refused() -> None:
    """A log has its users once."""
    with pytest.raises(ParameterError, match="at most its 6 users, got 7"):
        PEOPLE.draw(7, np.random.default_rng(1))
