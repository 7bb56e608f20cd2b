"""Every experiment of the evaluation, in the order in which docs/evaluation.md tells of them."""

from __future__ import annotations

from agents.evaluation.own_experiments import OWN_EXPERIMENTS
from agents.evaluation.paper_experiments import PAPER_EXPERIMENTS

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (*PAPER_EXPERIMENTS, *OWN_EXPERIMENTS)
