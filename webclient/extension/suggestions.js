// Local search in the address bar: from the stored result only, without a network.
import { isWebAddress } from './search-page.js'
import { quoted } from './typed-text.js'
import { nameOf, shareOf } from './words.js'

/** Descriptions are a kind of XML. @param {string} text */
const escaped = (text) => text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)

/** Return suggestions for typed text: results of that query first, then longer queries.
 * @param {import('./client.js').PublishedResult | null} result @param {string} typed */
export function suggestionsFor(result, typed) {
  if (!result || !typed.trim()) return []
  const found = result.search(typed, 5).filter(({ url }) => isWebAddress(url))
  const longer = result.complete(typed, 6).filter(({ query }) => query !== typed)
  return [
    ...found.map((row) => ({
      content: row.url,
      description: `<url>${escaped(quoted(row.url))}</url> <dim>${shareOf(row)}${nameOf(row)}</dim>`,
    })),
    ...longer.map((row) => ({
      content: row.query,
      description: `${escaped(quoted(row.query))} <dim>${shareOf(row)} of searches${nameOf(row)}</dim>`,
    })),
  ].slice(0, 8)
}

/** Return the address that Enter opens: a result, or the extension's own page for a query.
 * @param {string} chosen @param {string} resultsPage */
export const placeFor = (chosen, resultsPage) =>
  isWebAddress(chosen) ? chosen : `${resultsPage}?q=${encodeURIComponent(chosen)}`
