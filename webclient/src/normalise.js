// Text as people type it → the record that devices and servers count. docs/device-protocol.md, 1.
import { fold } from './folding.js'

export const NORMALISATION = 2
// JavaScript's own \s is another set: without U+0085 and U+001C..1F, and with U+FEFF.
const SPACE = '[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+'
const RUNS = new RegExp(SPACE, 'g')
const ENDS = new RegExp(`^${SPACE}|${SPACE}$`, 'g')
const CONTROL = /[\0-\x1f\x7f-\x9f]/
const UNPAIRED = /\p{Cs}/u

const utf8 = new TextEncoder()
/** Bytes of UTF-8; none of a text with an unpaired surrogate, which has no UTF-8.
 * @param {string} text */
export const bytesOf = (text) => (UNPAIRED.test(text) ? 0 : utf8.encode(text).length)
/** False for a text with an unpaired surrogate. @param {string} text */
export const hasUtf8 = (text) => !UNPAIRED.test(text)
/** Whether a text has 1 to `most` bytes of UTF-8: at most three for each of its units, so that most
 * texts of a long list need not be encoded. @param {string} text @param {number} most */
export const fits = (text, most) =>
  text.length > 0 &&
  text.length <= most &&
  hasUtf8(text) &&
  (3 * text.length <= most || utf8.encode(text).length <= most)

/** @param {string} raw @returns {string | null} */
export function normaliseQuery(raw) {
  // Lengths first: composing takes time that grows with their square.
  if (!fits(raw, 1024)) return null
  const text = fold(raw.normalize()).normalize().replace(RUNS, ' ').replace(/^ | $/g, '')
  return fits(text, 256) && !CONTROL.test(text) ? text : null
}

/** The record [query, url] that this text stands for, or null.
 * @param {string} query @param {string} url @returns {[string, string] | null} */
export function normalise(query, url) {
  const clean = fits(url, 4096) ? url.replace(ENDS, '') : ''
  const text = normaliseQuery(query)
  return text !== null && fits(clean, 1024) && !CONTROL.test(clean) ? [text, clean] : null
}

/** In the order of code points, as Python sorts; `<` compares UTF-16.
 * @param {string} a @param {string} b */
export function byCodePoint(a, b) {
  const [x, y] = [Array.from(a), Array.from(b)]
  const i = x.findIndex((c, n) => c !== y[n])
  if (i < 0 || i >= y.length) return x.length - y.length
  return /** @type {number} */ (x[i].codePointAt(0)) - /** @type {number} */ (y[i].codePointAt(0))
}
