"""Queries and URLs in CSV files: nothing that a spreadsheet runs, and nothing lost for readers."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blendstream.agents.gateway.read.estimates_csv import csv_table, text_cell
from tests.browser.publications import publications

FORMULAS = ('=HYPERLINK("https://x.example/","see")', "+1", "-2+3", "@sum(a1)", "\t=1", "\r=1")


@given(st.text(alphabet=[*"=+-@'\t\r\"a, "], min_size=1))
def test_readers_get_back_the_text_that_was_published(text):
    """Also text that begins with apostrophes of its own."""
    cell = text_cell(text)

    assert cell is not None
    assert cell[0] not in "=+-@\t\r"
    assert cell.removeprefix("'") == text


@pytest.mark.parametrize("table", ["records", "queries"])
def test_no_query_or_url_of_a_table_is_run_by_a_spreadsheet(table):
    """Who downloads results opens them by a double click; a stranger wrote the queries."""
    document = publications()[0]
    records = [
        replace(row, query=text, url=text)
        for row, text in zip(document.records, FORMULAS, strict=False)
    ]
    queries = [
        replace(row, query=text) for row, text in zip(document.queries, FORMULAS, strict=False)
    ]
    body = replace(document, records=tuple(records), queries=tuple(queries)).to_bytes()

    rows = list(csv.DictReader(io.StringIO(csv_table(body, table).decode(), newline="")))

    assert {row["query"] for row in rows} == {f"'{text}" for text in FORMULAS}
    assert all(row.get("url", "'").startswith("'") for row in rows)
    assert all(float(row["blend_low"]) >= 0 for row in rows), "numbers stay numbers"
