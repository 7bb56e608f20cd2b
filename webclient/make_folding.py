"""Write webclient/src/folding.js anew: Unicode's full case folding as Python knows it.

JavaScript has no case folding. `toLowerCase` is none (it keeps ß, and depends on the place of a
sigma), and it would change with the browser's version of Unicode.

Left out is what folds as the parts do that it decomposes into: À, as A with a grave. The text is
composed afterwards, so both come to the same.

    python webclient/make_folding.py > webclient/src/folding.js
"""

from __future__ import annotations

import unicodedata

#: Python 3.11's. Later versions add characters: `normalise.json` would tell if more folded.
UNICODE = "14.0.0"

HEAD = """\
// Full case folding (statuses C and F) of Unicode {version}; made by make_folding.py.
// Runs that fold to one: gap, length (below 0: every other), distance; then what folds to several.
// What is not here folds as its parts do, once the text is composed again.
const RUNS =
  '{runs}'
const SEVERAL =
  '{several}'

/** @type {{Map<string, string>}} */
const table = new Map()
const numbers = RUNS.split(' ').map((word) => parseInt(word, 36))
for (let i = 0, next = 0; i < numbers.length; i += 3) {{
  const [gap, length, distance] = numbers.slice(i, i + 3)
  next += gap
  for (let n = Math.abs(length); n--; next += length < 0 ? 2 : 1) {{
    table.set(String.fromCodePoint(next), String.fromCodePoint(next + distance))
  }}
}}
for (const word of SEVERAL.split(' ')) {{
  const [from, ...to] = word
  table.set(from, to.join(''))
}}

/** @param {{string}} text @param {{(c: string) => string}} [other] */
const each = (text, other = (c) => c) => Array.from(text, (c) => table.get(c) ?? other(c)).join('')
/** Still to be composed.
 * @param {{string}} text @returns {{string}} */
export const fold = (text) => each(text, (c) => each(c.normalize('NFD')))
"""


def base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = ""
    rest = abs(number)
    while rest or not text:
        rest, digit = divmod(rest, 36)
        text = digits[digit] + text
    return "-" * (number < 0) + text


def runs(single: dict[int, int], needed: set[int]) -> list[tuple[int, int, int, int]]:
    """(first, length, step, distance): longest runs of a constant distance, step 1 or 2."""
    found = []
    left = sorted(needed)
    while left:
        first = left[0]
        distance = single[first]

        def length(step: int, first: int = first, distance: int = distance) -> int:
            n = 1
            while single.get(first + n * step) == distance:
                # A run in steps of two may not pass over a character that is needed, too.
                if step == 2 and first + n * 2 - 1 in needed:
                    break
                n += 1
            while first + (n - 1) * step not in needed:
                n -= 1
            return n

        step = max((1, 2), key=length)
        n = length(step)
        found.append((first, n, step, distance))
        covered = {first + i * step for i in range(n)}
        left = [point for point in left if point not in covered]
    return found


def folds_as_its_parts(point: int) -> bool:
    """Whether folding what it decomposes into gives the same, once both are decomposed."""
    parts = unicodedata.normalize("NFD", chr(point))
    whole = unicodedata.normalize("NFD", chr(point).casefold())
    return parts != chr(point) and unicodedata.normalize("NFD", parts.casefold()) == whole


def main() -> None:
    folded = {c: f for c in range(0x110000) if (f := chr(c).casefold()) != chr(c)}
    single = {c: ord(f) - c for c, f in folded.items() if len(f) == 1}
    needed = {c for c in folded if not folds_as_its_parts(c)}
    words, place = [], 0
    for first, n, step, distance in runs(single, needed & set(single)):
        words += [first - place, n if step == 1 else -n, distance]
        place = first + n * step
    several = [chr(c) + f for c, f in folded.items() if len(f) > 1 and c in needed]
    print(
        HEAD.format(
            version=UNICODE,
            runs=" ".join(map(base36, words)),
            several=" ".join(w.encode("ascii", "js_escape").decode() for w in several),
        ),
        end="",
    )


def js_escape(error: UnicodeError) -> tuple[str, int]:
    """Combining marks in a source file are easily changed by an editor: all of them escaped."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(f"\\u{ord(c):04x}" for c in text), error.end


if __name__ == "__main__":
    import codecs

    codecs.register_error("js_escape", js_escape)
    main()
