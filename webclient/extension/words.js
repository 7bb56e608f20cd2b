// Outcomes of the device as sentences for people, and numbers as people read them.

/** @type {Record<string, string>} */
const MEANINGS = {
  sent: 'A randomised report was sent and accepted.',
  waiting: 'The time of the next report was drawn at random; nothing is sent before it.',
  'nothing new': 'There was nothing to answer.',
  'try later':
    'The service did not accept or answer. The extension tries again later, each time after a longer pause.',
  'refused by server': 'The service refused the report. Its budget stays spent.',
  expired: 'Time ran out before the report was delivered. Its budget stays spent.',
  'head list refused': 'The service asked for more than your limits allow. Nothing was spent.',
  'clock wrong': 'This computer’s clock and the service’s differ too much. Nothing was spent.',
  'limit reached':
    'Your limit for this period is reached. Nothing is sent until some of it is free.',
  'state unreadable':
    'The browser lost the record of what was spent. Nothing is sent any more, because a new start could spend a second budget.',
  'storage refused': 'The browser did not let the extension store anything. Nothing was spent.',
}

/** @param {string} code */
export const meaningOf = (code) => MEANINGS[code] ?? 'Nothing has happened yet.'

/** Shares are estimates; more digits would be noise. @param {number} share */
export const percent = (share) =>
  (100 * share).toLocaleString(undefined, { maximumFractionDigits: 2, minimumFractionDigits: 2 }) +
  ' %'

/** Return a share as text, marked if it is disputed, or a lower bound because some of a query's
 * results are not in it.
 * @param {{probability: number, disputed: boolean, atLeast?: boolean}} row */
export const shareOf = ({ probability, disputed, atLeast = false }) =>
  (atLeast ? 'at least ' : '') + percent(probability) + (disputed ? ' (disputed)' : '')

/** Return a mark for filtered shares. A disputed share is this epoch's own.
 * @param {{estimate: string}} row */
export const nameOf = ({ estimate }) => (estimate === 'filtered' ? ' (filtered)' : '')

/** Describe the numbers of a publication.
 * @param {{shown: string, epoch: number}} result */
export const aboutShares = ({ shown, epoch }) =>
  shown === 'filtered'
    ? `Filtered: the best estimate of epoch ${epoch} from all remembered epochs. Disputed shares are of epoch ${epoch} alone.`
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
