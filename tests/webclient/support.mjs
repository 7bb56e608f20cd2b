// What the tests share: vectors, dice that are scripted or seeded, limits in the client's spelling.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'

/** @param {string} name */
export const vectors = (name) =>
  JSON.parse(readFileSync(new URL(`../vectors/device/${name}.json`, import.meta.url), 'utf8'))

/** Throws the given numbers and checks that just these bounds are asked for. */
export class ScriptedDice {
  constructor(throws) {
    this.throws = [...throws]
  }
  below(bound) {
    const [expected, thrown] = this.throws.shift()
    assert.equal(bound, BigInt(expected))
    return BigInt(thrown)
  }
}

/** Fair dice that repeat themselves: xoshiro256**, 53 bits at a time. */
export class SeededDice {
  constructor(seed) {
    this.state = BigUint64Array.from(
      [1n, 2n, 3n, 4n],
      (n) => n * 0x9e3779b97f4a7c15n + BigInt(seed),
    )
    for (let i = 0; i < 20; i++) this.next()
  }
  next() {
    const s = this.state
    const rotate = (x, k) => BigInt.asUintN(64, x << k) | (x >> (64n - k))
    const result = BigInt.asUintN(64, rotate(BigInt.asUintN(64, s[1] * 5n), 7n) * 9n)
    const t = s[1] << 17n
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = rotate(s[3], 45n)
    return result
  }
  below(bound) {
    // 64 bits more than needed: what the remainder prefers is below one in 10^19.
    let drawn = this.next()
    for (let size = bound; size > 1n; size >>= 64n) drawn = (drawn << 64n) | this.next()
    return drawn % bound
  }
}

/** The head list that a vector of channels or reports is about. */
export const listOf = (records, randomizer) => ({
  records,
  listed: records.length,
  query_wildcards: randomizer.name === 'two-stage',
  randomizer,
})
