"""What operators' commands check and repair: an installation, its fences, its release log."""

__all__ = ["aborted_entries", "budget_words", "edge_checks", "installation_checks", "server_wait"]
