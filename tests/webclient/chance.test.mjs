// What is drawn, with the operating system's dice, against the exact channels of the vectors.
//
// Each test raises a false alarm about once in 10^9 runs; passing proves no privacy. Draws: 200 000
// for each randomizer, at which an epsilon 10 % too large is 8 or more standard errors away.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cellsOf } from '../../webclient/src/document.js'
import {
  drawForAnswers,
  randomizerFor,
  shuffled,
  systemDice,
} from '../../webclient/src/randomizers.js'
import { listOf, vectors } from './support.mjs'

// The operating system's bytes, asked for by 64 KB: a million calls for some of them each take most
// of the time of these tests.
const pool = new Uint8Array(1 << 16)
let used = pool.length
const fill = crypto.getRandomValues.bind(crypto)
Object.defineProperty(crypto, 'getRandomValues', {
  value(bytes) {
    if (used + bytes.length > pool.length) [used] = [0, fill(pool)]
    bytes.set(pool.subarray(used, (used += bytes.length)))
    return bytes
  },
})

const DRAWS = 200_000
/** P(normal > 6) is 1e-9. */
const Z = 6

/** Counts against expected numbers: χ² and what it exceeds once in 10^9 (Wilson and Hilferty). */
function compared(observed, expected) {
  let [chi2, freedom] = [0, -1]
  let [rareSeen, rare] = [0, 0]
  for (const [outcome, number] of Object.entries(expected)) {
    const seen = observed.get(outcome) ?? 0
    if (number < 10) [rareSeen, rare] = [rareSeen + seen, rare + number]
    else [chi2, freedom] = [chi2 + (seen - number) ** 2 / number, freedom + 1]
  }
  if (rare > 0) [chi2, freedom] = [chi2 + (rareSeen - rare) ** 2 / rare, freedom + 1]
  const k = 2 / (9 * freedom)
  return { chi2, most: freedom * (1 - k + Z * Math.sqrt(k)) ** 3 }
}

const numberOf = (text) => {
  const [n, d = '1'] = text.split('/')
  return Number((BigInt(n) * 10n ** 18n) / BigInt(d)) / 1e18
}

/** True where `DRAWS` answers of a device with this epsilon fit the vector's channel. */
function fits(vector, epsilon) {
  const list = listOf(vector.records, { ...vector.randomizer, epsilon })
  const cells = cellsOf(list)
  const built = randomizerFor(list.randomizer, cells, list.query_wildcards)
  const each = Math.ceil(DRAWS / cells.size)
  return vector.probability.every((row, held) => {
    const observed = new Map()
    for (let i = 0; i < each; i++) {
      const answer = `${built.answer(held, systemDice)}`
      assert.ok(answer in row, 'an impossible answer')
      observed.set(answer, (observed.get(answer) ?? 0) + 1)
    }
    const expected = Object.entries(row).map(([answer, chance]) => [
      answer,
      numberOf(chance) * each,
    ])
    const { chi2, most } = compared(observed, Object.fromEntries(expected))
    return chi2 <= most
  })
}

const { channels } = vectors('channels')
for (const name of ['randomized-response', 'subset-selection', 'subset-or-none', 'two-stage']) {
  const epsilon = name === 'two-stage' ? 4 : 1
  const [vector] = channels
    .filter(({ randomizer: r }) => r.name === name && r.epsilon === epsilon && r.answers === 1)
    .sort((a, b) => b.cells - a.cells || b.cells_per_answer - a.cells_per_answer)

  test(`${name} draws from its exact channel`, () => {
    assert.ok(fits(vector, epsilon))
  })
  test(`${name} with an epsilon 10 % too large is caught`, () => {
    assert.ok(!fits(vector, epsilon * 1.1))
  })
}

test('numbers below a bound are equally likely', () => {
  for (const bound of [1n, 2n, 3n, 7n, 256n, 257n, 1000n]) {
    const observed = new Map()
    for (let i = 0; i < 50_000; i++) {
      const thrown = systemDice.below(bound)
      assert.ok(0n <= thrown && thrown < bound)
      observed.set(`${thrown}`, (observed.get(`${thrown}`) ?? 0) + 1)
    }
    if (bound === 1n) continue
    const expected = Array.from({ length: Number(bound) }, (_, i) => [i, 50_000 / Number(bound)])
    const { chi2, most } = compared(observed, Object.fromEntries(expected))
    assert.ok(chi2 <= most, `${bound}`)
  }
})

test('so are the top and bottom of a bound of many bits', () => {
  const bound = (1n << 100n) * 3n
  const observed = new Map()
  for (let i = 0; i < 60_000; i++) {
    const thrown = systemDice.below(bound)
    const place = `${thrown >> 100n} ${thrown & 1n}`
    observed.set(place, (observed.get(place) ?? 0) + 1)
  }
  const places = ['0 0', '0 1', '1 0', '1 1', '2 0', '2 1'].map((place) => [place, 10_000])
  const { chi2, most } = compared(observed, Object.fromEntries(places))
  assert.ok(chi2 <= most)
})

/** @type {(draw: () => unknown[], results: number) => void} */
const allAsLikely = (draw, results) => {
  const observed = new Map()
  for (let i = 0; i < 60_000; i++) {
    const drawn = `${draw()}`
    observed.set(drawn, (observed.get(drawn) ?? 0) + 1)
  }
  assert.equal(observed.size, results)
  const expected = Object.fromEntries([...observed.keys()].map((d) => [d, 60_000 / results]))
  const { chi2, most } = compared(observed, expected)
  assert.ok(chi2 <= most)
}

test('every order of the searches is as likely', () => {
  allAsLikely(() => shuffled(['a', 'b', 'c'], systemDice), 6)
})

test('each answer is about any of the searches, whatever the others are about', () => {
  allAsLikely(() => drawForAnswers(['a', 'b', 'c', 'd'], 2, systemDice), 16)
  assert.deepEqual(drawForAnswers(['a'], 3, systemDice), ['a', 'a', 'a'])
  assert.deepEqual(drawForAnswers([], 3, systemDice), [null, null, null])
})
