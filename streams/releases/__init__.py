"""The release log: the Kafka topic that decides what was released, and at what ε.

entries        the small entries, one JSON object each
documents      whole documents, compressed and split over the records of one transaction
epoch_state    the state of every epoch and of the ledger, folded from the entries
reader         how every process reads the log
log            how jobs write to it: fence, read, draw, commit, in that order
sealed_counts  the counts that a release is drawn from
"""

__all__ = [
    "blocked",
    "compacted_topics",
    "documents",
    "entries",
    "epoch_state",
    "epoch_view",
    "filtered_estimates",
    "log",
    "log_consumer",
    "optin_release",
    "reader",
    "retention",
    "seal_markers",
    "sealed_counts",
]
