"""Published results in a notebook: tidy data frames with dates, intervals and what to read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest

import blendstream
from blendstream.agents.gateway.state.publications import PublishedDocument
from blendstream.blender.values.errors import ParameterError
from blendstream.blender.values.record import normalise
from blendstream.streams.releases.epoch_view import EpochView
from blendstream.streams.wire.estimates_document import (
    EstimatedCell,
    EstimatesDocument,
    PublishedAgreement,
)
from tests.agents.gateway.doubles import TestGateway, make_gateway
from tests.agents.gateway.live import live_gateway
from tests.browser.publications import EPOCHS, FIRST_S, QUERIES, disputed, emptied, publications

ROOT = Path(__file__).parents[2]
#: Queries that pandas takes for missing values or numbers, or spreadsheets for formulas.
ODD = ("null", "na", "007", "1e3", "=1+1", "@sum(a1)", "-5", "'tis", "''quoted''")


def documents() -> list[EstimatesDocument]:
    """Twelve epochs: the newest with odd queries, one empty, one whose groups disagree."""
    made = publications()
    made[4] = emptied(made[4])
    made[5] = replace(made[5], agreement=PublishedAgreement(9.0, 0.001, False, "client"))
    figure = made[-1].records[0].blend
    odd = tuple(
        EstimatedCell(query, f"https://odd.example/{query}", figure, figure, figure, 0.5, 0.1)
        for query in ODD
    )
    made[-1] = replace(made[-1], records=odd + made[-1].records)
    made[6] = disputed(made[6])
    return made


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A gateway that has published them."""

    def make() -> TestGateway:
        gateway = make_gateway()
        for document in documents():
            epoch = document.epoch
            gateway.publications.estimates[epoch] = PublishedDocument(
                epoch, f"{epoch:064x}", document.to_bytes()
            )
            gateway.publications.epochs[epoch] = EpochView(
                epoch, "published", document.window_start_s, document.window_end_s,
                document.window_end_s + 60, 1, 1, outcome=document.outcome,
            )  # fmt: skip
        return gateway

    with live_gateway(make) as live:
        yield f"http://127.0.0.1:{live.port}"


@pytest.fixture
def results(server: str) -> blendstream.Results:
    return blendstream.Results(server)


def test_an_epoch_is_a_row_for_each_record_with_dates_and_intervals(results):
    frame = results.estimates(EPOCHS[0])

    assert list(frame.columns[:10]) == [
        "epoch", "window_start", "window_end", "outcome", "query", "url", "share", "low", "high",
        "variance",
    ]  # fmt: skip
    assert frame["window_start"].iloc[0] == pd.Timestamp(FIRST_S, unit="s", tz="UTC")
    assert frame["share"].is_monotonic_decreasing
    assert (frame["low"] <= frame["share"]).all()
    assert (frame["share"] <= frame["high"]).all()
    assert frame.loc[frame["url"].isna(), "query"].isna().all(), "⋆ is missing, not a text"


def test_queries_that_look_like_numbers_or_nothing_stay_text(results):
    """pandas reads "null" as missing and "007" as 7: a query would vanish from the table."""
    newest = results.estimates()

    assert set(ODD) <= set(newest["query"].dropna())


def test_a_query_has_one_row_an_epoch_and_the_share_that_is_to_be_read(results):
    newest = results.queries()
    disagreeing = results.queries(EPOCHS[5])

    assert sorted(newest["query"]) == sorted(QUERIES)
    assert set(newest["preferred"]) == {"blend"}
    assert set(disagreeing["preferred"]) == {"client"}
    assert (disagreeing["share"] == disagreeing["client_probability"]).all()


def test_a_row_says_whether_it_is_disputed_and_then_has_one_groups_share(results):
    """Who filters or averages must be able to leave these out."""
    for frame in (results.estimates(EPOCHS[6]), results.queries(EPOCHS[6])):
        assert frame["disputed"].dtype == "boolean"
        marked = frame[frame["disputed"]]
        assert list(marked["query"]) == [QUERIES[1]]
        assert (marked["share"] == marked["optin_probability"]).all()
        assert marked["optin_weight"].isna().all()
    assert not results.estimates(EPOCHS[7])["disputed"].any()


def test_a_history_is_the_newest_epochs_in_order_of_time(results):
    whole = results.history(epochs=100)
    few = results.history(QUERIES[0], QUERIES[1], epochs=3)

    assert list(whole["epoch"].unique()) == [e for e in EPOCHS if e != EPOCHS[4]]
    assert whole["window_start"].is_monotonic_increasing
    assert list(few["epoch"].unique()) == list(EPOCHS[-3:])
    assert len(few) == 6
    assert "url" in results.history(epochs=1, table="records").columns


@pytest.mark.parametrize("typed", [" Weather  TOMORROW ", "Οδικός χάρτης", "STRASSE sperrung"])
def test_a_history_is_found_however_its_query_is_typed(results, typed):
    """Queries are published folded: the one asked for had no rows, as if no one searched for it."""
    history = results.history(typed, epochs=3)

    assert len(history) == 3
    assert set(history["query"]) == {normalise(typed, "https://any.example/").query}


def test_a_history_of_no_query_is_refused_before_anything_is_asked():
    with pytest.raises(ParameterError, match="query must not be empty"):
        blendstream.Results("http://127.0.0.1:9").history("  ")


def test_epochs_have_dates_states_and_outcomes(results):
    frame = results.epochs()

    assert list(frame["epoch"]) == list(EPOCHS)
    assert set(frame["state"]) == {"published"}
    assert frame["outcome"].iloc[4] == "empty"
    assert str(frame["window_end"].dtype).endswith("UTC]")


def test_a_plain_read_csv_of_the_address_works(server):
    """No library of ours: what an analyst types first."""
    frame = pd.read_csv(f"{server}/v1/estimates/latest?format=csv&table=queries")

    assert sorted(frame["query"]) == sorted(QUERIES)
    assert frame["share"].between(0, 1).all()


def test_what_cannot_be_read_says_so_in_a_sentence(server):
    with pytest.raises(blendstream.ResultsError, match="nothing is published there, or not yet"):
        blendstream.Results(server).estimates(7)
    with pytest.raises(blendstream.ResultsError, match="is this its address, and does it run"):
        blendstream.Results("http://127.0.0.1:9").estimates()


def test_without_pandas_the_import_says_what_to_install():
    code = "import sys; sys.modules['pandas'] = None; import blendstream; blendstream.Results"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert "pip install 'blendstream[pandas]'" in ended.stderr


def test_the_notebook_runs_from_its_first_cell_to_its_last(server, monkeypatch):
    """As `Run all` does; its plots are drawn and not shown."""
    monkeypatch.setenv("BLENDSTREAM_SERVER", server)
    mpl.use("Agg")
    plt.close("all")
    notebook = json.loads((ROOT / "docs/reading-results.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    names: dict[str, object] = {}

    for cell in cells:
        exec(compile(cell, "reading-results.ipynb", "exec"), names)

    assert len(cells) >= 6
    assert len(plt.get_fignums()) == 3, "a ranking, a history and what changed"
    plt.close("all")
    assert not any(cell.get("outputs") for cell in notebook["cells"])


def test_the_pages_code_and_every_call_in_its_table_run(server):
    """docs/reading-results.md, as it is printed but for the address."""
    page = (ROOT / "docs/reading-results.md").read_text().replace("http://127.0.0.1:8080", server)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for block in blocks:
        exec(compile(block, "reading-results.md", "exec"), names)
    calls = re.findall(r"^\| `(results\.\w+\(.*?\))` \|", page, re.MULTILINE)

    assert len(blocks) == 2
    assert len(calls) >= 5
    for call in calls:
        assert len(eval(call.replace("tea", QUERIES[0]), names)) > 0, call
