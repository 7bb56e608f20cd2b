"""The users of a search log, each with the records that were drawn from the user's clicks.

Promises: the truth is the empirical distribution of the drawn records, one per user; opt-in users
and clients are disjoint random subsets of the users, and together they are all of them.
Symbols: m_O = the slots of `held`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from blendstream.blender.values.arrays import IntArray
from blendstream.blender.values.errors import require
from blendstream.evaluation.distributions import TablePeople
from blendstream.evaluation.search_logs import record_of

__all__ = ["LogPeople"]


class LogPeople(TablePeople):
    """A search log's users: `held[slot, user]` is the number of a user's record in a slot."""

    def __init__(self, texts: Sequence[str], held: IntArray) -> None:
        """Number the records by their order in `texts`, which are sorted and distinct."""
        counts = np.bincount(held[0], minlength=len(texts))
        super().__init__([record_of(text) for text in texts], counts)
        self._texts = texts
        self.held = held

    @classmethod
    def of(cls, drawn: Sequence[Sequence[str | None]]) -> LogPeople:
        """Number the drawn texts; a user without a record for a slot repeats the first one."""
        texts = sorted({text for slot in drawn for text in slot if text is not None})
        # A query has no character below the tab, so texts sort as their records do.
        number = {text: i for i, text in enumerate(texts)}
        first = [number[text] for text in drawn[0] if text is not None]
        held = np.array(
            [
                [
                    own if text is None else number[text]
                    for text, own in zip(slot, first, strict=True)
                ]
                for slot in drawn
            ],
            dtype=np.int64,
        )
        return cls(texts, held)

    @property
    def users(self) -> int:
        """Return the number of users of the log who clicked."""
        return int(self.held.shape[1])

    def draw(self, people: int, rng: np.random.Generator) -> IntArray:
        """Draw the records of `people` different users."""
        require(
            people <= self.users,
            f"a log's people must be at most its {self.users} users, got {people}",
        )
        return np.asarray(self.held[0, rng.permutation(self.users)[:people]], dtype=np.int64)

    def divide(self, optin: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Divide the users at random: the opt-in users' slots, and each client's one record."""
        order = rng.permutation(self.users)
        return self.held[:, order[:optin]], self.held[0, order[optin:]]

    def sample(self, users: int, rng: np.random.Generator) -> LogPeople:
        """Draw a smaller log of `users` random users."""
        held = self.held[:, rng.permutation(self.users)[:users]]
        kept, number = np.unique(held, return_inverse=True)
        return LogPeople([self._texts[i] for i in kept.tolist()], number.reshape(held.shape))

    def digest(self) -> str:
        """Hash the drawn records, so that an evaluation does not resume with different ones."""
        digest = sha256(self.held.tobytes())
        for text in self._texts:
            digest.update(f"{text}\n".encode())
        return digest.hexdigest()[:16]
