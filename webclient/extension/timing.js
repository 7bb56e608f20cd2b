// Times of the next requests. They never depend on searches.

/** A browser may end the worker at any moment; this alarm restarts it. */
export const FALLBACK_S = 300
/** Chrome may delay alarms. With at most an hour, a changed clock delays only one look. */
const LONGEST_S = 3600

/** Return the second of the next look, and the number of failures in a row. The client counts them
 * only in memory, and a worker lives for seconds: so this function doubles the client's first pause.
 * @param {{code: string, nextCallAtS: number}} outcome @param {number} failures before this outcome
 * @param {number} nowS @param {number} minWindowS */
export function nextLook({ code, nextCallAtS }, failures, nowS, minWindowS) {
  const pauseS = Math.max(1, nextCallAtS - nowS)
  if (code !== 'try later') return { atS: nowS + Math.min(LONGEST_S, pauseS), failures: 0 }
  const mostS = Math.max(pauseS, Math.min(LONGEST_S, minWindowS))
  const doubledS = Math.min(mostS, pauseS * 2 ** Math.min(failures, 20))
  return { atS: nowS + doubledS, failures: failures + 1 }
}

/** Return true if a new publication may exist: fetch at most once per window, or per hour.
 * @param {number} fetchedAtS @param {number} nowS @param {number} minWindowS */
export const resultIsDue = (fetchedAtS, nowS, minWindowS) =>
  nowS < fetchedAtS || nowS - fetchedAtS >= Math.min(LONGEST_S, minWindowS)
