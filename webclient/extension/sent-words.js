// What was sent, in plain sentences for the person it belongs to. Every bound is rounded up, so no
// sentence promises more than ε and δ do.
import { duration, moment } from './words.js'

/** @typedef {Extract<Awaited<ReturnType<import('./client.js').Device['sentLog']>>,
 *   {document: unknown}>['document']} SentDocument */
/** @typedef {SentDocument['sent'][number]} SentEntry */
/** @typedef {{cell: number, query: string | null, url: string | null}} SentCell */

/** Above, the odds say nothing to anyone. */
const LARGEST_ODDS = 1e6
const PRIOR = 0.01

/** @type {Record<string, string>} */
const RESULTS = {
  pending: 'not yet confirmed by the service',
  dropped: 'withdrawn before the service confirmed it',
  sent: 'accepted by the service',
  'nothing new': 'not counted, because another group of people took part',
  'refused by server': 'refused by the service; what it cost stays spent',
  expired: 'the service did not confirm it in time; what it cost stays spent',
}

/** @param {string} result */
export const resultInWords = (result) => RESULTS[result] ?? result

/** @param {number} amount */
export const amountInWords = (amount) =>
  amount.toLocaleString(undefined, { maximumSignificantDigits: 12 })

/** @param {number} number @param {number} digits rounded up */
const roundedUp = (number, digits) =>
  (Math.ceil(number * 10 ** digits) / 10 ** digits).toFixed(digits)

/** e^ε as odds. @param {number} epsilon */
export function oddsInWords(epsilon) {
  const odds = Math.exp(epsilon)
  if (odds > LARGEST_ODDS) return 'more than 1 000 000 to 1'
  return `${roundedUp(odds, odds >= 10 ? 0 : 1)} to 1`
}

/** The highest probability that a report can raise `prior` to. @param {number} epsilon */
export function posteriorInWords(epsilon, prior = PRIOR) {
  const odds = (Math.exp(Math.min(epsilon, 700)) * prior) / (1 - prior)
  const percent = (100 * odds) / (1 + odds)
  const text = roundedUp(percent, percent >= 10 ? 0 : 1)
  return Number(text) >= 100 ? 'almost 100 %' : `${text} %`
}

/** What a cell stands for: one text, or a query and its result, which are strangers' texts.
 * @param {SentCell} cell @returns {string[]} */
export const cellInWords = ({ query, url }) =>
  query === null
    ? ['anything that is not listed, or no search']
    : [query, url ?? 'a result that is not listed']

/** @param {{window_start_s: number, window_end_s: number}} window */
export const windowInWords = ({ window_start_s, window_end_s }) =>
  `your searches from ${moment(window_start_s)} to ${moment(window_end_s)}`

/** One answer: a sentence, and the texts that it named. An answer "none" of this randomizer fills
 * up with the first records, which mean nothing.
 * @param {SentEntry} entry @param {SentCell[]} answer
 * @returns {{sentence: string, texts: string[][]}} */
export function answerInWords({ randomizer, listed, cells }, answer) {
  if (randomizer === 'subset-or-none' && answer.at(-1)?.query === null) {
    return {
      sentence: `“None of the ${listed} listed records”, drawn at random.`,
      texts: [],
    }
  }
  const these = answer.length > 1 ? `These ${answer.length}` : 'This one'
  return {
    sentence: `${these} of ${cells} possible answers, drawn at random:`,
    texts: answer.map(cellInWords),
  }
}

/** What was sent of searches that went unchanged. @param {SentEntry} entry */
export const unchangedInWords = ({ searches }) =>
  searches
    ? `${searches} ${searches === 1 ? 'search' : 'searches'}, unchanged and with your user id. The text is not kept here. The operator of the service can read it.`
    : 'With your user id, that you had no search to send.'

/** What an entry can reveal at most. @param {SentEntry} entry */
export const boundInWords = ({ epsilon, delta }) =>
  `It can shift the odds about your searches by at most ${oddsInWords(epsilon)} (ε = ${amountInWords(epsilon)}). Someone who thinks it 1 % likely that you searched for one thing rather than another can think it at most ${posteriorInWords(epsilon)} likely after seeing it.` +
  (delta
    ? ` With a probability of at most ${amountInWords(delta)} (δ) it can shift them further.`
    : '')

/** @param {SentDocument} document @param {boolean} on */
export function nextInWords({ next, limits }, on) {
  if (!on) return 'Nothing: the extension is off.'
  if (!next) {
    return `Nothing is scheduled. This device asks the service again later. A question may cost at most ε ${amountInWords(limits.epsilon_per_report)}.`
  }
  const when = `At ${moment(next.send_at_s)}, about ${windowInWords(next)}. `
  if (next.mode === 'opt-in') {
    return `${when}Up to ${next.records} searches are sent unchanged, with your user id.`
  }
  const answers = next.records === 1 ? '1 answer' : `${next.records} answers`
  return `${when}The service asks which of ${next.listed} listed records they are; this device sends ${answers}, drawn at random. It will cost ε ${amountInWords(next.epsilon)}: a shift of the odds by at most ${oddsInWords(next.epsilon)}.`
}

/** The budget, as pairs of a name and a sentence. @param {SentDocument} document
 * @returns {[string, string][]} */
export function budgetInWords({ limits, spent, left, next_fit_s, at_s }) {
  const fits = next_fit_s <= at_s ? 'now' : `from ${moment(next_fit_s)} on`
  const of = (/** @type {number} */ amount, /** @type {number} */ most) =>
    `${amountInWords(amount)} of ${amountInWords(most)}`
  return [
    ['Period', duration(limits.period_s)],
    ['ε left', of(left.epsilon, limits.epsilon_per_period)],
    ['δ left', of(left.delta, limits.delta_per_period)],
    [
      'All reports of the period',
      spent.epsilon
        ? `can shift the odds about your searches by at most ${oddsInWords(spent.epsilon)}`
        : 'none',
    ],
    [
      'Another report',
      `at your limit of ε ${amountInWords(limits.epsilon_per_report)} fits ${fits}`,
    ],
  ]
}
