"""Names that every part of the service shares: the two input streams, and the opt-in subgroups."""

from __future__ import annotations

import enum

__all__ = ["InputStream", "OptinSubgroup"]


class InputStream(enum.StrEnum):
    """The two input streams, each with its topic, agent, tables and metrics."""

    OPTIN_RECORDS = "optin_records"
    CLIENT_REPORTS = "client_reports"


class OptinSubgroup(enum.StrEnum):
    """The subgroups of the opt-in users in one epoch. They are disjoint."""

    S = "S"
    T = "T"
    GRAPH = "graph"
