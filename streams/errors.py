"""Errors of storage and configuration, which extend the tree of `blender.values.errors`.

::

    BlenderError
    ├─ SettingsError (also ValueError)   settings that must not start; lists every problem
    ├─ StoreUnavailable                  Redis or Kafka did not respond; safe to retry
    ├─ StoreMismatch                     stored data is not what we wrote; stop, do not retry
    └─ TopicMismatch                     a topic's partitions, policy or retention are wrong

A message states what must hold, what was found and what to do. It never contains a query, a URL
that someone clicked, a user id or a secret.
"""

from __future__ import annotations

from collections.abc import Sequence

from blendstream.blender.values.errors import BlenderError

__all__ = ["SettingsError", "StoreMismatch", "StoreUnavailable", "TopicMismatch"]


class SettingsError(BlenderError, ValueError):
    """The settings cannot be used. `problems` has one sentence per problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        title = "1 setting must be" if count == 1 else f"{count} settings must be"
        listed = [f"  - {problem}" for problem in self.problems]
        super().__init__("\n".join([f"{title} corrected before anything starts:", *listed]))


class StoreUnavailable(BlenderError):
    """Redis or Kafka did not respond in time. Nothing is lost; the call may be retried."""


class StoreMismatch(BlenderError):
    """The store contains something that we cannot have written. A retry would not help."""


class TopicMismatch(BlenderError):
    """A topic exists with the wrong partition count, clean-up policy or retention."""
