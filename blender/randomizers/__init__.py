"""Randomizers over whole records: the device's side, and the server's estimators."""

__all__ = [
    "subset_estimates",
    "subset_or_none",
    "subset_or_none_estimates",
    "subset_selection",
    "whole_records",
]
