// A head list as it travels: canonical bytes only, named by their SHA-256. Protocol, section 2.
import { byCodePoint, fits, hasUtf8 } from './normalise.js'

/** @typedef {{name: string, epsilon: number, delta: number, answers: number,
 *   query_budget_share: number, max_cells_per_answer: number,
 *   listed_64ths: number, cells_per_answer: number}} Spec */
/** @typedef {{schema: string, epoch: number, window_start_s: number, window_end_s: number,
 *   reports_until_s: number, cohorts: number, normalisation: number, query_wildcards: boolean,
 *   listed: number, records: [string, string][], noisy_counts: number[] | null,
 *   randomizer: Spec, mechanisms: Record<string, string>, quantity: string}} HeadList */

const whole = Number.isSafeInteger
/** @param {number} least @param {number[]} numbers */
const wholeFrom = (least, ...numbers) => numbers.every((x) => whole(x) && x >= least)
const SCHEMA = 'blendstream/head-list/2'

/** As Python spells a float: 4.0, 1e-05.
 * @param {number} x */
export function spellReal(x) {
  const [digits, e] = x.toExponential().split('e')
  if (x && (+e < -4 || +e > 15)) return `${digits}e${e[0]}${e.slice(1).padStart(2, '0')}`
  return (Object.is(x, -0) ? '-0' : x) + (Number.isInteger(x) ? '.0' : '')
}

/** @param {string} text @returns {string} */
const quote = (text) => {
  if (typeof text !== 'string' || !hasUtf8(text)) throw 0
  return JSON.stringify(text)
}

/** @param {any} values each as it is spelled @param {string} keys in their order */
const object = (values, keys) => `{${keys.split(' ').map((key) => `"${key}":${values[key]}`)}}`

/** @param {HeadList} d @returns {string} */
function spell(d) {
  const r = d.randomizer
  const named = Object.keys(d.mechanisms).sort(byCodePoint)
  const randomizer = {
    ...r,
    delta: spellReal(r.delta),
    epsilon: spellReal(r.epsilon),
    name: quote(r.name),
    query_budget_share: spellReal(r.query_budget_share),
  }
  return object(
    {
      ...d,
      mechanisms: `{${named.map((key) => quote(key) + ':' + quote(d.mechanisms[key]))}}`,
      noisy_counts: d.noisy_counts && `[${d.noisy_counts}]`,
      randomizer: object(
        randomizer,
        'answers cells_per_answer delta epsilon listed_64ths max_cells_per_answer name query_budget_share',
      ),
      quantity: quote(d.quantity),
      records: `[${d.records.map(([q, u]) => `[${quote(q)},${quote(u)}]`)}]`,
      schema: quote(d.schema),
    },
    'cohorts epoch listed mechanisms noisy_counts normalisation quantity query_wildcards randomizer records reports_until_s schema window_end_s window_start_s',
  )
}

/** Beside this, bytes that are spelled alike have just the keys of `spell`.
 * @param {any} d @returns {boolean} */
function holds(d) {
  const r = d.randomizer
  const { listed_64ths, cells_per_answer } = r
  return (
    d.schema === SCHEMA &&
    wholeFrom(0, d.epoch, d.listed, d.window_start_s) &&
    wholeFrom(1, d.cohorts, r.answers, r.max_cells_per_answer, listed_64ths, cells_per_answer) &&
    wholeFrom(d.window_start_s + 1, d.window_end_s) &&
    wholeFrom(d.window_end_s, d.reports_until_s) &&
    listed_64ths < 64 &&
    whole(d.normalisation) &&
    typeof d.query_wildcards === 'boolean' &&
    Array.isArray(d.records) &&
    d.records.every(
      (/** @type {any} */ p) =>
        Array.isArray(p) &&
        p.length === 2 &&
        p.every((t) => typeof t === 'string') &&
        fits(p[0], 256) &&
        fits(p[1], 1024),
    ) &&
    (d.noisy_counts === null ||
      (Array.isArray(d.noisy_counts) &&
        d.noisy_counts.length === d.records.length &&
        d.noisy_counts.every(whole))) &&
    d.listed <= d.records.length &&
    new Set(d.records.slice(0, d.listed).map(keyOf)).size === d.listed &&
    Number.isFinite(r.epsilon) &&
    // e^(ε/m) must exceed 1 in whole numbers.
    r.epsilon >= r.answers * 2 ** -32 &&
    0 <= r.delta &&
    r.delta < 1 &&
    0 < r.query_budget_share &&
    r.query_budget_share < 1
  )
}

/** One text for each record: the length says where the query ends.
 * @param {[string, string]} record */
export const keyOf = ([query, url]) => `${query.length} ${query}${url}`

/** The document, or null: one spelling only, since two would have two ids.
 * @param {Uint8Array} bytes @returns {HeadList | null} */
export function readHeadList(bytes) {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    const body = JSON.parse(text)
    return bytes.length <= 1 << 26 && holds(body) && spell(body) === text ? body : null
  } catch {
    return null
  }
}

/** @param {Uint8Array<ArrayBuffer>} bytes @returns {Promise<string>} */
export async function idOf(bytes) {
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))
  return Array.from(hash, (b) => b.toString(16).padStart(2, '0')).join('')
}

/** The cells: each listed record, then (if so) each query's ⋆, and ⟨⋆,⋆⟩ last.
 * @param {HeadList} d */
export function cellsOf({ records, listed, query_wildcards }) {
  /** @type {Map<string, number>} */ const number = new Map()
  /** @type {Map<string, number>} */ const queries = new Map()
  /** @type {number[]} */ const queryOf = []
  for (const pair of records.slice(0, listed)) {
    number.set(keyOf(pair), number.size)
    if (!queries.has(pair[0])) queries.set(pair[0], queries.size)
    queryOf.push(/** @type {number} */ (queries.get(pair[0])))
  }
  if (query_wildcards) for (const query of queries.values()) queryOf.push(query)
  queryOf.push(queries.size)
  return {
    /** For each cell the number of its query, ⋆ last. */
    queryOf,
    queries: queries.size,
    size: queryOf.length,
    /** @param {[string, string] | null} record @returns {number} */
    numberOf(record) {
      const star = queryOf.length - 1
      if (!record) return star
      const query = query_wildcards ? queries.get(record[0]) : undefined
      return number.get(keyOf(record)) ?? (query === undefined ? star : listed + query)
    },
  }
}
/** @typedef {ReturnType<typeof cellsOf>} Cells */
