// Recognises the search page, and reads a query and a clicked result from it. Stores nothing.

/** The address of a results page with %s in place of the query, as browsers write search engines:
 * `https://search.example/find?q=%s`.
 * @typedef {{origin: string, path: string, parameter: string}} SearchPage */

const LOCAL = ['localhost', '127.0.0.1']

/** @param {string} text */
const urlOf = (text) => {
  try {
    return new URL(text)
  } catch {
    return null
  }
}

/** @param {string} text @returns {SearchPage | null} null: it is no such address. */
export function readSearchPage(text) {
  const url = urlOf(text.trim())
  if (!url || url.username || url.password || url.hash) return null
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && LOCAL.includes(url.hostname))) {
    return null
  }
  const places = [...url.searchParams].filter(([, value]) => value === '%s')
  if (places.length !== 1 || url.pathname.includes('*')) return null
  return { origin: url.origin, path: url.pathname, parameter: places[0][0] }
}

/** For content scripts: only this page, not the whole site. @param {SearchPage} page */
export const matchPattern = ({ origin, path }) => `${origin}${path}*`

/** For permissions, which browsers give for whole sites. @param {string} address */
export const sitePattern = (address) => `${new URL(address).origin}/*`

/** Return the query of the page at `address`; null if it is not the search page.
 * @param {SearchPage} page @param {string} address */
export function queryOf({ origin, path, parameter }, address) {
  const url = urlOf(address)
  if (!url || !address.startsWith(origin + '/') || url.pathname !== path) return null
  return url.searchParams.get(parameter)
}

/** The result that a link leads to; null for links that stay on the search page's own site and for
 * what is no web page. Fragments and passwords are no part of a result.
 * @param {SearchPage} page @param {unknown} link */
export function resultOf({ origin }, link) {
  const url = typeof link === 'string' ? urlOf(link) : null
  if (!url || !isWebAddress(url.href) || url.origin === origin) return null
  url.hash = url.username = url.password = ''
  return url.href
}

/** @param {string} text */
export const isWebAddress = (text) => /^https?:$/.test(urlOf(text)?.protocol ?? '')
