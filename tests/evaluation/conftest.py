"""What every test of docs/evaluation.md looks into: its CSV files, and its text."""

from __future__ import annotations

import re

import pytest

from blendstream.evaluation.summary import Mean, Summary
from tests.evaluation.page import PAGE, At, Says


@pytest.fixture(scope="module")
def summary() -> Summary:
    return Summary.read(PAGE.parent / "evaluation")


@pytest.fixture(scope="module")
def at(summary: Summary) -> At:
    def found(experiment: str, population: str, metric: str, series: str, x: float) -> Mean:
        mean = summary.at(experiment, population, metric, series, x)
        assert mean is not None, (experiment, population, metric, series, x)
        return mean

    return found


@pytest.fixture(scope="module")
def says() -> Says:
    page = re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))

    def look(sentence: str) -> None:
        assert sentence in page, f"docs/evaluation.md should say: {sentence}"

    return look
