// The exact distribution of what a randomizer returns, by running it on every throw of its dice.
//
// Bounds up to 64 are tried one by one. With a larger bound, a choice by comparison is assumed:
// outcomes are the same over whole ranges of throws. The ends of a range are compared and, where
// they differ, halved, which finds every range but one that lies between two alike.
import { fraction } from '../../webclient/src/randomizers.js'

const ONE_BY_ONE = 64n

/** The answer to these throws followed by zeros, and all bounds asked for. */
function run(answer, throws) {
  const bounds = []
  const dice = { below: (bound) => throws[bounds.push(bound) - 1] ?? 0n }
  const given = answer(dice)
  return { given, bounds, key: `${bounds} ${given}` }
}

/** Ranges [first, last] of throws with the same consequence. */
function* ranges(keyOf, first, last, atFirst = keyOf(first), atLast = keyOf(last)) {
  if (atFirst === atLast) return yield [first, last]
  if (last === first + 1n)
    return yield* [
      [first, first],
      [last, last],
    ]
  const middle = (first + last) / 2n
  const there = keyOf(middle)
  // The middle belongs to both halves; where a range goes on, it is put together again.
  let open
  for (const half of [
    ranges(keyOf, first, middle, atFirst, there),
    ranges(keyOf, middle, last, there, atLast),
  ]) {
    for (const [from, to] of half) {
      if (open && open[1] === from) open = [open[0], to]
      else {
        if (open) yield open
        open = [from, to]
      }
    }
  }
  yield open
}

/** {"cell,cell": "n/d"}, as the vectors have it. */
export function channelOf(answer) {
  const found = new Map()
  const explore = (throws, n, d) => {
    const { given, bounds } = run(answer, throws)
    const bound = bounds[throws.length]
    if (bound === undefined) {
      const [a, b] = found.get(`${given}`) ?? [0n, 1n]
      found.set(`${given}`, fraction(a * d + n * b, b * d))
      return
    }
    const parts =
      bound <= ONE_BY_ONE
        ? Array.from({ length: Number(bound) }, (_, i) => [BigInt(i), BigInt(i)])
        : ranges((thrown) => run(answer, [...throws, thrown]).key, 0n, bound - 1n)
    for (const [first, last] of parts) {
      explore([...throws, first], ...fraction(n * (last - first + 1n), d * bound))
    }
  }
  explore([], 1n, 1n)
  const named = [...found].map(([given, [n, d]]) => [given, d === 1n ? `${n}` : `${n}/${d}`])
  return Object.fromEntries(named)
}
