"""What operators' commands check and repair: an installation, its fences, its release log."""

__all__ = ["budget_words", "edge_checks", "installation_checks", "log_unblocking", "server_wait"]
