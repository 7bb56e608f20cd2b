"""Names that every part of the service shares: the two counted stages, and the opt-in shares."""

from __future__ import annotations

import enum

__all__ = ["InputStream", "OptinSubgroup"]


class InputStream(enum.StrEnum):
    """The two counted stages, each with its topic, agent, tables and metrics."""

    OPTIN_RECORDS = "optin_records"
    CLIENT_REPORTS = "client_reports"


class OptinSubgroup(enum.StrEnum):
    """Which part of the opt-in users a person is in, for one epoch. The parts are disjoint."""

    S = "S"
    T = "T"
    GRAPH = "graph"
