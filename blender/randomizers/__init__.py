"""Randomizers over whole records: what a device does, and beside it how the server undoes it."""

__all__ = [
    "subset_estimates",
    "subset_or_none",
    "subset_or_none_estimates",
    "subset_selection",
    "whole_records",
]
