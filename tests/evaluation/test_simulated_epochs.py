"""What the evaluation leaves out of an epoch to be quick changes no estimate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blendstream.evaluation.populations import SETTING_A
from blendstream.evaluation.simulated_epochs import draw_optin, parameters_of, run_epoch


@pytest.mark.parametrize("profile", ["paper", "sharp"])
def test_an_epoch_without_intervals_has_the_same_estimates(profile: str) -> None:
    """Exact intervals of `paper` take nine tenths of the time, and only coverage asks for them."""
    setting = replace(SETTING_A, users=60_000, optin_share=0.2)
    epochs = []
    for intervals in (True, False):
        rng = np.random.default_rng(5)
        optin = draw_optin(setting, rng)
        epochs.append(
            run_epoch(profile, setting, optin, parameters_of(setting), rng, intervals=intervals)
        )
    exact, quick = (epoch.estimates for epoch in epochs)

    assert epochs[0].release.head_list == epochs[1].release.head_list
    for group in ("optin", "client", "blended"):
        for part in ("cells", "query_totals", "query_marginals"):
            one, other = (getattr(getattr(e, group), part) for e in (exact, quick))
            if one is not None:
                assert np.array_equal(one.probability, other.probability)
                assert np.array_equal(one.variance, other.variance)
    assert np.array_equal(exact.blended.cells.low, quick.blended.cells.low)
