// The vectors that Python made, in JavaScript.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { checkEntry, checkedLimits, totalSpent } from '../../webclient/src/budget.js'
import { cellsOf, idOf, readHeadList } from '../../webclient/src/document.js'
import { fold } from '../../webclient/src/folding.js'
import { normalise, normaliseQuery } from '../../webclient/src/normalise.js'
import {
  exact,
  expNumerator,
  fraction,
  makeReport,
  namedSize,
  randomizerFor,
  subsetSize,
} from '../../webclient/src/randomizers.js'
import { PublishedResult } from '../../webclient/src/result.js'
import { channelOf } from './exact_channel.mjs'
import { listOf, ScriptedDice, vectors } from './support.mjs'
import { camel } from './talking.mjs'

const bytesOf = ({ text, hex }) =>
  new Uint8Array(Buffer.from(text ?? hex, text === undefined ? 'hex' : 'utf8'))

test('text becomes the same record', () => {
  for (const { query, url, record } of vectors('normalise').texts) {
    assert.deepEqual(normalise(query, url), record, JSON.stringify([query, url]).slice(0, 200))
  }
})

test('so does every character that the stated version of Unicode knows', () => {
  const { ranges, sha256 } = vectors('normalise').all
  const hash = createHash('sha256')
  for (const [first, last] of ranges) {
    for (let point = first; point <= last; point++) {
      hash.update(`${point} ${normaliseQuery(`x${String.fromCodePoint(point)}x`) ?? ''}\n`)
    }
  }
  assert.equal(hash.digest('hex'), sha256)
})

test('folding leaves alone what the stated version does not know', () => {
  // U+A7CB was added in Unicode 16, and folds there.
  assert.equal(fold('\ua7cb'), '\ua7cb')
})

test('head lists are accepted with their id and cells', async () => {
  for (const vector of vectors('documents').accepted) {
    const bytes = bytesOf(vector)
    const document = readHeadList(bytes)
    assert.ok(document, vector.name)
    assert.equal(await idOf(bytes), vector.id)
    const cells = cellsOf(document)
    assert.equal(cells.size, vector.cells.length, vector.name)
    vector.cells.forEach(([query, url], number) => {
      assert.equal(cells.numberOf(query === null ? null : [query, url ?? '']), number, vector.name)
    })
  }
})

test('and refused', () => {
  for (const vector of vectors('documents').refused) {
    assert.equal(readHeadList(bytesOf(vector)), null, vector.name)
  }
})

test('a head list with any one byte changed is another, or none', async () => {
  const vector = vectors('documents').accepted[0]
  const bytes = bytesOf(vector)
  for (let i = 0; i < bytes.length; i++) {
    for (const change of [1, 2, 16, 128]) {
      const changed = Uint8Array.from(bytes)
      changed[i] ^= change
      const document = readHeadList(changed)
      if (document) assert.notEqual(await idOf(changed), vector.id)
    }
  }
})

test('e^epsilon has the same numerator', () => {
  for (const { epsilon, bits, answers, numerator } of vectors('exponents').exponents) {
    const float = Buffer.from(bits, 'hex').readDoubleBE()
    assert.equal(float, epsilon)
    const [n, d] = exact(float)
    assert.equal(expNumerator(fraction(n, d * BigInt(answers))), BigInt(numerator), `${epsilon}`)
  }
})

test('widths are the same', () => {
  for (const [epsilon, records, cap, selected, named] of vectors('widths').widths) {
    const E = fraction(expNumerator(exact(epsilon)), 1n << 32n)
    const where = `${[epsilon, records, cap]}`
    assert.equal(subsetSize(records + 1, E, cap), selected, where)
    assert.equal(namedSize(records, E, cap), named, where)
  }
  for (const [epsilon, records, cap, share, named] of vectors('widths').by_share) {
    const E = fraction(expNumerator(exact(epsilon)), 1n << 32n)
    assert.equal(namedSize(records, E, cap, share), named, `${[epsilon, records, cap, share]}`)
  }
})

test('every channel of a small shape has the same fractions, as it is executed', () => {
  for (const vector of vectors('channels').channels) {
    const list = listOf(vector.records, vector.randomizer)
    const cells = cellsOf(list)
    const randomizer = randomizerFor(list.randomizer, cells, list.query_wildcards)
    assert.equal(cells.size, vector.cells)
    assert.equal(randomizer.cellsPerAnswer, vector.cells_per_answer)
    vector.probability.forEach((expected, held) => {
      const found = channelOf((dice) => randomizer.answer(held, dice))
      assert.deepEqual(found, expected, JSON.stringify([vector.records, vector.randomizer, held]))
    })
  }
})

test('the same dice give the same report, byte for byte', () => {
  const { head_list, reports } = vectors('reports')
  for (const { name, records, randomizer: spec, held, dice, body } of reports) {
    const listed = Array.from({ length: records }, (_, i) => [`q${Math.floor(i / 3)}`, `u${i % 3}`])
    const list = listOf(listed, spec)
    const cells = cellsOf(list)
    const randomizer = randomizerFor(spec, cells, list.query_wildcards)
    const scripted = new ScriptedDice(dice)
    assert.equal(makeReport(head_list, held, spec, cells, randomizer, scripted), body, name)
    assert.equal(scripted.throws.length, 0, name)
  }
})

test('budget entries are checked alike', () => {
  for (const vector of vectors('budget').budget_entries) {
    const limits = checkedLimits(camel(vector.limits))
    const refusal = checkEntry(vector.budget_entries, vector.entry, limits)
    assert.equal(refusal?.code ?? 'allowed', vector.result, vector.name)
    assert.equal(refusal?.freeAtS, vector.free_at_s, vector.name)
    assert.deepEqual(
      totalSpent(vector.budget_entries, limits, vector.entry.at_s),
      vector.spent,
      vector.name,
    )
  }
})

test('search, completion and trends find the same', () => {
  const { publications, refused } = vectors('search')
  const row = (r) => [
    ...[r.query ?? r.url, r.probability, r.low, r.high, r.disputed, r.estimate],
    ...('query' in r ? [r.atLeast] : []),
  ]
  for (const vector of publications) {
    const result = PublishedResult.read(vector.text)
    assert.equal(result.epoch, vector.epoch)
    assert.equal(result.empty, vector.empty)
    const own = PublishedResult.read(vector.text, false)
    assert.equal(own.shown, vector.own.read)
    assert.deepEqual(own.trends(3).map(row), vector.own.trends)
    assert.equal(result.shown, vector.read)
    for (const [query, urls] of vector.search) {
      assert.deepEqual(result.search(query).map(row), urls, JSON.stringify(query))
      assert.deepEqual(result.search(query, 1).map(row), urls.slice(0, 1))
    }
    for (const [prefix, queries] of vector.complete) {
      const found = result.complete(prefix).map(({ query }) => query)
      assert.deepEqual(found, queries, JSON.stringify(prefix))
    }
    assert.deepEqual(result.trends(3).map(row), vector.trends)
  }
  for (const { name, text } of refused) {
    assert.equal(PublishedResult.read(text), null, name)
    assert.equal(PublishedResult.read(new TextEncoder().encode(text)), null, name)
  }
})
