// Text that strangers typed: neither its direction nor its controls reach the words around it.

// Characters that change the direction of the text after them, and are not visible themselves.
const DIRECTION = /([\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069])/u
const RIGHT_TO_LEFT =
  /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u
/** @param {string} control */
const named = (control) =>
  `U+${(control.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`

/** An element that shows typed text, with each control of direction by its name. A URL is read from
 * left to right. @param {string} text @param {'auto' | 'ltr'} [direction] */
export function typed(text, direction = 'auto') {
  const shown = Object.assign(document.createElement('bdi'), { dir: direction })
  for (const piece of text.split(DIRECTION)) {
    const mark = () =>
      Object.assign(document.createElement('span'), {
        className: 'control',
        title: 'A control character that changes the direction of text',
        textContent: named(piece),
      })
    shown.append(DIRECTION.test(piece) ? mark() : piece)
  }
  return shown
}

/** The same where only text is possible: isolated by two invisible characters of ours, unless
 * nothing in it is written from right to left. @param {string} text */
export function quoted(text) {
  const visible = text
    .split(DIRECTION)
    .map((piece) => (DIRECTION.test(piece) ? `[${named(piece)}]` : piece))
    .join('')
  return RIGHT_TO_LEFT.test(visible) ? `\u2068${visible}\u2069` : visible
}
