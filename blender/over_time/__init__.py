"""Mechanisms over many epochs: one budget per period, and a filter over all publications."""

__all__ = [
    "epoch_memory",
    "filter",
    "groups_over_time",
    "known_records",
    "period_budget",
    "publication_filter",
    "shuffled_reports",
]
