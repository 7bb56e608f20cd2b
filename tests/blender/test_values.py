"""Value types refuse what they cannot mean, and the package asks for no more than numpy."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from blendstream import blender
from blendstream.blender import (
    RANDOMIZERS,
    Cell,
    Cells,
    Estimates,
    HeadList,
    HeadListMismatch,
    ParameterError,
    PrivacyParameters,
    RandomizerSpec,
    Record,
    l1_distance,
    ndcg,
    normalise,
)
from blendstream.blender.device_registry import DEVICE_RANDOMIZERS
from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.paper.accuracy import rescale
from blendstream.blender.paper.user_groups import PARTS, partition_users
from blendstream.blender.values.record import (
    MAX_QUERY_BYTES,
    MAX_RAW_QUERY_BYTES,
    NORMALISATION_VERSION,
)

A, B = Record("a", "x"), Record("b", "y")
SPEC = RandomizerSpec("two-stage", 4.0)
ROOT = Path(__file__).parents[2]


def test_the_package_imports_with_numpy_alone():
    """A device has nothing else. dp-accounting and SciPy are for servers, when called.

    Exact noise needs no more either; only OpenDP's samplers need OpenDP, and say so.
    """
    script = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"opendp", "dp_accounting", "scipy", "faust", "redis", "httpx"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
import numpy, pkgutil
from blendstream import blender
for module in pkgutil.walk_packages(blender.__path__, "blendstream.blender."):
    __import__(module.name)
from blendstream.blender import *
cells = Cells((Record("q", "u"),), query_wildcards=True)
randomizer = RANDOMIZERS["two-stage"](cells, RandomizerSpec("two-stage", 4.0))
assert local_alg([Record("q", "u")], randomizer, SystemRandomSource())[0][0] in range(3)
assert len(ExactNoise().discrete_gaussian(numpy.zeros(9, dtype=numpy.int64), scale=2.0)) == 9
from blendstream.blender.noise.opendp_noise import OpenDPNoise
try:
    OpenDPNoise()
except ParameterError as error:
    assert "pip install blendstream[opendp]" in str(error)
else:
    raise AssertionError("OpenDP is blocked")
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_no_module_draws_from_a_generator_of_its_own():
    """Real releases use the operating system's bits; simulations hand their generator in.

    Numpy's generator may be named as a type. Whatever else is taken from it, or from `random`,
    would be a source of its own.
    """
    for path in Path(blender.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = {name.name.split(".")[0] for name in node.names}
                assert not modules & {"random", "tests"}, path.name
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert module.split(".")[0] not in ("random", "tests"), path.name
                assert not module.startswith("numpy.random"), path.name
                assert module != "numpy" or "random" not in {n.name for n in node.names}, path.name
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Attribute)
                and node.value.attr == "random"
            ):
                assert node.attr == "Generator", f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("registry", [RANDOMIZERS, DEVICE_RANDOMIZERS])
def test_mechanisms_are_registered_under_their_own_names(registry):
    for name, mechanism in registry.items():
        assert mechanism.name == name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be finite and above 0, got epsilon=0.0"),
        ({"epsilon": float("nan")}, "epsilon must be finite"),
        (
            {"epsilon": 1e-10},
            r"epsilon/records_per_client must be at least 2\^-32, .*no signal, got epsilon=1e-10",
        ),
        ({"epsilon": 4e-10, "records_per_client": 2}, r"epsilon/records_per_client must be at lea"),
        ({"delta": 0.0}, r"delta must lie in \(0, 1\), got delta=0.0"),
        ({"delta": 1.0}, r"delta must lie in \(0, 1\)"),
        ({"records_per_client": 0}, "records_per_client must be an integer of at least 1"),
        ({"head_list_cells": -1}, "head_list_cells must be an integer of at least 0"),
        ({"selection_share": 0.0}, r"selection_share must lie in \(0, 1\]"),
        ({"query_budget_share": 1.0}, r"query_budget_share must lie in \(0, 1\)"),
    ],
)
def test_parameters_outside_their_range_are_refused(changed, message):
    with pytest.raises(ParameterError, match=message):
        PrivacyParameters(**changed)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_an_epsilon_that_vanishes_in_whole_numbers_is_refused_and_the_next_one_works(name):
    """e^ε rounded down to a multiple of 2^-32 is 1: once that was a division by zero."""
    with pytest.raises(ParameterError, match=r"epsilon/answers must be at least 2\^-32"):
        RandomizerSpec(name, 1e-10)
    with pytest.raises(ParameterError, match=r"got epsilon=4e-10, answers=2"):
        RandomizerSpec(name, 4e-10, answers=2)

    if name != "two-stage":  # which splits it once more, and says so itself
        cells = Cells((A, B), query_wildcards=False)
        randomizer = RANDOMIZERS[name](cells, RandomizerSpec(name, 2.0**-32))
        assert np.isfinite(randomizer.estimate(np.array([2, 1, 1]), 4).cells.variance).all()


@pytest.mark.parametrize("value", [PrivacyParameters(), SPEC, Cells((A,), True)])
def test_values_are_frozen(value):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, None)


def test_cells_are_numbered_records_first_then_queries_then_the_rest():
    cells = Cells((A, B, Record("a", "z")), query_wildcards=True)
    assert [cells.cell(i) for i in range(6)] == [
        Cell("a", "x"), Cell("b", "y"), Cell("a", "z"),
        Cell("a", None), Cell("b", None), Cell(None, None),
    ]  # fmt: skip
    with pytest.raises(HeadListMismatch, match=r"cell must lie in 0\.\.5, got 6"):
        cells.cell(6)


def test_cells_without_query_wildcards_end_with_one_star():
    cells = Cells((A, B), query_wildcards=False)
    assert len(cells) == 3
    assert cells.number(Record("a", "other")) == cells.number(None) == 2


def test_a_head_list_of_the_wrong_shape_is_refused():
    with pytest.raises(ParameterError, match=r"listed must lie in 0\.\.1"):
        HeadList((A,), 2, SPEC, query_wildcards=True)
    with pytest.raises(ParameterError, match="one entry per record"):
        HeadList((A,), 1, SPEC, query_wildcards=True, noisy_counts=(1, 2))
    with pytest.raises(ParameterError, match="twice"):
        HeadList((A, A), 2, SPEC, query_wildcards=True)


def test_estimates_of_different_lengths_are_refused():
    with pytest.raises(ParameterError, match="one shape"):
        Estimates(np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"probability": np.nan}, "probability must be finite"),
        ({"probability": np.inf}, "probability must be finite"),
        ({"variance": -1e-9}, "variance must be at least 0"),
        ({"variance": np.nan}, "variance must be at least 0"),
        ({"low": 0.5}, "0 <= low <= high <= 1"),
        ({"low": -0.1}, "0 <= low <= high <= 1"),
        ({"high": 1.1}, "0 <= low <= high <= 1"),
        ({"high": np.nan}, "0 <= low <= high <= 1"),
    ],
)
def test_estimates_that_mean_nothing_are_refused(changed, message):
    good = {"probability": -0.1, "variance": np.inf, "low": 0.2, "high": 0.4}
    Estimates(**{name: np.full(3, value) for name, value in good.items()})
    with pytest.raises(ParameterError, match=message):
        Estimates(**{n: np.array([good[n], v]) for n, v in (good | changed).items()})


def test_estimates_stay_as_they_were_built():
    estimates = Estimates(*(np.zeros(2) for _ in range(4)))
    with pytest.raises(ValueError, match="read-only"):
        estimates.low[0] = 1


@pytest.mark.parametrize(
    ("query", "url", "record"),
    [
        ("  New   YORK ", " https://x.example/A ", Record("new york", "https://x.example/A")),
        ("STRASSE", "u", Record("strasse", "u")),
        ("Straße", "u", Record("strasse", "u")),
        ("E\u0301cole", "u", Record("école", "u")),
        ("⋆", "⋆", Record("⋆", "⋆")),
    ],
)
def test_text_is_normalised_alike_everywhere(query, url, record):
    assert normalise(query, url) == record
    assert normalise(*record) == record, "normalising twice changes nothing"


VECTORS = json.loads((ROOT / "tests/vectors/frames.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["normalise"])
def test_published_text_is_normalised_as_it_says(vector):
    """Devices in other languages are written against these; the version would have to change."""
    assert VECTORS["normalisation"] == NORMALISATION_VERSION == 2
    text = vector["query"], vector["url"]
    if vector["record"] is None:
        with pytest.raises(ParameterError):
            normalise(*text)
    else:
        assert normalise(*text) == Record(**vector["record"])


@pytest.mark.parametrize(
    ("query", "url", "message"),
    [
        (" \t ", "u", "query must not be empty"),
        ("q", "  ", "url must not be empty"),
        ("q" * 257, "u", "query must be at most 256 bytes of UTF-8, got 257"),
        (
            "q" * 1025,
            "u",
            "query must be at most 1024 bytes of UTF-8 before it is norm.*, got 1025",
        ),
        ("q", "q" * 4097, "url must be at most 4096 bytes of UTF-8 before it is trimmed, got 4097"),
        (" " * 1025, "u", "query must be at most 1024 bytes of UTF-8 before"),
        ("\ud800" * 2000, "u", "query must be valid Unicode"),
        ("q", "\ud800", "url must be valid Unicode"),
        ("q", "a\x00b", "url must not contain control characters"),
    ],
)
def test_text_that_is_no_record_is_refused_without_being_repeated(query, url, message):
    with pytest.raises(ParameterError, match=message) as caught:
        normalise(query, url)
    assert "qqq" not in str(caught.value)


def test_text_that_is_too_long_is_refused_before_it_is_composed():
    """Composing 512 KiB of combining marks takes minutes, on a device as on a gateway."""
    began = time.process_time()
    with pytest.raises(ParameterError, match="query must be at most 1024 bytes"):
        normalise("\u0315\u0300" * (1 << 17), "u")
    assert time.process_time() - began < 1


def test_the_limit_on_raw_text_refuses_no_query_that_fits():
    """However text is typed, decomposed or in capitals, what fits afterwards fits before."""
    for point in range(sys.maxunicode + 1):
        letter = unicodedata.normalize("NFD", chr(point))
        after = unicodedata.normalize("NFC", unicodedata.normalize("NFC", letter).casefold())
        if 0xD800 <= point <= 0xDFFF or not after.split():
            continue
        fit = MAX_QUERY_BYTES // len(after.encode())
        assert max(len(letter.encode()), len(chr(point).encode())) * fit <= MAX_RAW_QUERY_BYTES


def test_opt_in_users_are_parted_by_their_point():
    """Every share gets its part of uniform points; 4 standard errors: one seed in 16,000 fails."""
    points = np.random.default_rng(1).integers(0, 2**64, 100_000, dtype=np.uint64, endpoint=False)
    for shares in ([950_000, 50_000], [1_000_000, 0], [600_000, 300_000, 100_000]):
        found = np.bincount(partition_users(points, shares), minlength=len(shares))
        for got, share in zip(found.tolist(), shares, strict=True):
            f = share / PARTS
            assert abs(got - 100_000 * f) <= 4 * (100_000 * f * (1 - f)) ** 0.5
    with pytest.raises(ParameterError, match="add up to 1000000"):
        partition_users(points, [950_000, 60_000])
    with pytest.raises(ParameterError, match="must not be negative"):
        partition_users(points, [1_100_000, -100_000])


def test_a_share_ends_at_its_millionth():
    """Each of the million points is in the share that the log states: one too many in S is a user
    of T whom both groups' noise would have to cover."""
    points = np.arange(PARTS, dtype=np.uint64)
    for shares in ([950_000, 50_000], [1, 999_999], [1_000_000, 0], [600_000, 300_000, 100_000]):
        groups = partition_users(points, shares)
        assert np.bincount(groups, minlength=len(shares)).tolist() == shares
        assert (np.diff(groups) >= 0).all()
        assert (partition_users(points + np.uint64(7 * PARTS), shares) == groups).all()


def test_exact_noise_refuses_a_scale_that_means_nothing():
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="noise scale must be finite and above 0"):
            ExactNoise().discrete_laplace(np.array([1]), scale=scale)
    assert len(ExactNoise().discrete_gaussian(np.array([], dtype=np.int64), scale=1.0)) == 0


def test_metrics_refuse_what_they_cannot_measure():
    with pytest.raises(ParameterError, match="one shape"):
        l1_distance(np.zeros(2), np.zeros(3))
    with pytest.raises(ParameterError, match="at least one true record"):
        ndcg({A: 1.0}, {})
    with pytest.raises(ParameterError, match="positive sum"):
        rescale(np.array([0.0, 0.0]))


def test_ndcg_at_its_edges():
    assert ndcg({}, {A: 1.0}) == 0
    assert ndcg({B: 1.0}, {A: 1.0}) == 0, "a list of what nobody wants is worth nothing"
    assert ndcg({A: 0.1}, {A: 9.0, B: 1.0}) == 1, "the best list of one"
    assert rescale(np.array([1.0, 3.0])).tolist() == [0.25, 0.75]
