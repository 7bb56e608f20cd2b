"""The randomizers' code, run many times, behaves as the channel that was proved private.

Passing proves no privacy: tests/blender/randomizers/test_channel_privacy.py does that, for the
channel. Here the bytes that code puts out are compared with it, on at most 30 shapes for each
randomizer, true cells in equal numbers, by two χ² tests: over all pairs of true cell and answer
(what is expected fewer than ten times is pooled), and over the different probabilities that the
channel has, which are a few. Whatever makes the likely answers likelier shows in the second.

`ANSWERS` is what the second needs to tell a device whose ε is 10 % too large: by the noncentral χ²
distribution the most that any shape needs for a power of 0.999 at these odds of a false alarm is 65
000 at ε = 1, 28 000 at ε = 2 and 45 000 at ε = 4. So the same test, at the same sizes, shapes and
ε, is run on such a device and must fail. Reports of two answers (m_C = 2) about two different
records are held against the product of the channel with itself, on three shapes of up to 6 cells,
24 000 reports each. False alarms: once in a million runs of the whole suite (tests/chi_square.py);
seeds are fixed.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from blendstream.blender import RANDOMIZERS, Record, SystemRandomSource, local_alg
from tests.channels import (
    UNLISTED_URL,
    ExactChannel,
    all_answers,
    build,
    channel_fractions,
    holder,
    shapes,
)
from tests.chi_square import agrees
from tests.doubles import SeededDice

pytestmark = pytest.mark.statistical

#: By ε.
ANSWERS = {1.0: 72_000, 2.0: 36_000, 4.0: 54_000}

#: Of two answers each: some 800 for every pair of records in the largest shape, where a common
#: pair of answers is expected a hundred times and more.
REPORTS_OF_TWO = 24_000

UNLISTED = Record("unlisted query", UNLISTED_URL)


def cases(name):
    """Up to 30 of the shapes that were enumerated, evenly from the smallest to the largest."""
    every = [shape for shape in shapes(name, max_cells=12) if shape]
    chosen = [every[i] for i in np.unique(np.linspace(0, len(every) - 1, 30).astype(int))]
    return [(i, shape, (1.0, 2.0, 4.0)[i % 3]) for i, shape in enumerate(chosen)]


def as_bytes(answer) -> bytes:
    return np.asarray(answer, dtype="<u2").tobytes()


class Expected:
    """How often each (true cell, bytes) should be seen, and each probability of the channel."""

    def __init__(self, randomizer, answers):
        self.per_cell = answers // len(randomizer.cells)
        sent = [as_bytes(answer) for answer in all_answers(randomizer)]
        self.probability = {
            (cell, text): p
            for cell, row in enumerate(channel_fractions(randomizer))
            for text, p in zip(sent, row, strict=True)
        }
        self.outcomes = {o: self.per_cell * float(p) for o, p in self.probability.items()}

    def by_probability(self, numbers):
        totals = Counter()
        for outcome, number in numbers.items():
            totals[self.probability[outcome]] += number
        return totals

    def agree(self, seen):
        return agrees(seen, self.outcomes) and self.spends(seen)

    def spends(self, seen):
        """Likely answers are as frequent as they should be: ε is what it is said to be."""
        return agrees(self.by_probability(seen), self.by_probability(self.outcomes))


def device_bytes(randomizer, per_cell, dice):
    seen = Counter()
    for cell in range(len(randomizer.cells)):
        held = [holder(randomizer.cells, cell)]
        answers = Counter(local_alg(held, randomizer, dice) for _ in range(per_cell))
        for (answer,), number in answers.items():
            seen[cell, as_bytes(answer)] += number
    return seen


def batch_bytes(randomizer, per_cell, rng):
    size = len(randomizer.cells)
    true = np.repeat(np.arange(size), per_cell)
    answers = randomizer.answer_batch(true, rng)
    assert answers.shape == (len(true), randomizer.cells_per_answer)
    code = true.copy()
    for column in answers.T:
        code = code * size + column
    _, first, counts = np.unique(code, return_index=True, return_counts=True)
    return {
        (int(true[i]), as_bytes(answers[i])): int(n) for i, n in zip(first, counts, strict=True)
    }


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_the_devices_code_follows_the_channel(name):
    for i, shape, epsilon in cases(name):
        randomizer = build(name, shape, epsilon=epsilon, delta=1e-3)
        expected = Expected(randomizer, ANSWERS[epsilon])
        seen = device_bytes(randomizer, expected.per_cell, SeededDice(i))
        assert expected.agree(seen), (shape, epsilon)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_the_batch_form_follows_the_same_channel(name):
    for i, shape, epsilon in cases(name):
        randomizer = build(name, shape, epsilon=epsilon, delta=1e-3)
        expected = Expected(randomizer, 4 * ANSWERS[epsilon])
        seen = batch_bytes(randomizer, expected.per_cell, np.random.default_rng(i))
        assert expected.agree(seen), (shape, epsilon)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_the_operating_systems_dice_follow_the_channel_too(name):
    """Not seeded: this one may fail by chance, once in a thousand million runs."""
    randomizer = build(name, (2, 1), epsilon=2.0)
    expected = Expected(randomizer, ANSWERS[2.0])
    assert expected.agree(device_bytes(randomizer, expected.per_cell, SystemRandomSource()))


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_a_device_that_spends_a_tenth_too_much_is_caught(name):
    """Deliberately broken: ε is 10 % too large. The tests above must not pass for it, on any of
    their shapes, with as many answers as they take.
    """
    for i, shape, epsilon in cases(name):
        honest = build(name, shape, epsilon=epsilon, delta=1e-3)
        broken = build(name, shape, epsilon=1.1 * epsilon, delta=1e-3)
        if honest.cells_per_answer != broken.cells_per_answer:
            continue  # answers of another length are refused without statistics
        expected = Expected(honest, ANSWERS[epsilon])
        seen = device_bytes(broken, expected.per_cell, SeededDice(1000 + i))
        assert not expected.spends(seen), (shape, epsilon)

        expected = Expected(honest, 4 * ANSWERS[epsilon])
        seen = batch_bytes(broken, expected.per_cell, np.random.default_rng(1000 + i))
        assert not expected.spends(seen), (shape, epsilon)


def two_answers_follow_the_channel(name, shape, seed, report):
    """Whether reports about two different records do, all pairs of them in equal numbers."""
    randomizer = build(name, shape, epsilon=2.0, delta=1e-3, answers=2)
    size, twice = len(randomizer.cells), ExactChannel.of(randomizer).twice()
    sent = [as_bytes(pair) for pair in itertools.product(all_answers(randomizer), repeat=2)]
    pairs = list(itertools.permutations(range(size), 2))
    each, dice = REPORTS_OF_TWO // len(pairs), SeededDice(seed)
    seen, expected = Counter(), {}
    for pair in pairs:
        row = twice.rows[pair[0] * size + pair[1]]
        for text, p in zip(sent, row, strict=True):
            expected[pair, text] = each * float(p / twice.denominator)
        held = [holder(randomizer.cells, cell) or UNLISTED for cell in pair]
        for answers, number in Counter(report(held, randomizer, dice) for _ in range(each)).items():
            seen[pair, as_bytes(answers)] += number
    return agrees(seen, expected)


def small_cases(name):
    every = [shape for shape in shapes(name, max_cells=6) if shape]
    return enumerate([every[0], every[len(every) // 2], every[-1]])


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_two_answers_of_a_device_are_randomised_each_on_its_own(name):
    for i, shape in small_cases(name):
        assert two_answers_follow_the_channel(name, shape, i, local_alg), shape


def first_record_twice(records, randomizer, dice):
    return (randomizer.answer(randomizer.cells.number(records[0]), dice),) * 2


def same_throws_twice(records, randomizer, dice):
    seed = dice.below(2**32)
    numbers = [randomizer.cells.number(record) for record in records]
    return tuple(randomizer.answer(number, SeededDice(seed)) for number in numbers)


@pytest.mark.parametrize("broken", [first_record_twice, same_throws_twice])
@pytest.mark.parametrize("name", RANDOMIZERS)
def test_a_device_that_throws_its_dice_once_for_two_answers_is_caught(name, broken):
    """Deliberately broken: two answers from one throw, of one record or of both."""
    shape = [shape for shape in shapes(name, max_cells=6) if shape][-1]
    assert not two_answers_follow_the_channel(name, shape, 1, broken)
