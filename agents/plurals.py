"""Numbers with their nouns, for sentences: 1 broker, 3 brokers."""

from __future__ import annotations

__all__ = ["counted", "noun"]


def counted(number: int, singular: str) -> str:
    """The number and its noun.

    >>> counted(1, "broker"), counted(3, "broker"), counted(0, "thing")
    ('1 broker', '3 brokers', '0 things')
    """
    return f"{number} {noun(number, singular)}"


def noun(number: int, singular: str) -> str:
    """The noun alone, where the number is not said: broker 2, brokers 2, 3."""
    return singular if number == 1 else f"{singular}s"
