"""What rests in Redis: the windowed counts, with their keys and scripts."""

__all__ = [
    "batch_verdict",
    "count_store",
    "fingerprints",
    "record_rows",
    "redis",
    "redis_files",
    "stale_epochs",
]
