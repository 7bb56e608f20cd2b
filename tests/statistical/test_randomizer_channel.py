"""The randomizers' code, run many times, behaves as the channel that was proved private.

Passing proves no privacy: tests/blender/test_channel_privacy.py does that, for the channel. Here
the bytes that code puts out are compared with it: on at most 30 shapes for each randomizer, 24 000
answers a shape from the device's code and 240 000 from the batch form, spread over all true cells.
At K ≤ 12 the rarest single answer is then expected about ten times or more; rarer ones are pooled.
False alarms: once in a million runs of the whole suite (tests/chi_square.py); seeds are fixed.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from blender import RANDOMIZERS, SystemDice, local_alg
from tests.channels import all_answers, build, channel_fractions, holder, shapes
from tests.chi_square import FALSE_ALARM, agrees, p_value
from tests.doubles import SeededDice

pytestmark = pytest.mark.statistical

ANSWERS = 24_000
BATCH = 240_000


def chosen_shapes(name):
    """Up to 30 of the shapes that were enumerated, evenly from the smallest to the largest."""
    every = [shape for shape in shapes(name, max_cells=12) if shape]
    return [every[i] for i in np.unique(np.linspace(0, len(every) - 1, 30).astype(int))]


def as_bytes(answer) -> bytes:
    return np.asarray(answer, dtype="<u2").tobytes()


def expected_bytes(randomizer, per_cell):
    """How often each (true cell, bytes) should be seen."""
    answers = all_answers(randomizer)
    return {
        (cell, as_bytes(answer)): per_cell * float(p)
        for cell, row in enumerate(channel_fractions(randomizer))
        for answer, p in zip(answers, row, strict=True)
    }


def device_bytes(randomizer, per_cell, dice):
    seen = Counter()
    for cell in range(len(randomizer.cells)):
        held = holder(randomizer.cells, cell)
        records = [] if held is None else [held]
        for _ in range(per_cell):
            (answer,) = local_alg(records, randomizer, dice)
            seen[cell, as_bytes(answer)] += 1
    return seen


def batch_bytes(true, answers):
    size = int(true.max()) + 1
    code = true.copy()
    for column in answers.T:
        code = code * size + column
    _, first, counts = np.unique(code, return_index=True, return_counts=True)
    return {
        (int(true[i]), as_bytes(answers[i])): int(n) for i, n in zip(first, counts, strict=True)
    }


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_the_devices_code_follows_the_channel(name):
    for i, shape in enumerate(chosen_shapes(name)):
        randomizer = build(name, shape, epsilon=(1.0, 2.0, 4.0)[i % 3], delta=1e-3)
        per_cell = ANSWERS // len(randomizer.cells)
        seen = device_bytes(randomizer, per_cell, SeededDice(i))
        assert agrees(seen, expected_bytes(randomizer, per_cell)), shape


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_the_batch_form_follows_the_same_channel(name):
    for i, shape in enumerate(chosen_shapes(name)):
        randomizer = build(name, shape, epsilon=(1.0, 2.0, 4.0)[i % 3], delta=1e-3)
        size = len(randomizer.cells)
        true = np.repeat(np.arange(size), BATCH // size)
        answers = randomizer.answer_batch(true, np.random.default_rng(i))
        assert answers.shape == (len(true), randomizer.cells_per_answer)
        seen = batch_bytes(true, answers)
        assert agrees(seen, expected_bytes(randomizer, BATCH // size)), shape


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_the_operating_systems_dice_follow_the_channel_too(name):
    """Not seeded: this one may fail by chance, once in a thousand million runs."""
    randomizer = build(name, (2, 1), epsilon=2.0)
    seen = device_bytes(randomizer, 4000, SystemDice())
    assert agrees(seen, expected_bytes(randomizer, 4000))


@pytest.mark.parametrize("name", RANDOMIZERS)
@pytest.mark.parametrize("shape", [(2, 1, 1), (3, 3), (1, 1, 1, 1)])
def test_a_device_that_spends_a_tenth_too_much_is_caught(name, shape):
    """Deliberately broken: ε is 10 % too large. The tests above must not pass for it.

    72 000 answers: with 24 000, spread over nine true cells, the shape (3, 3) gives p = 4e-8,
    suspicious but short of the suite's 1e-9.
    """
    honest = build(name, shape, epsilon=4.0)
    broken = build(name, shape, epsilon=4.4)
    per_cell = 3 * ANSWERS // len(honest.cells)
    expected = expected_bytes(honest, per_cell)
    assert p_value(device_bytes(broken, per_cell, SeededDice(5)), expected) < FALSE_ALARM

    true = np.repeat(np.arange(len(honest.cells)), per_cell)
    batch = broken.answer_batch(true, np.random.default_rng(5))
    assert p_value(batch_bytes(true, batch), expected) < FALSE_ALARM
