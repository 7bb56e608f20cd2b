// Full case folding (statuses C and F) of Unicode 14.0.0; made by make_folding.py.
// Runs that fold to one: gap, length (below 0: every other), distance; then what folds to several.
// What is not here folds as its parts do, once the text is composed again.
const RUNS =
  '1t q w 2i 1 lj g -d w 1c -c 1 a 1 1 c -2 1 7 -f 1 n 1 -7g 1 1 5u 0 -2 1 0 1 5q 0 1 1 1 2 5p 0 1 1 2 1 27 0 1 5m 0 1 5n 0 1 1 1 1 5p 0 1 5r 1 1 5v 0 1 5t 0 1 1 3 1 5v 0 1 5x 1 1 5y 2 -2 1 0 1 62 0 1 1 1 1 62 2 1 1 1 1 62 2 2 61 0 -2 1 0 1 63 0 1 1 3 1 1 7 1 2 0 1 1 1 1 2 0 1 1 1 1 2 0 1 1 o 1 1 c 1 2 0 1 1 3 1 -2p 0 1 -1k 10 1 1 3 1 -3m 1 -2 1 k 1 8bv 0 1 1 1 1 -4j 0 1 8bs 2 1 1 1 1 -5f 0 1 1x 0 1 1z 0 -5 1 6t 1 38 16 -2 1 2 1 1 8 1 38 h h w 1 7 w o 1 1 c 1 8 0 1 -u 0 1 -p 3 1 -f 0 1 -m 1 -c 1 0 1 -1i 0 1 -1c 2 1 -1o 0 1 -1s 1 1 1 1 1 -7 0 1 1 2 3 -3m 2 e 28 0 w w 1c -h 1 8 -r 1 0 1 f 2 -6 1 5 -1a 1 1 12 1c 289 12 5ls 1 1 5ls 5 1 5ls mi 6 -8 1oi 1 -4su 0 1 -4st 0 1 -4sk 0 2 -4si 0 1 -4sj 0 1 -4sc 0 1 -4ro 0 1 r7n 7 17 -2bk 2 3 -2bk fu -3 1 fm 1 s 19 g g j 1 1 mq q q 1f4 1c 1c 1c 1 1 1 1 -8af 0 1 -2xy 0 1 -89z 2 -3 1 0 1 -8bg 0 1 -8al 0 1 -8bj 0 1 -8bi 1 1 1 2 1 1 8 2 -8cf 0 -1e 1 7 -2 1 3 1 1 nyl -n 1 i -e 1 3q -7 1 2 -v 1 9 -2 1 0 1 -r9g 0 -5 1 3 1 1 1 1 -wmg 2 -2 1 2 -a 1 0 1 -wn8 0 1 -wnj 0 1 -wnf 0 1 -wn5 0 1 -wn8 1 1 -wlu 0 1 -wmi 0 1 -wlx 0 1 ps 0 -8 1 0 1 -1c 0 1 -wn7 0 1 -raw 0 -2 1 5 1 1 5 -2 1 r 1 1 oq 28 -tzk ggx q w xx 14 14 3s 10 14 4c b 13 1 f 13 1 7 13 1 2 13 1d6 1f 1s 2ct w w gw0 w w o80 y y'
const SEVERAL =
  '\u00dfss \u0149\u02bcn \u0587\u0565\u0582 \u1e9aa\u02be \u1e9ess \ufb00ff \ufb01fi \ufb02fl \ufb03ffi \ufb04ffl \ufb05st \ufb06st \ufb13\u0574\u0576 \ufb14\u0574\u0565 \ufb15\u0574\u056b \ufb16\u057e\u0576 \ufb17\u0574\u056d'

/** @type {Map<string, string>} */
const table = new Map()
const numbers = RUNS.split(' ').map((word) => parseInt(word, 36))
for (let i = 0, next = 0; i < numbers.length; i += 3) {
  const [gap, length, distance] = numbers.slice(i, i + 3)
  next += gap
  for (let n = Math.abs(length); n--; next += length < 0 ? 2 : 1) {
    table.set(String.fromCodePoint(next), String.fromCodePoint(next + distance))
  }
}
for (const word of SEVERAL.split(' ')) {
  const [from, ...to] = word
  table.set(from, to.join(''))
}

/** @param {string} text @param {(c: string) => string} [other] */
const each = (text, other = (c) => c) => Array.from(text, (c) => table.get(c) ?? other(c)).join('')
/** Still to be composed.
 * @param {string} text @returns {string} */
export const fold = (text) => each(text, (c) => each(c.normalize('NFD')))
