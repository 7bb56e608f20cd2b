"""What docs/evaluation.md says of other methods is what the CSV files of these experiments say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from blendstream.evaluation.baseline_series import (
    ALONE,
    GIVEN,
    LDP_MINER,
    LDP_MINER_PADDED,
    LDP_MINER_QUERIES,
    NOTHING,
    PEM,
)
from blendstream.evaluation.baselines.baseline_experiments import FEWER_SHARES
from blendstream.evaluation.certainty import surely_less
from blendstream.evaluation.populations import AOL, SETTING_A, SETTING_B, YANDEX
from tests.evaluation.page import EVERYWHERE, TABLES, At, Says, span

POPULATIONS = ("aol", "yandex", "setting-a", "setting-b", *TABLES)
LIST_SIZE = {s.name: s.list_size for s in (AOL, YANDEX, SETTING_A, SETTING_B)} | dict.fromkeys(
    TABLES, AOL.list_size
)
EPSILONS = (1.0, 2.0, 3.0, 4.0, 5.0)

#: The page's rows: what is said of a method, its series, and the share who opt in.
ROWS = (
    ("nothing published", NOTHING, 0.0),
    ("nobody: LDPMiner", LDP_MINER, 0.0),
    ("nobody: discovered (PEM)", PEM, 0.0),
    ("nobody: candidates given", GIVEN, 0.0),
    *(
        (f"{share * 100:g} %: {name}", series, share)
        for share in (0.01, 0.025, 0.05, 0.25, 1.0)
        for name, series in (("`paper`", "paper"), ("`sharp`", "sharp"), ("these alone", ALONE))
    ),
)


def error(at: At, series: str, share: float, population: str) -> float:
    return at("baselines", population, "top_l1", series, share).mean


def ratios(at: At, series: str, other: str, share: float) -> list[float]:
    """One method's error over another's, in each population."""
    return [error(at, series, share, p) / error(at, other, share, p) for p in POPULATIONS]


def first_ahead(at: At, of: str, population: str) -> str:
    """The least share at which `sharp` has less error than a method that nobody need trust."""
    wanted = error(at, of, 0.0, population)
    ahead = (x for x in FEWER_SHARES if error(at, "sharp", x, population) < wanted)
    return f"{next(ahead) * 100:g} %"


@pytest.mark.parametrize(("metric", "form"), [("top_l1", ".4f"), ("ndcg", ".3f")])
def test_error_and_ndcg_of_every_method(at: At, says: Says, metric: str, form: str) -> None:
    """One number for each method, share and population."""
    for name, series, x in ROWS:
        means = (at("baselines", p, metric, series, x).mean for p in POPULATIONS)
        says(f"| {name} | {' | '.join(f'{mean:{form}}' for mean in means)} |")


def test_how_many_of_the_top_are_discovered_without_trust(at: At, says: Says) -> None:
    for name, series in (("PEM", PEM), ("LDPMiner", LDP_MINER)):
        found = (at("baselines", p, "found", series, 0.0).mean for p in POPULATIONS)
        of = (f"{n:.0f} of {LIST_SIZE[p]}" for n, p in zip(found, POPULATIONS, strict=True))
        says(f"| found by {name} | {' | '.join(of)} |")


def test_the_answer_in_short(at: At, says: Says) -> None:
    of = {s: error(at, s, 0.05, "aol") for s in ("sharp", "paper", ALONE)}
    local = {s: error(at, s, 0.0, "aol") for s in (GIVEN, PEM)}

    says(
        f"with 5 % of the AOL-shaped people opting in, {of['sharp']:.4f} (`sharp`), "
        f"{of[ALONE]:.4f} (a curator who uses these opt-in users alone) and {of['paper']:.4f} "
        f"(`paper`); with nobody, {local[GIVEN]:.4f} if devices are told the true top 50 and "
        f"{local[PEM]:.4f} if they have to discover them; with everybody, "
        f"{error(at, ALONE, 1.0, 'aol'):.4f}"
    )


def test_what_clients_add_to_the_opt_in_users(at: At, says: Says) -> None:
    one, five, quarter, half, everyone = (
        ratios(at, "sharp", ALONE, x) for x in (0.01, 0.05, 0.25, 0.5, 1.0)
    )

    assert max(one) < 1
    assert max(five) < 1
    says(
        f"`sharp` leaves {span(one, '.2f')} of the error of the opt-in users alone where 1 % opt "
        f"in and {span(five, '.2f')} at 5 %. It is {span(quarter, '.2f')} times theirs at 25 %, "
        f"{span(half, '.2f')} at 50 % and {span(everyone, '.2f')} at 100 %"
    )


def test_where_clients_make_the_estimate_worse(at: At, says: Says) -> None:
    """At 75 % `sharp` is surely behind its own opt-in users, and at 100 %, without clients, not."""
    measured = ("aol", "setting-a")
    for population in measured:
        alone, blend = (
            at("baselines", population, "top_l1", series, 0.75) for series in (ALONE, "sharp")
        )
        assert surely_less(alone, blend), population
    times = (error(at, "sharp", 0.75, p) / error(at, ALONE, 0.75, p) for p in measured)
    says(
        f"Between the two, at 75 % (two populations), it is {span(times, '.1f')} times theirs: "
        "there asking the clients does harm"
    )


def test_clients_hardly_change_the_order(at: At, says: Says) -> None:
    apart = max(
        abs(at("baselines", p, "ndcg", "sharp", x).mean - at("baselines", p, "ndcg", ALONE, x).mean)
        for p in POPULATIONS
        for x in FEWER_SHARES
        if x >= 0.01
    )
    says(f"NDCG of both is alike from 1 % on (at most {apart:.2f} apart)")


def test_what_the_printed_algorithm_leaves_beside_its_own_opt_in_users(at: At, says: Says) -> None:
    """`paper` is worse than a simple histogram of its opt-in users; the page must say so."""
    five, everyone = (ratios(at, "paper", ALONE, x) for x in (0.05, 1.0))

    assert min(five) > 1
    says(
        f"`paper` leaves {span(five, '.1f')} times the error of the same opt-in users alone at "
        f"5 %, and {span(everyone, '.1f')} times at 100 %"
    )


def test_from_which_share_on_trust_beats_devices_alone(at: At, says: Says) -> None:
    given, pem = ([first_ahead(at, of, p) for p in POPULATIONS] for of in (GIVEN, PEM))

    shares = sorted(float(text.split()[0]) for text in pem)
    says(f"`sharp` has less error from {shares[0]:g} to {shares[-1]:g} % opt-in on")
    says(f"| `sharp` ahead of PEM from | {' | '.join(pem)} |")
    says(f"| `sharp` ahead of given candidates from | {' | '.join(given)} |")


def ten(at: At, population: str, metric: str, series: str) -> list[float]:
    return [at("baselines_list_of_ten", population, metric, series, x).mean for x in EPSILONS]


TEN_ROWS = (
    ("`paper`", "paper"),
    ("`sharp`", "sharp"),
    ("local, candidates given", GIVEN),
    ("local, discovered (PEM)", PEM),
    ("LDPMiner", LDP_MINER),
    ("LDPMiner, queries", LDP_MINER_QUERIES),
    ("LDPMiner, padded", LDP_MINER_PADDED),
)


def shown(values: Sequence[float]) -> str:
    return " | ".join(f"{value:.2f}" for value in values)


def test_figure_12_with_the_local_methods(at: At, says: Says) -> None:
    """NDCG of ten on the AOL-shaped population for ε = 1 to 5, then at ε = 4 everywhere."""
    for name, series in TEN_ROWS:
        says(f"| {name} | {shown(ten(at, 'aol', 'ndcg', series))} |")
        elsewhere = (ten(at, p, "ndcg", series)[3] for p in EVERYWHERE)
        by_rank = ten(at, "aol", "ndcg_ranks", series)[3]
        says(f"| {name} | {shown([by_rank, *elsewhere])} |")


def test_both_profiles_are_ahead_of_ldp_miner_where_the_paper_compares(at: At) -> None:
    """The paper's claim of Section 4.2.2: on its first data set, at every ε from 1 to 5."""
    for series in (LDP_MINER, LDP_MINER_QUERIES, LDP_MINER_PADDED):
        miner = ten(at, "aol", "ndcg", series)
        for profile in ("paper", "sharp"):
            ours = ten(at, "aol", "ndcg", profile)
            assert all(a > b for a, b in zip(ours, miner, strict=True)), (series, profile)


def test_what_the_page_says_of_the_quoted_thirty_percent(at: At, says: Says) -> None:
    """Better where nothing is padded, worse where it is; and where ten records are common."""
    assert min(ten(at, "aol", "ndcg", LDP_MINER)[2:]) > 0.3 > ten(at, "aol", "ndcg", LDP_MINER)[1]
    assert max(ten(at, "aol", "ndcg", LDP_MINER_PADDED)) < 0.3
    mass = {p: at("list_length", p, "mass", "sharp", 10.0).mean for p in EVERYWHERE}
    common = ("yandex", TABLES[0])
    assert min(ten(at, p, "ndcg", LDP_MINER)[3] for p in common) > 0.97
    says(
        f"where ten records are held by {100 * mass[common[0]]:.0f} and "
        f"{100 * mass[common[1]]:.0f} % of the people (AOL-shaped: {100 * mass['aol']:.0f} %)"
    )
    pem, paper = (ten(at, TABLES[1], "ndcg", series)[3] for series in (PEM, "paper"))
    assert pem > paper
    says(f"On names PEM orders ten better than `paper` ({pem:.2f} against {paper:.2f} at ε = 4)")
