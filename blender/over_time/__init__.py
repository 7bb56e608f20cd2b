"""Many epochs together: one budget for a period, and what earlier publications still tell."""

__all__ = [
    "epoch_memory",
    "filter",
    "groups_over_time",
    "known_records",
    "period_budget",
    "publication_filter",
    "shuffled_reports",
]
