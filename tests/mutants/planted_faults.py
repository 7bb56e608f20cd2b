"""The faults that `make mutants` plants, and the test that must catch each of them.

A fault is found by its text, which must occur once in the product's code, so files may move. Its
test is found by the name of its file and of the test, for the same reason. Where a line of the code
changes, change its copy here: `test_planted_faults.py` names those that no longer fit.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Replace `right` by `wrong`: what then goes wrong, and who must notice."""

    what: str
    right: str
    wrong: str
    #: Name of the test's file, without folders, and of the test in it.
    file: str
    test: str


FAULTS = (
    # Who is counted.
    Fault(
        "records that this epoch counted are taken for known, and so shown without payment",
        "return _Inputs(counts, known, memory, reasons)",
        "return _Inputs(counts, tuple(counts.records), memory, reasons)",
        "test_head_lists.py",
        "test_known_are_all_records_of_the_last_published_list_and_no_others",
    ),
    Fault(
        "only listed records stay known, so those below the cut are lost as soon as they dip",
        "return tuple(record for place, record in enumerate(records) if place not in forgotten)",
        "return records[: HeadListDocument.from_bytes(data).head_list.listed]",
        "test_head_lists.py",
        "test_known_are_all_records_of_the_last_published_list_and_no_others",
    ),
    Fault(
        "people of T are counted in S too, whose noise does not cover them",
        "records, s, t, _users(totals, OptinSubgroup.S)",
        "records, s + t, t, _users(totals, OptinSubgroup.S)",
        "test_sealed_counts.py",
        "test_everyone_is_one_participant_of_one_share_and_counts_there_alone",
    ),
    Fault(
        "participants are counted by record, which publishes how many records people hold",
        "first = (subgroups[remaining] == number) & (slots[remaining] == 0)",
        "first = subgroups[remaining] == number",
        "test_sealed_counts.py",
        "test_everyone_is_one_participant_of_one_share_and_counts_there_alone",
    ),
    Fault(
        "the border between S and T is off by a millionth",
        'return np.searchsorted(ends, points % np.uint64(PARTS), side="right")',
        'return np.searchsorted(ends, points % np.uint64(PARTS), side="left")',
        "test_values.py",
        "test_a_share_ends_at_its_millionth",
    ),
    Fault(
        "a person may send one record more than the noise covers",
        "remaining = keep(slots[remaining] < per_user, Refusal.OVER_LIMIT)",
        "remaining = keep(slots[remaining] <= per_user, Refusal.OVER_LIMIT)",
        "test_entry_checks.py",
        "test_a_user_counts_at_most_m_distinct_records",
    ),
    Fault(
        "a person's second copy of a record is counted",
        "remaining = keep(new, Refusal.REPEATED)",
        "remaining = keep(new | True, Refusal.REPEATED)",
        "test_entry_checks.py",
        "test_a_user_counts_at_most_m_distinct_records",
    ),
    Fault(
        "a record at the very end of its epoch's time is counted",
        "if delivery.append_ms >= late_from:",
        "if delivery.append_ms > late_from:",
        "test_entry_checks.py",
        "test_reports_are_late_by_append_time_and_beyond_the_seal",
    ),
    Fault(
        "a batch that Kafka delivers twice is counted twice",
        "if stored[1] ~= batch.expected or stored[2] ~= batch.topic_id then",
        "if stored[2] ~= batch.topic_id then",
        "test_counting_servers.py",
        "test_scripts_count_fence_and_recover_on_every_server",
    ),
    Fault(
        "counts are read before they reach the seal",
        "if bound > 0 and (offset is None or offset < bound):",
        "if bound > 0 and offset is None:",
        "test_sealed_counts.py",
        "test_counts_that_are_not_there_up_to_the_seal_are_not_read",
    ),
    # What it costs.
    Fault(
        "a device of the profile `paper` is charged no delta",
        'return Cost(self.privacy.epsilon, self.privacy.delta if self.profile == "paper" else 0.0)',
        "return Cost(self.privacy.epsilon, 0.0)",
        "test_epoch_plan.py",
        "test_a_device_is_charged_the_delta_that_its_randomizer_spends",
    ),
    Fault(
        "losses between two points of the ledger's grid are rounded down",
        "loss = defaultdict(float, {math.ceil(steps): (1 - delta) / (1 + less)})",
        "loss = defaultdict(float, {math.floor(steps): (1 - delta) / (1 + less)})",
        "test_ledger.py",
        "test_losses_between_two_points_of_the_grid_are_rounded_up",
    ),
    Fault(
        "an epoch is opened with twice the delta that the limit has",
        "if delta > most.delta * (1 + 1e-12):",
        "if delta > most.delta * 2:",
        "test_ledger.py",
        "test_a_limit_holds_for_delta_as_it_does_for_epsilon",
    ),
    Fault(
        "a click graph is charged as for adding a person, not for replacing one",
        "return Cost(2 * epsilon, min(1.0, (1 + math.exp(epsilon)) * delta))",
        "return Cost(epsilon, delta)",
        "test_ledger.py",
        "test_the_click_graph_is_charged_as_replace_one",
    ),
    Fault(
        "a period's delta leaves out records that a single person shows",
        "return min(1.0, records * pi + shifted)",
        "return min(1.0, shifted)",
        "test_period_budget.py",
        "test_the_sum_holds_by_convolution_and_no_lower_threshold_would",
    ),
    Fault(
        "the threshold of new records is one too low for its delta",
        "return 1 + rare_noise(scale=scale, at_most=_singleton_probability(epsilon, delta))",
        "return rare_noise(scale=scale, at_most=_singleton_probability(epsilon, delta))",
        "test_stable_histogram.py",
        "test_every_move_of_one_user_keeps_epsilon_and_delta_counts_and_known_records_included",
    ),
    Fault(
        "a draw that failed is drawn again until it succeeds",
        "FailureAction.ABANDON, IncompleteReason.DRAW_FAILED,",
        "FailureAction.RETRY, IncompleteReason.DRAW_FAILED,",
        "test_release_failures.py",
        "test_once_noise_was_drawn_no_failure_leads_to_another_draw",
    ),
    # What is drawn and estimated.
    Fault(
        "noise is never negative",
        "return np.where(first >> np.uint16(_GUIDE_BITS), -size, size)",
        "return size",
        "test_exact_sampler.py",
        "test_a_uniform_just_below_or_above_a_probability_falls_on_the_right_side",
    ),
    Fault(
        "a device that hides its cell may name it",
        "chosen = [other + (other >= cell) for other in others]",
        "chosen = [other + (other > cell) for other in others]",
        "test_subset_selection.py",
        "test_answers_are_strictly_increasing_whatever_is_held",
    ),
    Fault(
        "T's variance leaves out that T is a sample",
        "variance_at=lambda p: p * (1 - p) / noisy.users + noise_variance,",
        "variance_at=lambda p: 0 * p + noise_variance,",
        "test_optin.py",
        "test_the_variance_of_t_is_that_of_its_sample_and_of_its_noise",
    ),
    Fault(
        "the likeliest share is published in place of the mean",
        "mean[part] = (posterior * record.p).sum(axis=1)",
        "mean[part] = record.p[np.arange(len(posterior)), posterior.argmax(axis=1)]",
        "test_difference_blend.py",
        "test_an_estimate_is_the_mean_of_what_is_likely_not_the_likeliest",
    ),
    Fault(
        "p-values of the groups' agreement are halved",
        "return Agreement(observed, (1 + at_least) / (1 + rounds), compared)",
        "return Agreement(observed, (1 + at_least) / (1 + rounds) / 2, compared)",
        "test_agreement.py",
        "test_clients_who_report_just_the_prediction_agree_with_certainty",
    ),
    Fault(
        "the less certain group gets the larger weight",
        "weight = client_variance / (optin_variance + client_variance)",
        "weight = optin_variance / (optin_variance + client_variance)",
        "test_blend.py",
        "test_zero_variance_is_certainty",
    ),
    Fault(
        "the filter forgets in twenty epochs what it learned, not in a hundred",
        "SWITCH = 0.01",
        "SWITCH = 0.05",
        "test_epoch_filter.py",
        "test_one_epoch_in_a_hundred_the_world_may_change_its_mode",
    ),
    # Time, keys and words.
    Fault(
        "the release log's reader allows two brokers' clocks no difference",
        "self._skew_ms = round(2 * skew_s * 1000)",
        "self._skew_ms = 0",
        "test_reader.py",
        "test_times_of_two_brokers_that_are_close_prove_no_order",
    ),
    Fault(
        "reports are sealed while a broker's clock may still admit one",
        "return state.head_list.reports_until_ms + plan.grace_ms + plan.skew_ms",
        "return state.head_list.reports_until_ms + plan.grace_ms",
        "test_epoch_schedule.py",
        "test_reports_are_sealed_after_their_end_grace_and_skew_and_not_before",
    ),
    Fault(
        "two jobs processes hold one lease",
        "self._client.set(self._key, self._token, nx=True, px=self._milliseconds)",
        "self._client.set(self._key, self._token, px=self._milliseconds)",
        "test_leases.py",
        "test_one_holds_a_lease_until_it_is_silent_for_too_long",
    ),
    Fault(
        "a person has the same key in every epoch, so that their records can be linked",
        'info = f"blendstream epoch {epoch} {use}".encode()',
        'info = f"blendstream {use}".encode()',
        "test_epoch_keys.py",
        "test_keys_are_the_published_ones",
    ),
    Fault(
        "a user's token lets its holder send as anyone",
        "return hmac.compare_digest(user_hash(user_id), self.user)",
        "return True",
        "test_user_tokens.py",
        "test_a_users_token_sends_that_users_records_and_no_others",
    ),
    Fault(
        "a log line writes any object that a listed field is given, also a query",
        "if name in FIELDS and isinstance(value, SAFE_TYPES)",
        "if name in FIELDS",
        "test_structured_logs.py",
        "test_text_that_came_from_outside_is_never_written",
    ),
)
