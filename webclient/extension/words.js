// What the device's outcomes mean, for people; and numbers as people read them.

/** @type {Record<string, string>} */
const MEANINGS = {
  sent: 'A randomised report was sent and accepted.',
  waiting: 'A moment for the next report was drawn; nothing is sent before.',
  'nothing new': 'There was nothing to answer.',
  'try later': 'The service did not answer. It is asked again later, and less and less often.',
  'refused by server': 'The service refused the report. What it cost stays spent.',
  expired: 'Time ran out before the report was delivered. What it cost stays spent.',
  'head list refused': 'The service asked for more than your limits allow. Nothing was spent.',
  'clock wrong': 'This computer’s clock and the service’s differ too much. Nothing was spent.',
  'limit reached':
    'Your limit for this period is reached. Nothing is sent until some of it is free.',
  'state unreadable':
    'The browser lost the note of what was spent. Nothing is sent any more: starting anew could spend a second budget.',
  'storage refused': 'The browser did not let the extension store anything. Nothing was spent.',
}

/** @param {string} code */
export const meaningOf = (code) => MEANINGS[code] ?? 'Nothing has happened yet.'

/** Shares are estimates; three digits are more than they can tell. @param {number} share */
export const percent = (share) =>
  (100 * share).toLocaleString(undefined, { maximumFractionDigits: 2, minimumFractionDigits: 2 }) +
  ' %'

/** A share as people read it, marked where the two groups dispute it, and where a query has results
 * that are not in it.
 * @param {{probability: number, disputed: boolean, atLeast?: boolean}} row */
export const shareOf = ({ probability, disputed, atLeast = false }) =>
  (atLeast ? 'at least ' : '') + percent(probability) + (disputed ? ' (disputed)' : '')

/** Which estimate a share is, beside it. Of a disputed one it is this epoch's own.
 * @param {{estimate: string}} row */
export const nameOf = ({ estimate }) => (estimate === 'filtered' ? ' (filtered)' : '')

/** What the numbers of a publication are, in words.
 * @param {{shown: string, epoch: number}} result */
export const aboutShares = ({ shown, epoch }) =>
  shown === 'filtered'
    ? `Filtered: the best guess at epoch ${epoch} from all epochs remembered. Disputed ones are of epoch ${epoch} alone.`
    : `Of epoch ${epoch} alone.`

/** @param {number} seconds */
export const moment = (seconds) => new Date(seconds * 1000).toLocaleString()

/** @param {number} seconds */
export function duration(seconds) {
  for (const [size, name] of /** @type {[number, string][]} */ ([
    [86400, 'day'],
    [3600, 'hour'],
    [60, 'minute'],
  ])) {
    if (seconds >= size && seconds % size === 0) {
      const many = seconds / size
      return `${many} ${name}${many === 1 ? '' : 's'}`
    }
  }
  return `${seconds} second${seconds === 1 ? '' : 's'}`
}
