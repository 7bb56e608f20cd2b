"""The release log, folded into what the gateway serves and judges by."""

from __future__ import annotations

import pytest

from blendstream.agents.gateway.gateway_process import _looked_back_s
from blendstream.agents.gateway.state.publications import newest_with_rows
from blendstream.streams.epoch_keys import KeyRing
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.releases import entries
from blendstream.streams.releases.documents import StoredDocument, split
from blendstream.streams.releases.entries import EpochOutcome
from blendstream.streams.releases.epoch_state import ReleaseLogState
from blendstream.streams.settings import Settings
from tests.agents.gateway.state.folded_log import NOW_MS, Log
from tests.service.settings import MASTER, service_values
from tests.service.written_log import head_list_document


def test_an_open_epoch_takes_records_with_the_terms_it_was_opened_with():
    log = Log()
    log.open_epoch(8, records_per_user=3, cohorts=2, partitions=4)

    target = log.publications.optin_targets.now(NOW_MS)

    assert target is not None
    assert (target.epoch, target.records_per_user, target.cohorts) == (8, 3, 2)
    assert target.late_from_ms == target.window_end_ms + 60_000
    assert target.keys == KeyRing({"k1": MASTER}).epoch("k1", 8)
    assert log.publications.epochs[8].state == "collecting"


def test_a_released_head_list_is_served_and_reported_against():
    log = Log()
    log.open_epoch(7)
    stored = log.release_head_list(7)

    held = log.publications
    assert held.current_head_list == stored.id
    assert held.head_lists[stored.id].body == head_list_bytes(stored)
    target = held.report_targets[stored.id]
    assert (target.epoch, target.shape.cells, target.late_from_ms) == (7, 51, NOW_MS + 1_060_000)
    assert held.optin_targets.now(NOW_MS) is None, "its records are over"


def head_list_bytes(stored: StoredDocument) -> bytes:
    import zlib

    return zlib.decompress(b"".join(stored.parts))


def test_entries_go_to_the_topics_that_their_epoch_was_opened_with():
    """A gateway with yesterday's settings must not accept into topics that nobody counts."""
    log = Log()
    log.open_epoch(7, topic_version=2, partitions=8)
    stored = log.release_head_list(7)
    log.open_epoch(8, topic_version=3, partitions=16)

    reports = log.publications.report_targets[stored.id]
    assert (reports.frames.topic, reports.partitions) == ("test.client-reports.v2", 8)
    records = log.publications.optin_targets.now(NOW_MS)
    assert records is not None
    assert (records.frames.topic, records.partitions) == ("test.optin-records.v3", 16)


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("opened_with", [False, True])
def test_only_a_gateway_with_a_hook_takes_reports_of_an_epoch_that_was_opened_with_one(
    hook: bool, opened_with: bool
):
    """A gateway restarted without its hook would let forged reports count as checked ones."""
    log = Log(admission=hook)
    log.open_epoch(7, devices_admitted=opened_with)
    stored = log.release_head_list(7)

    assert log.publications.report_targets[stored.id].admitted == (hook or not opened_with)


def test_frames_say_how_far_the_log_must_be_read_to_know_what_they_name():
    """Workers read so far before they refuse anything as unknown."""
    log = Log()
    log.open_epoch(7)
    stored = log.release_head_list(7)
    listed = log.offset
    log.open_epoch(8)
    opened_at = log.offset
    log.open_epoch(9, start_ms=NOW_MS + 10**9)

    assert log.publications.report_targets[stored.id].frames.log_position == listed
    records = log.publications.optin_targets.now(NOW_MS)
    assert records is not None
    assert records.frames.log_position == opened_at


def test_targets_keep_their_identity_while_the_log_moves_on():
    """Frames that are being filled are found by their target."""
    log = Log()
    log.open_epoch(7)
    stored = log.release_head_list(7)
    log.open_epoch(8)
    reports = log.publications.report_targets[stored.id]
    records = log.publications.optin_targets.now(NOW_MS)

    log.open_epoch(9, start_ms=NOW_MS + 3_540_000)

    assert log.publications.report_targets[stored.id] is reports
    assert log.publications.optin_targets.now(NOW_MS) is records


def test_reports_on_a_list_whose_epoch_is_over_are_late_and_not_unknown():
    """The device held a real list; it learns to fetch the next one."""
    log = Log()
    log.open_epoch(7)
    stored = log.release_head_list(7)
    log.commit(entries.reports_sealed(7, [0] * 4))
    assert stored.id in log.publications.report_targets
    log.publish_estimates(7, b'{"schema":"x","epoch":7}')

    assert stored.id not in log.publications.report_targets
    assert stored.id in log.publications.past_head_lists
    assert log.publications.epochs[7].state == "published"
    assert log.publications.epochs[7].outcome == "complete"


def test_estimates_are_served_byte_for_byte_and_the_oldest_are_let_go():
    log = Log(history_epochs=3)
    for epoch in range(1, 6):
        log.open_epoch(epoch)
        log.release_head_list(epoch)
        log.publish_estimates(epoch, b'{"epoch":%d}' % epoch)

    assert sorted(log.publications.estimates) == [3, 4, 5]
    assert log.publications.estimates[5].body == b'{"epoch":5}'
    assert len(log.publications.head_lists) == 3


def test_the_newest_results_stay_while_empty_epochs_follow():
    """Devices fetch the newest results; epochs without any must not push them out."""
    log = Log(history_epochs=3)
    log.open_epoch(1)
    log.release_head_list(1)
    # Too few people ends an epoch before devices have reported on the one before it.
    log.publish_nothing(2)
    log.publish_estimates(1, b'{"epoch":1}')
    for epoch in range(3, 8):
        log.publish_nothing(epoch)

    held = log.publications.estimates
    newest = newest_with_rows(held.values())
    assert newest is not None
    assert (newest.epoch, newest.body) == (1, b'{"epoch":1}')
    assert sorted(held) == [1, 6, 7], "an empty publication is still served under its number"
    assert log.publications.epochs[7].outcome == "empty"


def test_a_document_whose_bytes_are_not_its_name_stops_the_reader():
    """Half a publication, or another one, must never be served."""
    log = Log()
    log.open_epoch(7)
    log.seal_records(7)
    stored = split("head_list", head_list_document(7).to_bytes())
    optin = split("optin", b"{}")
    entry = entries.head_list_released(
        7,
        [stored, optin],
        cells=51,
        cells_per_answer=1,
        answers=1,
        wildcard_alone=False,
        reports_until_ms=1,
        reasons=[],
    )

    with pytest.raises(StoreMismatch):
        log.commit(entry, optin)


def test_documents_of_jobs_that_write_side_by_side_are_kept_apart():
    """The keeper's entries and other documents' parts may stand between two parts."""
    log = Log()
    log.open_epoch(6)
    log.release_head_list(6)
    log.open_epoch(7)
    log.seal_records(7)
    document = head_list_document(7)
    stored, optin = split("head_list", document.to_bytes()), split("optin", b"{}")
    estimates = split("estimates", b'{"epoch":6}')
    log._write(entries.part_key(stored.id, 0), stored.parts[0])
    log.commit(entries.estimate_released(6, estimates, EpochOutcome.COMPLETE, []), estimates)
    log._write(entries.part_key(optin.id, 0), optin.parts[0])
    log.commit(
        entries.head_list_released(
            7, [stored, optin], cells=51, cells_per_answer=1, answers=1, wildcard_alone=False,
            reports_until_ms=NOW_MS, reasons=[],
        )
    )  # fmt: skip

    assert log.publications.head_lists[stored.id].body == document.to_bytes()
    assert log.publications.estimates[6].body == b'{"epoch":6}'


def test_a_start_in_the_middle_of_the_log_passes_over_what_began_before():
    """Old logs are long; the parts of a document may lie on both sides of where we begin."""
    log = Log()
    log.offset = 1000
    log.log_state = ReleaseLogState(from_offset=1000)
    stored = split("estimates", b'{"epoch":3}')
    log.commit(entries.estimate_released(3, stored, EpochOutcome.COMPLETE, []))
    log.open_epoch(7)
    head_list = log.release_head_list(7)

    assert log.publications.estimates == {}
    assert log.publications.current_head_list == head_list.id


def test_a_start_looks_back_to_the_opening_of_the_epochs_that_it_must_know():
    """One that collects now was opened long ago where epochs open far ahead."""
    values = service_values() | {"budget.period_s": "7200"}
    values |= {"epoch.window_s": "3600", "epoch.epochs_ahead": "100", "gateway.history_epochs": "5"}

    assert _looked_back_s(Settings.from_values(values)) >= 105 * 3600


def test_a_pause_is_told_with_its_reason_and_end():
    log = Log()
    log.open_epoch(7)
    log.commit(entries.service_paused(8, NOW_MS, NOW_MS + 500_000, "the budget is spent"))

    assert log.publications.paused(NOW_MS / 1000 - 1) is None
    pause = log.publications.paused(NOW_MS / 1000 + 1)
    assert pause is not None
    assert pause.resumes_s == NOW_MS // 1000 + 500
    assert log.publications.paused(NOW_MS / 1000 + 501) is None


def test_an_abandoned_epoch_takes_nothing_more():
    log = Log()
    log.open_epoch(7)
    log.commit(entries.epoch_abandoned(7, "an operator said so"))

    assert log.publications.optin_targets.now(NOW_MS) is None
    assert log.publications.epochs[7].state == "abandoned"
    assert log.publications.epochs[7].abandoned == "an operator said so"


def test_what_a_job_commits_after_its_epoch_was_given_up_is_not_served():
    """A job may be between its reading and its commit when somebody abandons the epoch. What the
    world once saw for ever, under an address that any cache keeps, could not be taken back."""
    log = Log()
    log.open_epoch(6)
    current = log.release_head_list(6)
    log.open_epoch(7)
    log.seal_records(7)
    log.commit(entries.epoch_abandoned(7, "an operator said so"))
    log.publish_click_graph(7)
    late = log.release_head_list(7)
    log.publish_estimates(7, b'{"epoch":7}')

    held = log.publications
    assert held.epochs[7].state == "abandoned"
    assert (held.click_graphs, held.estimates) == ({}, {})
    assert late.id not in held.head_lists
    assert held.current_head_list == current.id


def test_a_click_graph_that_comes_after_the_head_list_is_not_served():
    """The jobs never write it to its topic: both places must show the same."""
    log = Log()
    log.open_epoch(7)
    log.seal_records(7)
    log.publish_click_graph(7)
    log.release_head_list(7)
    log.open_epoch(8)
    log.release_head_list(8)
    log.publish_click_graph(8)

    assert sorted(log.publications.click_graphs) == [7]


def test_no_device_is_sent_to_a_list_whose_epoch_ended_early():
    """It would spend its budget on a report that is refused as late."""
    log = Log()
    log.open_epoch(6)
    past = log.release_head_list(6, reports_until_ms=NOW_MS - 1)
    log.publish_estimates(6, b'{"epoch":6}')
    log.open_epoch(7)
    cut_short = log.release_head_list(7)
    assert log.publications.current_head_list == cut_short.id

    log.commit(entries.epoch_abandoned(7, "an operator said so"))

    assert log.publications.current_head_list == past.id
    assert cut_short.id in log.publications.head_lists, "it was published, and stays readable"


def test_an_epoch_whose_secret_is_missing_stops_the_reader():
    """Hashing under another key would count a person twice, or out of their turn."""
    log = Log(keys=KeyRing({}))
    with pytest.raises(LookupError, match="master secret"):
        log.open_epoch(7)
    log = Log()
    with pytest.raises(LookupError, match="assigns cohorts by master secret 'k0'"):
        log.open_epoch(7, cohorts=4, cohort_id="k0")
