"""Windowed counts in Redis, with their keys and scripts."""

__all__ = [
    "batch_verdict",
    "client_reports",
    "count_table",
    "fingerprints",
    "optin_records",
    "record_rows",
    "redis",
    "redis_files",
    "stage_tables",
    "stale_epochs",
]
