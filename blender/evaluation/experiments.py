"""Every experiment of the evaluation, in the order of docs/evaluation.md."""

from __future__ import annotations

from blender.evaluation.over_time_experiments import OVER_TIME_EXPERIMENTS
from blender.evaluation.own_experiments import OWN_EXPERIMENTS
from blender.evaluation.paper_experiments import PAPER_EXPERIMENTS

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (*PAPER_EXPERIMENTS, *OWN_EXPERIMENTS, *OVER_TIME_EXPERIMENTS)
