// webclient as a program that tests/vectors/device/play.py runs: JSON lines in and out.
import { openSync, readFileSync, readSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { checkEntry, checkedLimits, totalSpent } from '../../../../webclient/src/budget.js'
import { Device } from '../../../../webclient/src/device.js'
import { cellsOf, idOf, readHeadList } from '../../../../webclient/src/document.js'
import { FileStore } from '../../../../webclient/src/file-store.js'
import { normalise } from '../../../../webclient/src/normalise.js'
import * as randomizers from '../../../../webclient/src/randomizers.js'
import { PublishedResult } from '../../../../webclient/src/result.js'
import { camel } from '../../../webclient/talking.mjs'

const { exact, expNumerator, fraction, makeReport, namedSize, randomizerFor, subsetSize } =
  randomizers

// Opened again: Node's own does not wait.
const stdin = openSync('/dev/stdin')
let waiting = Buffer.alloc(0)
/** The next line, waited for; null at the end. */
const read = () => {
  for (let end; (end = waiting.indexOf(10)) < 0; ) {
    const piece = Buffer.alloc(1 << 16)
    const size = readSync(stdin, piece)
    if (size === 0) return null
    waiting = Buffer.concat([waiting, piece.subarray(0, size)])
  }
  const end = waiting.indexOf(10)
  const line = waiting.subarray(0, end).toString()
  waiting = waiting.subarray(end + 1)
  return JSON.parse(line)
}
const ascii = (text) =>
  text.replace(/[^\0-~]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))
const write = (line) => writeFileSync(1, ascii(JSON.stringify(line)) + '\n')
const ask = (line) => {
  write(line)
  return read()
}
const dice = { below: (bound) => BigInt(ask({ below: `${bound}` }).drawn) }

const listOf = ({ records, randomizer }) => ({
  records,
  listed: records.length,
  query_wildcards: randomizer.name === 'two-stage',
  randomizer,
})
const built = (step) => {
  const list = listOf(step)
  const cells = cellsOf(list)
  return { cells, randomizer: randomizerFor(step.randomizer, cells, list.query_wildcards) }
}
const row = (r) => [
  ...[r.query ?? r.url, r.probability, r.low, r.high, r.disputed, r.estimate],
  ...('query' in r ? [r.atLeast] : []),
]

const fetch = async (address, { method = 'GET', headers = {}, body = null }) => {
  const path = address.replace('https://gateway.example', '')
  const { response } = ask({ request: { method, path, headers, body } })
  if (!response) throw new TypeError('the connection was dropped')
  return new Response(response.body, { status: response.status, headers: response.headers })
}

let device
let nowS = 0
const steps = {
  normalise: ({ texts }) => texts.map(([query, url]) => normalise(query, url)),
  'read head list': async ({ hex }) => {
    const bytes = new Uint8Array(Buffer.from(hex, 'hex'))
    const document = readHeadList(bytes)
    if (!document) return null
    const listed = document.records.slice(0, document.listed)
    const queries = document.query_wildcards ? [...new Set(listed.map(([query]) => query))] : []
    const all = [...listed, ...queries.map((query) => [query, null]), [null, null]]
    const { size, numberOf } = cellsOf(document)
    const cells = Array(size)
    for (const cell of all) cells[numberOf(cell[0] === null ? null : [cell[0], cell[1] ?? ''])] = cell
    return { id: await idOf(bytes), cells }
  },
  exponent: ({ bits, answers }) => {
    const [n, d] = exact(Buffer.from(bits, 'hex').readDoubleBE())
    return `${expNumerator(fraction(n, d * BigInt(answers)))}`
  },
  width: ({ name, epsilon, records, cap, listed_64ths }) => {
    const E = fraction(expNumerator(exact(epsilon)), 1n << 32n)
    return name === 'subset-selection'
      ? subsetSize(records + 1, E, cap)
      : namedSize(records, E, cap, listed_64ths)
  },
  answer: (step) => built(step).randomizer.answer(step.held, dice),
  'write report': (step) => {
    const { cells, randomizer } = built(step)
    return makeReport(step.head_list, step.held, step.randomizer, cells, randomizer, dice)
  },
  'check budget entry': ({ limits: given, budget_entries, entry }) => {
    const limits = checkedLimits(camel(given))
    const refusal = checkEntry(budget_entries, entry, limits)
    const already = totalSpent(budget_entries, limits, entry.at_s)
    const [result, free_at_s] = [refusal?.code ?? 'allowed', refusal?.freeAtS ?? null]
    return { result, free_at_s, spent: already }
  },
  search: ({ text, filtered, search, complete, trends }) => {
    const result = PublishedResult.read(text, filtered)
    return (
      result && {
        read: result.shown,
        epoch: result.epoch,
        empty: result.empty,
        search: search.map((query) => result.search(query).map(row)),
        complete: complete.map((prefix) => result.complete(prefix).map(({ query }) => query)),
        trends: result.trends(trends).map(row),
      }
    )
  },
  start: ({ folder, limits, opt_in, state }) => {
    const kept = join(folder, 'device', 'state')
    if (state === 'lost') unlinkSync(kept)
    if (state === 'damaged') writeFileSync(kept, readFileSync(kept).subarray(0, -9))
    const optIn = opt_in ? camel(opt_in) : undefined
    const store = new FileStore(join(folder, 'device'))
    const options = { server: 'https://gateway.example/', limits: camel(limits), store, fetch }
    device = new Device({ ...options, optIn }, { clock: () => nowS + 0.5, dice })
    return null
  },
  record: async ({ query, url }) => (await device.record(query, url)).code,
  forget: async () => {
    await device.forget()
    return null
  },
  sent: async () => {
    const { code, document } = await device.sentLog()
    return document ?? { code }
  },
  status: async () => {
    const { code, recordsHeld, epsilonSpent, deltaSpent, windowsAnswered } = await device.status()
    const spent = { epsilon_spent: epsilonSpent, delta_spent: deltaSpent }
    return { code, records_held: recordsHeld, ...spent, windows_answered: windowsAnswered }
  },
}
const report = (atOnce) => async () => {
  const { code, epoch, nextCallAtS, freeAtS } = await device.maybeReport({ atOnce })
  return { code, epoch, next_call_at_s: nextCallAtS, free_at_s: freeAtS }
}
steps.report = report(false)
steps['report now'] = report(true)

for (let step; (step = read()); ) {
  nowS = step.now_s ?? nowS
  write({ result: await steps[step.do](step) })
}
