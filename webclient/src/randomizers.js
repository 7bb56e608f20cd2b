// What a device does to its records before anything leaves it: whole numbers only. Protocol, 3.

/** @typedef {[bigint, bigint]} Fraction in lowest terms */
/** @typedef {{below(bound: bigint): bigint}} Dice */
/** @typedef {import('./document.js').Cells} Cells */
/** @typedef {import('./document.js').Spec} Spec */
/** @typedef {{cellsPerAnswer: number, answer(cell: number, dice: Dice): number[]}} Randomizer */

const big = BigInt

/** @param {bigint} n @param {bigint} d @returns {Fraction} */
export function fraction(n, d) {
  let [a, b] = [n, d]
  while (b) [a, b] = [b, a % b]
  return [n / a, d / a]
}
/** The very number that a float holds.
 * @param {number} x @returns {Fraction} */
export function exact(x) {
  let d = 1n
  for (; !Number.isInteger(x); x *= 2) d *= 2n
  return fraction(big(x), d)
}
/** @param {Fraction} x @param {Fraction} y @returns {Fraction} */
const times = ([a, b], [c, d]) => fraction(a * c, b * d)
/** @param {Fraction} x @param {Fraction} y @returns {Fraction} */
const minus = ([a, b], [c, d]) => fraction(a * d - c * b, b * d)

/** n with n/2^32 ≤ e^x, by Taylor's series with every term rounded down.
 * @param {Fraction} x @returns {bigint} */
export function expNumerator([n, d]) {
  const guard = 64n + 2n * ((n + d - 1n) / d)
  let total = 0n
  for (let term = 1n << (32n + guard), i = 1n; term; i++) {
    total += term
    term = (term * n) / (d * i)
  }
  return total >> guard
}
/** @param {Fraction} x @returns {Fraction} */
const exp = (x) => fraction(expNumerator(x), 1n << 32n)

/** Numbers of the operating system's generator, each below the bound equally likely.
 * @type {Dice} */
export const systemDice = {
  below(bound) {
    const bits = (bound - 1n).toString(2).length
    for (;;) {
      const bytes = crypto.getRandomValues(new Uint8Array((bits + 7) >> 3))
      let drawn = 0n
      for (const byte of bytes) drawn = (drawn << 8n) | big(byte)
      drawn = big.asUintN(bits, drawn)
      if (drawn < bound) return drawn
    }
  },
}
/** @param {Dice} dice @param {number} bound */
export const below = (dice, bound) => Number(dice.below(big(bound)))

/** `size` numbers below n, every set equally likely (Floyd's method).
 * @param {number} n @param {number} size @param {Dice} dice */
function choose(n, size, dice) {
  const chosen = new Set()
  for (let last = n - size; last < n; last++) {
    const drawn = below(dice, last + 1)
    chosen.add(chosen.has(drawn) ? last : drawn)
  }
  return [...chosen]
}
/** Others than `cell`: numbers from it on move up by one.
 * @param {number[]} numbers @param {number} cell */
const around = (numbers, cell) => numbers.map((x) => x + +(x >= cell))
/** @param {number[]} numbers */
const sorted = (numbers) => numbers.sort((a, b) => a - b)

/** ω of subset selection over K cells, E = n/d: the least variance of a rare record.
 * @param {number} K @param {Fraction} E @param {number} cap */
export function subsetSize(K, [n, d], cap) {
  const highest = Math.max(1, Math.min(cap, K - 1))
  const turning = Number((big(K) * d) / (n + d))
  let best = 1
  /** @type {Fraction | undefined} */ let least
  for (const candidate of [1, turning, turning + 1]) {
    const w = Math.min(Math.max(candidate, 1), highest)
    // p = A/(A+B), q = (ω − p)/(K − 1); all times (A+B)(K−1).
    const [A, B] = [big(w) * n, d * big(K - w)]
    const [S, P, Q] = [(A + B) * big(K - 1), A * big(K - 1), big(w) * (A + B) - A]
    if (!least || Q * (S - Q) * least[1] < least[0] * (P - Q) ** 2n) {
      ;[best, least] = [w, [Q * (S - Q), (P - Q) ** 2n]]
    }
  }
  return best
}

/** ω of subset or none over M records, E = n/d, if λ of 64 people hold something listed.
 * @param {number} M @param {Fraction} E @param {number} cap @param {number} [listed_64ths] */
export function namedSize(M, [n, d], cap, listed_64ths = 16) {
  const lambda = big(listed_64ths)
  /** @param {number} size @returns {Fraction} */
  const variance = (size) => {
    const [w, m] = [big(size), big(M)]
    const [S, T, F] = [(w * n + m * d) * (m - 1n), w * n * (m - 1n), w * d * (m - 1n)]
    const G = w * (n * (w - 1n) + d * (m - w))
    const shown = (64n - lambda) * F + lambda * G
    return [shown * (64n * S - shown), (T - G) ** 2n]
  }
  let [low, high] = [1, Math.max(1, Math.min(cap, M - 1))]
  while (low < high) {
    const middle = (low + high) >> 1
    const [[a, b], [x, y]] = [variance(middle), variance(middle + 1)]
    if (a * y <= x * b) high = middle
    else low = middle + 1
  }
  return low
}

/** @param {number} K @param {Fraction} E @param {number} w @returns {Randomizer} */
function subsets(K, [n, d], w) {
  const [told, lied] = [n * big(w), d * big(K - w)]
  return {
    cellsPerAnswer: w,
    answer(cell, dice) {
      if (K === 1) return [0]
      const tells = dice.below(told + lied) < told
      const others = around(choose(K - 1, w - +tells, dice), cell)
      return sorted(tells ? [...others, cell] : others)
    },
  }
}

/** @param {number} M @param {Fraction} E @param {number} w @returns {Randomizer} */
function subsetOrNone(M, [n, d], w) {
  const none = [...Array(w - 1).keys(), M]
  const [W, m] = [big(w), big(M)]
  return {
    cellsPerAnswer: w,
    answer(cell, dice) {
      if (M === 0) return [0]
      const thrown = dice.below(W * n + m * d)
      if (thrown >= W * n) return sorted(choose(M, w, dice))
      if (cell === M || thrown < W * d) return [...none]
      return sorted([cell, ...around(choose(M - 1, w - 1, dice), cell)])
    },
  }
}

/** @param {Cells} cells @param {Spec} spec @returns {Randomizer | null} */
function twoStage({ queryOf, queries }, spec) {
  /** @type {number[][]} */ const members = Array.from({ length: queries + 1 }, () => [])
  const place = queryOf.map((query, cell) => members[query].push(cell) - 1)
  /** @type {(part: Fraction) => Fraction} */
  const each = (part) => times(part, [1n, big(spec.answers)])
  const share = exact(spec.query_budget_share)
  const [epsilon, delta] = [each(exact(spec.epsilon)), each(exact(spec.delta))]
  const [epsilonQ, deltaQ] = [times(share, epsilon), times(share, delta)]
  /** t of k values: (E + δ/2·(k−1)) / (E + k−1).
   * @param {number} k @param {Fraction} E @param {Fraction} delta @returns {Fraction} */
  const truthOf = (k, [n, d], [a, b]) =>
    fraction(2n * b * n + a * d * big(k - 1), 2n * b * (n + d * big(k - 1)))
  const truth = truthOf(queries + 1, exp(epsilonQ), deltaQ)
  const [urlE, urlDelta] = [exp(minus(epsilon, epsilonQ)), minus(delta, deltaQ)]
  /** @type {Map<number, Fraction>} */ const truths = new Map()
  for (const { length } of members) {
    if (!truths.has(length)) truths.set(length, truthOf(length, urlE, urlDelta))
  }
  /** @param {number} k */
  const urlTruth = (k) => /** @type {Fraction} */ (truths.get(k))
  for (const [k, [n, d]] of /** @type {[number, Fraction][]} */ ([
    [queries + 1, truth],
    ...truths,
  ])) {
    if (k > 1 && n * big(k) <= d) return null
  }
  /** @param {Fraction} chance @param {Dice} dice */
  const happens = ([n, d], dice) => dice.below(d) < n
  return {
    cellsPerAnswer: 1,
    answer(cell, dice) {
      const q = queryOf[cell]
      if (queries && !happens(truth, dice)) {
        const other = members[around([below(dice, queries)], q)[0]]
        return [other[below(dice, other.length)]]
      }
      const own = members[q]
      if (own.length > 1 && !happens(urlTruth(own.length), dice)) {
        return [own[around([below(dice, own.length - 1)], place[cell])[0]]]
      }
      return [cell]
    },
  }
}

/** The randomizer that a head list names, or null where it cannot be built.
 * @param {Spec} spec @param {Cells} cells @param {boolean} wildcards @returns {Randomizer | null} */
export function randomizerFor(spec, cells, wildcards) {
  if (wildcards !== (spec.name === 'two-stage')) return null
  const K = cells.size
  const cap = spec.max_cells_per_answer
  if (wildcards) return twoStage(cells, spec)
  const E = exp(times(exact(spec.epsilon), [1n, big(spec.answers)]))
  if (spec.name === 'randomized-response') return subsets(K, E, 1)
  if (spec.name === 'subset-selection') return subsets(K, E, subsetSize(K, E, cap))
  if (spec.name === 'subset-or-none')
    return subsetOrNone(K - 1, E, namedSize(K - 1, E, cap, spec.listed_64ths))
  return null
}

/** Raw records in random order, each order equally likely.
 * @template T @param {T[]} records @param {Dice} dice @returns {T[]} */
export function shuffled(records, dice) {
  const pool = [...records]
  for (let i = 0; i < pool.length; i++) {
    const other = i + below(dice, pool.length - i)
    ;[pool[i], pool[other]] = [pool[other], pool[i]]
  }
  return pool
}

/** What each answer is about: any of the records, drawn anew each time; null without any.
 * @template T @param {T[]} records @param {number} answers @param {Dice} dice
 * @returns {(T | null)[]} */
export const drawForAnswers = (records, answers, dice) =>
  Array.from({ length: answers }, () =>
    records.length ? records[below(dice, records.length)] : null,
  )

/** A report's body; all of one head list have one length.
 * @param {string} id @param {string} contributor @param {number[][]} answers @param {number} K */
export function reportBody(id, contributor, answers, K) {
  const body = JSON.stringify({ answers, contributor, head_list: id })
  const digits = (/** @type {number} */ n) => String(n).length
  return (
    body + ' '.repeat(answers.flat().reduce((sum, cell) => sum + digits(K - 1) - digits(cell), 0))
  )
}

/** Draw a record for each answer, a contributor, and randomise: the one place where noise is drawn.
 * @param {string} id @param {[string, string][]} records @param {Spec} spec @param {Cells} cells
 * @param {Randomizer} randomizer @param {Dice} dice */
export function makeReport(id, records, spec, cells, randomizer, dice) {
  const drawn = drawForAnswers(records, spec.answers, dice)
  const contributor = dice
    .below(1n << 128n)
    .toString(16)
    .padStart(32, '0')
  const answers = drawn.map((record) => randomizer.answer(cells.numberOf(record), dice))
  return reportBody(id, contributor, answers, cells.size)
}
