"""What was released, at what ε, once and for good: the release log and what it says.

parameters   what is fixed for an epoch when it opens
entries      the small entries, one JSON object each
documents    whole documents, compressed and split over records of one transaction
log state    the state of every epoch and of the ledger, folded from the entries
log          the topic itself: fence, read to the end, draw, commit, in that order
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
