"""The parameters of one epoch's privacy and shape, checked at construction and frozen.

Neighbouring data sets, wherever this project states an ε: two data sets that **differ in the
values of one user's records** (replace-one). That a person takes part is not hidden.

Symbols: ε = epsilon, δ = delta, m_O = records_per_optin_user, m_C = records_per_client,
f_O = selection_share (of the opt-in users, who build the head list), f_C = query_budget_share
(of the device's budget, spent on the query), M = head_list_cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from blendstream.blender.values.errors import require
from blendstream.blender.values.rational import SMALLEST_EXPONENT

__all__ = ["PERIOD_EPOCHS", "SELECTION_SHARES", "PrivacyParameters", "require_signal"]

#: Default f_O of each profile. `sharp` keeps S's counts, so T need not estimate alone; T estimates
#: ⟨⋆,⋆⟩, which S does not, and replaces S's counts where they are another quantity (several records
#: per user).
SELECTION_SHARES: Final[Mapping[str, float]] = {"paper": 0.95, "sharp": 0.9}

#: Default T of each profile: epochs that share one budget (docs/decisions/0030); with daily epochs
#: a month. 0: the paper considers a single epoch.
PERIOD_EPOCHS: Final[Mapping[str, int]] = {"paper": 0, "sharp": 30}


@dataclass(frozen=True, slots=True)
class PrivacyParameters:
    """Privacy and shape of one epoch; the defaults are the paper's "AOL" setting.

    A mechanism checks its own further conditions (those of a theorem), and names the theorem.
    """

    epsilon: float = 4.0
    delta: float = 1e-5
    records_per_optin_user: int = 1
    records_per_client: int = 1
    selection_share: float = SELECTION_SHARES["paper"]
    query_budget_share: float = 0.85
    head_list_cells: int = 50
    max_cells_per_answer: int = 32

    def __post_init__(self) -> None:
        """Refuse numbers that no mechanism here can satisfy."""
        require(
            math.isfinite(self.epsilon) and self.epsilon > 0,
            f"epsilon must be finite and above 0, got epsilon={self.epsilon!r}",
        )
        require(0 < self.delta < 1, f"delta must lie in (0, 1), got delta={self.delta!r}")
        for name in ("records_per_optin_user", "records_per_client", "max_cells_per_answer"):
            value = getattr(self, name)
            require(
                isinstance(value, int) and value >= 1,
                f"{name} must be an integer of at least 1, got {name}={value!r}",
            )
        require_signal(self.epsilon, self.records_per_client, "records_per_client")
        require(
            isinstance(self.head_list_cells, int) and self.head_list_cells >= 0,
            f"head_list_cells must be an integer of at least 0, got {self.head_list_cells!r}",
        )
        require(
            0 < self.selection_share <= 1,
            f"selection_share must lie in (0, 1], got selection_share={self.selection_share!r}",
        )
        require(
            0 < self.query_budget_share < 1,
            "query_budget_share must lie in (0, 1), "
            f"got query_budget_share={self.query_budget_share!r}",
        )


def require_signal(epsilon: float, answers: int, name: str) -> None:
    """Refuse an ε/m_C for which e^(ε/m_C), rounded down by a device, is 1."""
    require(
        Fraction(epsilon) / answers >= SMALLEST_EXPONENT,
        f"epsilon/{name} must be at least 2^-32, or e to that power rounds down to 1 and "
        f"answers carry no signal, got epsilon={epsilon!r}, {name}={answers}",
    )
