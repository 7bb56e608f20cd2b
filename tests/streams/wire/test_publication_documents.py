"""Publications: one spelling, valid by their schemas, ordered by what is published."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from blendstream.agents.jobs.click_graphs import mechanism_parameters
from blendstream.agents.jobs.estimates import empty_estimates
from blendstream.blender.profiles import build_head_list
from blendstream.streams.budget.epoch_plan import ClickGraphPlan
from blendstream.streams.errors import StoreMismatch
from blendstream.streams.releases.documents import PART_BYTES, DocumentReference, join, split
from blendstream.streams.releases.entries import IncompleteReason
from blendstream.streams.releases.optin_release import read_optin_release, write_optin_release
from blendstream.streams.wire.estimates_document import EstimatedShare, EstimatesDocument
from blendstream.streams.wire.head_list_document import MalformedDocument
from blendstream.streams.wire.schemas import NAMES, schema
from blendstream.streams.wire.statements import (
    click_graph_quantity,
    click_graph_statement,
    difference_statement,
    disputed_statement,
    head_list_quantity,
    privacy_statement,
)
from tests.doubles_jobs import RepeatableNoise
from tests.streams.wire.exact_schemas import exact_schema
from tests.streams.wire.published_epochs import counts, epoch_state, graph, published


@pytest.mark.parametrize("profile", ["sharp", "paper"])
@pytest.mark.parametrize("reports", [0, 1, 5000])
def test_a_publication_is_valid_by_its_schema_and_reads_back(profile: str, reports: int):
    """Analysts in any language rely on it, whatever the profile and however few reported."""
    document = published(profile, reports)
    data = document.to_bytes()

    Draft202012Validator(exact_schema("estimates")).validate(json.loads(data))
    assert EstimatesDocument.from_bytes(data).to_bytes() == data
    assert document.outcome == ("complete" if reports else "incomplete")
    for cell in document.records:
        assert (cell.client is None) == (reports == 0)


def test_the_same_release_is_rebuilt_from_the_log_with_the_same_estimates():
    """Estimates are computed epochs later, perhaps by another machine."""
    rng = np.random.default_rng(2)
    for profile in ("sharp", "paper"):
        state = epoch_state(profile=profile)
        release = build_head_list(
            profile, counts(rng), state.parameters.plan.privacy, RepeatableNoise(3)
        )
        again = read_optin_release(write_optin_release(release), release.head_list)
        for name in ("probability", "variance", "low", "high"):
            ours, theirs = getattr(again.optin.cells, name), getattr(release.optin.cells, name)
            assert np.array_equal(ours, theirs), name
        assert write_optin_release(again) == write_optin_release(release)


def test_records_are_ordered_by_published_values_alone():
    """An order by raw counts would publish them."""
    document = json.loads(published("sharp", 5000).to_bytes())
    listed = [r for r in document["records"] if r["url"] is not None]
    values = [r["blend"]["probability"] for r in listed]

    assert values == sorted(values, reverse=True)
    assert document["records"][-1]["query"] is None
    totals = [q["blend"]["probability"] for q in document["queries"]]
    assert totals == sorted(totals, reverse=True)


def test_projected_values_are_a_distribution_and_raw_ones_stay_raw():
    """The projection is biased; who averages over epochs needs the raw values."""
    document = published("sharp", 5000)
    projected = [cell.projected for cell in document.records]

    assert sum(p for p in projected if p is not None) == pytest.approx(1.0)
    assert all(p is not None and p >= 0 for p in projected)
    assert all(0 <= cell.optin_weight <= 1 for cell in document.records)


def test_a_weight_is_what_the_blend_really_did():
    """A query's total is the sum of blended records: its weight lies among theirs."""
    paper = published("paper", 5000)
    for item in (*paper.records, *paper.queries):
        assert item.optin_weight is not None
        mixed = (
            item.optin_weight * item.optin.probability
            + (1 - item.optin_weight) * item.client.probability
        )
        assert item.blend.probability == pytest.approx(mixed)
    document = published("sharp", 5000)
    for query in document.queries:
        own = [r for r in document.records if r.query == query.query and r.url is not None]
        total = sum(r.blend.probability for r in own)
        assert query.blend.probability == pytest.approx(total)
        weights = [r.optin_weight for r in own]
        assert min(weights) - 1e-12 <= query.optin_weight <= max(weights) + 1e-12
        if min(r.blend.probability for r in own) > 0:
            mean = sum(r.optin_weight * r.blend.probability for r in own) / total
            assert query.optin_weight == pytest.approx(mean)
    assert {query.optin_weight for query in published("sharp", 0).queries} == {1.0}


def test_the_papers_figure_of_a_query_is_complete_and_that_of_sharp_is_at_least():
    """p̂_q counts a query's unlisted URLs too; where no report tells them they are not measured."""
    paper, sharp = published("paper", 5000), published("sharp", 5000)
    for query in paper.queries:
        own = [r for r in paper.records if r.query == query.query]
        assert any(r.url is None for r in own)
        for group in ("optin", "client"):
            whole = sum(getattr(r, group).probability for r in own)
            assert getattr(query, group).probability == pytest.approx(whole)
        assert query.blend.variance > 0
    assert (paper.queries_at_least, sharp.queries_at_least) == (False, True)
    for document in (paper, sharp):
        again = EstimatesDocument.from_bytes(document.to_bytes())
        assert again.queries_at_least == document.queries_at_least
        assert again.to_bytes() == document.to_bytes()


@pytest.mark.parametrize(("profile", "prefer"), [("paper", "client"), ("sharp", "blend")])
def test_groups_that_disagree_are_said_to(profile: str, prefer: str):
    """The paper's blend of two populations is precise and wrong; that of `sharp` knows of them."""
    document = published(profile, 5000)  # Opt-in users are skewed, the clients uniform.

    assert document.agreement is not None
    assert not document.agreement.agree
    assert document.agreement.prefer == prefer
    assert all(cell.client is not None for cell in document.records)


@pytest.mark.parametrize("admitted", [False, True])
def test_a_disputed_record_is_published_with_both_groups_and_whose_value_is_shown(admitted: bool):
    """A forger who moves one record must not do so unseen, nor be believed for want of a hook."""
    document = published("sharp", 20_000, forged=0.1, devices_admitted=admitted)
    body = json.loads(document.to_bytes())
    Draft202012Validator(exact_schema("estimates")).validate(body)

    (row,) = [r for r in body["records"] if r["disputed"]]
    first = row["client" if admitted else "optin"]
    assert row["blend"]["probability"] == first["probability"]
    for group in ("optin", "client"):
        assert row["blend"]["low"] <= row[group]["probability"] <= row["blend"]["high"]
    assert row["client"]["probability"] > 1.5 * row["optin"]["probability"]
    assert row["optin_weight"] is None, "nothing was weighed"
    assert body["disputed"] == {
        "records": 1,
        "shown": "client" if admitted else "optin",
        "reason": disputed_statement(1, devices_admitted=admitted),
    }
    assert body["parameters"]["devices_admitted"] == admitted
    # The query's total moves with its record; those of other queries are blended as ever.
    for query in body["queries"]:
        assert query["disputed"] == (query["query"] == row["query"])
        assert (query["optin_weight"] is None) == query["disputed"]


def test_how_far_the_groups_differ_is_published_in_numbers_and_words():
    """The first thing that a team asks about people who opt in."""
    document = published("sharp", 20_000, forged=0.0)
    found = document.difference

    assert found is not None
    assert 0 <= found.low <= found.typical <= found.high
    assert found.statement == difference_statement(found.typical, found.low, found.high)
    assert difference_statement(0.184, 0.15, 0.222) == (
        "Opt-in users' shares differ from other people's by about 18 % (95 % interval: 15 % to "
        "22 %)."
    )
    assert "by about 0.4 % (95 % interval: 0.1 % to 2 %)" in difference_statement(
        0.004, 0.001, 0.02
    )
    assert document.disputed is None
    assert not any(row.disputed for row in (*document.records, *document.queries))
    read = EstimatesDocument.from_bytes(document.to_bytes())
    assert (read.difference, read.disputed) == (found, None)


@pytest.mark.parametrize(("profile", "reports"), [("paper", 5000), ("sharp", 0)])
def test_where_the_groups_were_not_compared_no_difference_is_published(profile, reports):
    """A zero would say that they are alike."""
    document = published(profile, reports)

    assert document.difference is None
    assert document.disputed is None


def test_what_a_newer_release_adds_is_passed_over():
    """Readers in the field must not stop for a key that they have no use for."""
    body = json.loads(published("sharp", 5000).to_bytes())
    first = EstimatesDocument.from_bytes(json.dumps(body).encode())
    for place in (body, body["participants"], body["difference"], body["agreement"]):
        place["later"] = {"more": 1}
    for row in (*body["records"], *body["queries"]):
        row["later"] = row["blend"]["later"] = 1

    assert EstimatesDocument.from_bytes(json.dumps(body).encode()) == first


def test_another_version_is_refused():
    body = json.loads(published("sharp", 5000).to_bytes())

    for other in ("blendstream/estimates/1", "blendstream/estimates/3"):
        with pytest.raises(MalformedDocument, match="must have the schema blendstream/estimates/2"):
            EstimatesDocument.from_bytes(json.dumps(body | {"schema": other}).encode())


def test_an_empty_publication_is_valid_and_says_why():
    """Readers must be able to tell nothing from nothing yet."""
    document = empty_estimates(epoch_state(), [IncompleteReason.TOO_FEW_OPTIN_USERS], 3, 1, None)
    data = document.to_bytes()

    Draft202012Validator(exact_schema("estimates")).validate(json.loads(data))
    assert EstimatesDocument.from_bytes(data).reasons == ("too_few_optin_users",)


def test_a_click_graph_is_valid_by_its_schema_and_ordered_by_its_noisy_counts():
    """Readers have nothing but the schema."""
    body = json.loads(graph().to_bytes())

    Draft202012Validator(exact_schema("click-graph")).validate(body)
    assert [q["query"] for q in body["queries"]] == ["a", "b"]
    assert [c["url"] for c in body["queries"][1]["clicks"]] == ["https://y/", "https://x/"]


def test_the_click_graph_never_costs_more_than_it_is_charged():
    """The mechanism states its own cost; the ledger charged the settings'."""
    for epsilon in (0.5, 1.0, 2.0, 5.0):
        graph = ClickGraphPlan(epsilon, 1e-6, 2, 3)
        state = epoch_state(graph_share_ppm=100_000, click_graph=graph)
        found = mechanism_parameters(state)
        assert found.epsilon <= epsilon * (1 + 1e-9)
        assert found.delta <= 1e-6
        assert state.parameters.charge.optin.epsilon == max(4.0, 2 * epsilon)


def test_every_document_says_in_one_sentence_what_its_numbers_are_of():
    """A share of people and a share of searches are two numbers, and nothing else tells which."""
    said = [
        *(
            json.loads(published(profile, 50).to_bytes())["quantity"]
            for profile in ("sharp", "paper")
        ),
        json.loads(empty_estimates(epoch_state(), [], 3, 1, None).to_bytes())["quantity"],
        head_list_quantity(1),
        head_list_quantity(3),
        click_graph_quantity(1),
        click_graph_quantity(3),
    ]

    for sentence in said:
        assert sentence.count(".") == 1
        assert sentence.endswith(".")
        assert "participating" in sentence
        assert "drawn at random from the window" in sentence
        assert "without a record take part" in sentence
    assert len(set(said)) == 5
    assert "people whose one record" in said[0]


def test_the_statement_names_the_neighbouring_relation_and_what_is_not_hidden():
    """An epsilon without it means nothing; and nobody should have to know what e^4 is."""
    text = privacy_statement(
        optin=(4.0, 1e-5), clients=(2.0, 0.0), cohorts=3, records_per_user=1, answers=2
    )

    for words in (
        "with one record each, or said that they had none", "randomised 2 answers by itself",
        "one epoch out of 3", "records been different, or none at all",
        "a factor of at most about 55, give or take a chance of 1 in 100 000; had one device's",
        "different, by a factor of at most about 7.4.", "Not hidden", "replace-one",
        "epsilon 4 and delta 1e-05 for opt-in users, epsilon 2 and delta 0 for devices",
        "one opt-in account's records",
        "someone with two, or who moves from one group to the other, counts as two people here",
    ):  # fmt: skip
        assert words in text


def test_the_statement_promises_what_was_charged():
    """With a click graph somebody may have paid more than the estimates cost."""
    graph = ClickGraphPlan(5.0, 1e-6, queries_per_user=1, clicks_per_user=1)
    state = epoch_state(graph_share_ppm=100_000, click_graph=graph)

    privacy = empty_estimates(state, [IncompleteReason.TOO_FEW_OPTIN_USERS], 3, 4, None).privacy

    assert privacy["optin"]["epsilon"] == 10.0
    assert "epsilon 10 and delta 0.000149" in privacy["statement"]
    assert "a factor of at most about 23 000, give or take" in privacy["statement"]
    assert "for a click graph" in privacy["statement"]


def test_a_click_graphs_statement_has_both_neighbouring_relations():
    """It is proved for one and charged for the other."""
    text = click_graph_statement(
        released=(30.0, 0.0), charged=(0.5, 0.3), queries_per_user=1, clicks_per_user=2
    )

    for words in (
        "One query and up to 2 clicks", "at most about 1 followed by 14 zeros;",
        "at most about 1.7, give or take a chance of 1 in 3.", "adding or removing", "replace-one",
    ):  # fmt: skip
        assert words in text


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_is_a_valid_schema(name: str):
    """And is packaged with the code."""
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("name", ["estimates", "click-graph"])
def test_readers_allow_keys_that_a_later_release_may_add(name: str):
    """The API tells readers to ignore them; who validates by the schema must not refuse them."""

    def refusals(part: object) -> int:
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        own = isinstance(part, dict) and part.get("additionalProperties") is False
        return own + sum(refusals(one) for one in parts)

    assert refusals(schema(name)) == 0
    assert refusals(exact_schema(name)) > 5
    assert refusals(schema("head-list")) > 1, "whose bytes are hashed"


def test_a_number_that_does_not_exist_is_null_and_never_zero():
    """Infinite variance is not a variance."""
    assert EstimatedShare.of(0.5, float("inf"), float("nan"), 1.0) == EstimatedShare(
        0.5, None, None, 1.0
    )


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"schema":"other"}', b"[" * 9999])
def test_bytes_that_are_no_publication_are_refused_in_one_sentence(data: bytes):
    """Whoever reads them may be handed anything."""
    with pytest.raises(MalformedDocument):
        EstimatesDocument.from_bytes(data)


@settings(max_examples=20)
@given(st.binary(max_size=200), st.integers(0, 3))
def test_documents_of_any_size_come_back_whole(seed: bytes, parts: int):
    """Compressed or not, one part or many."""
    data = np.random.default_rng(len(seed)).bytes(parts * PART_BYTES) + seed
    stored = split("x", data)
    reference = DocumentReference("x", stored.id, stored.size, len(stored.parts), 0, 9)

    assert join(reference, stored.parts) == data
    if stored.parts:
        with pytest.raises(StoreMismatch):
            join(reference, stored.parts[:-1])
    other = split("x", data + b"?")
    if len(other.parts) == reference.parts:
        with pytest.raises(StoreMismatch):
            join(reference, other.parts)


IN_PERIODS = {"period_epochs": 30, "known_records": 1000, "optin_cohorts": 1, "cohorts": 30}


def test_a_publication_within_a_budget_period_says_what_the_period_promises():
    """The epoch alone costs an opt-in user nothing more: to print that would promise everything."""
    state = epoch_state(**IN_PERIODS)
    document = empty_estimates(state, [IncompleteReason.TOO_FEW_OPTIN_USERS], 3, 4, None)
    body = json.loads(document.to_bytes())

    Draft202012Validator(exact_schema("estimates")).validate(body)
    assert EstimatesDocument.from_bytes(document.to_bytes()) == document
    assert body["privacy"]["optin"] == {"epsilon": 4.0, "delta": 1e-5, "epochs": 30}
    for words in (
        "in any or all of the 30 epochs of this budget period",
        "epsilon 4 and delta 1e-05 for opt-in users and all 30 epochs together",
        "An account can take part in every epoch, a device in one epoch out of 30",
    ):
        assert words in body["privacy"]["statement"]
    period = body["parameters"]["period"]
    assert (period["id"], period["index"], period["epochs"]) == (0, 0, 30)
    assert period["scale"] == pytest.approx(8.48, abs=0.05)


def test_in_a_budget_period_the_people_of_click_graphs_are_promised_what_graphs_say():
    """They pay for every graph of the period, which the figure of S and T does not cover."""
    graph = ClickGraphPlan(5.0, 1e-6, queries_per_user=1, clicks_per_user=1)
    state = epoch_state(**IN_PERIODS, graph_share_ppm=100_000, click_graph=graph)
    privacy = empty_estimates(state, [IncompleteReason.TOO_FEW_OPTIN_USERS], 3, 4, None).privacy

    assert privacy["optin"]["epsilon"] == 4.0
    assert "each graph says what it costs them" in privacy["statement"]
    assert "holds for them too" not in privacy["statement"]


def test_an_opt_in_release_of_a_period_is_read_back_as_it_was():
    from blendstream.blender.over_time.epoch_memory import EpochMemory
    from blendstream.blender.over_time.publication_filter import RecordFilter

    state = epoch_state(**IN_PERIODS)
    assert state.parameters.period is not None
    of_epoch = EpochMemory(0, RecordFilter.start(), 12, state.parameters.period.rule)
    release = build_head_list(
        "sharp", counts(np.random.default_rng(2)), state.parameters.plan.privacy,
        RepeatableNoise(3), (), of_epoch,
    )  # fmt: skip
    again = read_optin_release(write_optin_release(release), release.head_list)

    assert again.noisy.gaussian
    assert again.forgotten == release.forgotten != ()
    assert again.optin.cells.probability.tolist() == release.optin.cells.probability.tolist()


def test_a_publication_says_what_its_readers_learn_of_one_device():
    """Less than the report promises, and against fewer: both are said."""
    document = published("sharp", 50_000)
    readers = json.loads(document.to_bytes())["privacy"]["readers"]

    assert readers["epsilon"] < 1.0 < document.privacy["clients"]["epsilon"]
    assert readers["honest_reports"] == 25_000
    for words in (
        "Who sees nothing but publications learns less", "at least 25,000 of the reports",
        "does not hold against this service", "1 in 100 000",
    ):  # fmt: skip
        assert words in readers["statement"]


def test_readers_never_learn_more_than_the_report_tells():
    """Among few others nothing hides a report; it is still as private as it was made."""
    document = published("sharp", 30)
    readers = document.privacy["readers"]

    assert 3.9 < readers["epsilon"] <= 4.0
    assert readers["period_epsilon"] <= readers["epochs"] * 4.0


def test_where_no_reports_are_published_there_is_nothing_to_learn_of_a_device():
    assert "readers" not in published("sharp", 0).privacy


def test_a_long_period_of_short_epochs_does_not_hold_a_publication_up():
    """Windows of seven seconds in a period of a hundred days are 1.2 million epochs: adding up as
    many losses took more than five minutes."""
    from blendstream.agents.jobs.readers_guarantee import MAX_EPOCHS, readers_guarantee

    state = epoch_state()
    long = replace(state.parameters.charge, period_end_s=state.parameters.charge.period_start_s
                   + 10**8)  # fmt: skip
    release = build_head_list("sharp", counts(np.random.default_rng(2)),
                              state.parameters.plan.privacy, RepeatableNoise(3))  # fmt: skip
    found = readers_guarantee(replace(state.parameters, charge=long), release.head_list, 1_500)

    assert found is not None
    assert found.epochs == MAX_EPOCHS


def test_where_a_report_spends_delta_several_do_not_add_up_to_epsilon_alone(monkeypatch):
    """In `paper` a client's report has (ε, δ). Over epochs T·ε would need T·δ, and one δ is stated:
    T·ε must not be said, even where the other bound is larger."""
    from blendstream.agents.jobs.readers_guarantee import readers_guarantee

    large = 1e6
    monkeypatch.setattr(
        "blendstream.agents.jobs.readers_guarantee.readers_epsilon", lambda *_: large
    )
    state = epoch_state(profile="paper")
    parameters = state.parameters
    spends = parameters.charge.clients
    assert spends.delta > 0
    release = build_head_list("paper", counts(np.random.default_rng(2)),
                              parameters.plan.privacy, RepeatableNoise(3))  # fmt: skip
    found = readers_guarantee(parameters, release.head_list, 2)
    free = replace(parameters.charge, clients=replace(spends, delta=0.0))
    pure = readers_guarantee(replace(parameters, charge=free), release.head_list, 2)

    assert found is not None
    assert pure is not None
    assert found.epochs == pure.epochs > 1
    assert (found.epsilon, found.period_epsilon) == (spends.epsilon, large)
    assert (pure.epsilon, pure.period_epsilon) == (spends.epsilon, pure.epochs * spends.epsilon)


def test_over_a_period_the_epochs_in_which_a_device_reports_compose():
    from blendstream.agents.jobs.readers_guarantee import readers_guarantee

    rng = np.random.default_rng(2)
    every, turns = epoch_state(), epoch_state(cohorts=10)
    release = build_head_list(
        "sharp", counts(rng), every.parameters.plan.privacy, RepeatableNoise(3)
    )
    one = readers_guarantee(every.parameters, release.head_list, 50_000)
    other = readers_guarantee(turns.parameters, release.head_list, 50_000)
    in_period = readers_guarantee(epoch_state(**IN_PERIODS).parameters, release.head_list, 50_000)

    assert one is not None
    assert other is not None
    assert in_period is not None
    assert (one.epochs, other.epochs) == (366, 144), "of 1440 minutes in a day, and of every tenth"
    assert one.epsilon == other.epsilon
    assert one.period_epsilon > other.period_epsilon > other.epsilon
    assert (in_period.epochs, in_period.period_epsilon) == (1, in_period.epsilon)
