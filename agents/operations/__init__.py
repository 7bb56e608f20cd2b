"""Checks and repairs for operators' subcommands: installation, fencing, release log, budget."""

__all__ = ["aborted_entries", "budget_words", "edge_checks", "installation_checks", "server_wait"]
