"""Epochs on numbers are the epochs of `simulated_epochs`, and take m_C, f_O and records of clients.

Statistical: seeds are fixed; bounds at five standard errors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blendstream.evaluation.numbered_epochs import (
    NumberedRecords,
    divide_users,
    run_numbered_epoch,
)
from blendstream.evaluation.populations import AOL, ZipfPeople, log_setting
from blendstream.evaluation.simulated_epochs import Optin, parameters_of, run_epoch
from tests.evaluation.aol_log import write_aol_log

SMALL = replace(AOL, people=ZipfPeople(queries=500), users=40_000, list_size=10)


@pytest.mark.parametrize("profile", ["paper", "sharp"])
def test_the_same_noise_gives_the_same_release(profile: str) -> None:
    """Only who makes the texts differs: list, noisy counts and truth are equal."""
    held = SMALL.people.draw(4_000, np.random.default_rng(1))
    optin = Optin(SMALL.people, held[np.newaxis])
    parameters = parameters_of(SMALL)
    usual = run_epoch(profile, SMALL, optin, parameters, np.random.default_rng(2))
    numbered = run_numbered_epoch(profile, SMALL, held, parameters, np.random.default_rng(2))

    assert len(usual.truth.listed) == 10
    assert numbered.release.head_list == usual.release.head_list
    assert numbered.release.noisy.counts.tolist() == usual.release.noisy.counts.tolist()
    assert numbered.truth.listed.tolist() == usual.truth.listed.tolist()
    assert numbered.truth.cells.tolist() == usual.truth.cells.tolist()
    ours, theirs = numbered.estimates.optin.cells, usual.estimates.optin.cells
    assert ours.probability.tolist() == theirs.probability.tolist()
    assert ours.variance.tolist() == theirs.variance.tolist()


@pytest.mark.parametrize("profile", ["paper", "sharp"])
def test_clients_estimates_are_unbiased_at_any_number_of_answers(profile: str) -> None:
    """Three answers about one of four records each estimate the same proportion; 60 runs."""
    held = SMALL.people.draw(4_000, np.random.default_rng(1))
    parameters = replace(parameters_of(SMALL), records_per_client=3)
    errors = []
    for seed in range(60):
        epoch = run_numbered_epoch(
            profile, SMALL, held, parameters, np.random.default_rng(seed), client_records=4
        )
        first = int(np.flatnonzero(epoch.truth.listed == SMALL.people.top(1)[0])[0])
        client = epoch.estimates.client.cells.probability
        errors.append(client[first] - epoch.truth.cells[first])

    assert abs(np.mean(errors)) <= 5 * np.std(errors) / np.sqrt(len(errors))


def test_a_logs_clients_are_its_other_users(tmp_path: Path) -> None:
    """Opt-in users and clients are all users, and each answer is about the client's record."""
    write_aol_log(tmp_path / "log.txt", users=3_000)
    setting, _ = log_setting(tmp_path / "log.txt")
    optin, clients = divide_users(setting, 0.4, np.random.default_rng(1))
    assert clients is not None
    together = np.sort(np.concatenate([optin, clients]))

    assert (
        together.tolist() == np.sort(setting.people.draw(3_001, np.random.default_rng(2))).tolist()
    )
    parameters = replace(parameters_of(setting, list_size=2), records_per_client=2)
    errors = []
    for seed in range(100):
        epoch = run_numbered_epoch(
            "sharp", setting, optin, parameters, np.random.default_rng(seed), clients=clients
        )
        held = np.mean(clients == epoch.truth.listed[0])
        errors.append(epoch.estimates.client.cells.probability[0] - held)
    assert abs(np.mean(errors)) <= 5 * np.std(errors) / 10


def test_a_share_of_one_leaves_nobody_to_estimate() -> None:
    """f_O = 1: all opt-in users build the list, and clients alone estimate."""
    held = SMALL.people.draw(4_000, np.random.default_rng(1))
    for profile in ("paper", "sharp"):
        epoch = run_numbered_epoch(
            profile, SMALL, held, parameters_of(SMALL), np.random.default_rng(2), selection_share=1
        )
        assert epoch.release.noisy.users == 0
        assert np.isfinite(epoch.estimates.blended.cells.probability).all()


def test_a_table_of_numbers_knows_what_it_returned() -> None:
    """Sums by query are over all of its records, listed or not."""
    numbers = np.arange(60)
    table = NumberedRecords(SMALL.people, numbers)
    listed = [table[25], table[3], table[27]]
    queries = list(dict.fromkeys(record.query for record in listed))

    assert table.places([listed[1], listed[0]]).tolist() == [3, 25]
    assert table.sums_by_query(queries, np.arange(60)).tolist() == [
        sum(range(20, 30)), sum(range(10)),
    ]  # fmt: skip
    assert table.numbers == {listed[0]: 25, listed[1]: 3, listed[2]: 27}
    assert table.sums_by_query([], np.arange(60)).tolist() == []
