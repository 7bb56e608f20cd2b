"""Format numbers with their nouns, for sentences: 1 broker, 3 brokers."""

from __future__ import annotations

__all__ = ["counted", "noun"]


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return the number and its noun; pass `plural` if it is not the singular with an s.

    >>> counted(1, "broker"), counted(3, "broker"), counted(0, "copy", "copies")
    ('1 broker', '3 brokers', '0 copies')
    """
    return f"{number} {noun(number, singular, plural)}"


def noun(number: int, singular: str, plural: str = "") -> str:
    """Return the noun alone, for sentences without the number: broker 2, brokers 2, 3."""
    return singular if number == 1 else plural or f"{singular}s"
