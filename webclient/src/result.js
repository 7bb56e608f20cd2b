// Local search, completion and trends from a published result: offline. Protocol, 7.
import { byCodePoint, normaliseQuery } from './normalise.js'

/** Of a disputed one the groups differ far more than elsewhere: the value is one group's, and the
 * interval spans both. `estimate` is the number's name in the publication: "filtered" is from all
 * epochs remembered, "blend" and "client" from this one alone.
 * @typedef {{probability: number, low: number, high: number, disputed: boolean, estimate: string}}
 *   Figures */
/** @typedef {Figures & {url: string}} RankedUrl */
/** Of a query with `atLeast` URLs that are not known are not in the number, and the true one is at
 * least that.
 * @typedef {Figures & {query: string, atLeast: boolean}} RankedQuery */

/** Keys that are not known here are passed over; `in` throws where there is no object. A disputed
 * row shows this epoch's own: the filtered estimate knows of no dispute.
 * @param {any} row @param {string} own @param {boolean} filtered @returns {Figures | null} */
function figures(row, own, filtered) {
  for (const group of [row.optin, row.client, row.blend, row.filtered]) {
    for (const key of ['probability', 'variance', 'low', 'high']) {
      if (group !== null && !(key in group)) throw 0
    }
  }
  if (!('query' in row && 'disputed' in row)) throw 0
  const disputed = row.disputed === true
  const known = row.filtered && row.filtered.probability !== null
  const estimate = filtered && known && !disputed ? 'filtered' : own
  if (row[estimate] === null || row[estimate].probability === null) return null
  const { probability, low, high } = row[estimate]
  if (![probability, low, high].every((x) => Math.abs(x) < 1e300 && typeof x === 'number')) throw 0
  return { probability, low, high, disputed, estimate }
}

/** Likeliest first, ties by text: every device shows the same order.
 * @template {{probability: number}} T @param {T[]} rows @param {(row: T) => string} text */
const ranked = (rows, text) =>
  rows.sort((a, b) => b.probability - a.probability || byCodePoint(text(a), text(b)))

/** One epoch's publication. `PublishedResult.read` checks it: its writer may be hostile. */
export class PublishedResult {
  /** @type {Map<string, RankedUrl[]>} */ #urls = new Map()
  /** @type {RankedQuery[]} */ #queries = []

  /** @param {any} body @param {boolean} filtered */
  constructor(body, filtered) {
    if (body.schema !== 'blendstream/estimates/2') throw 0
    if (!Number.isSafeInteger(body.epoch) || body.epoch < 0) throw 0
    if (![body.records, body.queries].every(Array.isArray)) throw 0
    /** @type {number} */ this.epoch = body.epoch
    /** @type {string} */ const own = body.agreement === null ? 'blend' : body.agreement.prefer
    if (!['blend', 'client'].includes(own)) throw 0
    const more = filtered ? body.filtered : null
    /** Which estimate is shown: "filtered" where there is one, else "blend" or "client" as the
     * publication says. Each row says so for itself.
     * @type {string} */
    this.shown = more === null ? own : 'filtered'
    const none = { optin: null, client: null, blend: null, disputed: false }
    /** @type {(listed: any[], unlisted: any[]) => any[]} */
    const both = (listed, unlisted) => [
      ...listed,
      ...unlisted.map((row) => {
        if (typeof row.query !== 'string' || !row.filtered) throw 0
        return { ...row, ...none }
      }),
    ]
    for (const row of both(body.records, more === null ? [] : more.unlisted)) {
      const found = figures(row, own, more !== null)
      if (!('url' in row)) throw 0
      if (!found || typeof row.query !== 'string' || typeof row.url !== 'string') continue
      if (!this.#urls.has(row.query)) this.#urls.set(row.query, [])
      this.#urls.get(row.query)?.push({ url: row.url, ...found })
    }
    const atLeast = body.queries_at_least === true
    for (const row of both(body.queries, more === null ? [] : more.unlisted_queries)) {
      const found = figures(row, own, more !== null)
      if (!found || typeof row.query !== 'string') continue
      this.#queries.push({ query: row.query, ...found, atLeast })
    }
    for (const urls of this.#urls.values()) ranked(urls, (row) => row.url)
    ranked(this.#queries, (row) => row.query)
  }

  /** The publication in these bytes or this text, or null if there is none. `filtered` false shows
   * what this epoch says by itself.
   * @param {Uint8Array | string} source @param {boolean} [filtered]
   * @returns {PublishedResult | null} */
  static read(source, filtered = true) {
    try {
      const text =
        typeof source === 'string'
          ? source
          : new TextDecoder('utf-8', { fatal: true }).decode(source)
      return new PublishedResult(JSON.parse(text), filtered)
    } catch {
      return null
    }
  }

  /** True if nothing can be found in it: keep the publication fetched before. */
  get empty() {
    return this.#urls.size === 0 && this.#queries.length === 0
  }

  /** What others clicked for this query, likeliest first.
   * @param {string} query @param {number} [limit] @returns {RankedUrl[]} */
  search(query, limit = Infinity) {
    return (this.#urls.get(normaliseQuery(query) ?? '') ?? []).slice(0, limit)
  }

  /** The published queries that begin so, likeliest first; a blank after a word ends the word.
   * @param {string} prefix @param {number} [limit] @returns {RankedQuery[]} */
  complete(prefix, limit = Infinity) {
    // A letter at the end keeps the blank before it; it is taken off again.
    const start = normaliseQuery(prefix + '.')?.slice(0, -1)
    if (start === undefined) return []
    return this.#queries.filter((row) => row.query.startsWith(start)).slice(0, limit)
  }

  /** The n queries searched for most.
   * @param {number} n @returns {RankedQuery[]} */
  trends(n) {
    return this.#queries.slice(0, n)
  }
}
