// When the service is asked next. Never depends on what was searched for, or whether.

/** A browser may end the worker at any moment; then this brings it back. */
export const FALLBACK_S = 300
/** Chrome may put an alarm off; asked within the hour, a changed clock does no lasting harm. */
const LONGEST_S = 3600

/** The second of the next look, and how many failures came in a row. The client counts those only
 * while it lives, and a worker lives for seconds: so its first pause is doubled here.
 * @param {{code: string, nextCallAtS: number}} outcome @param {number} failures before this outcome
 * @param {number} nowS @param {number} minWindowS */
export function nextLook({ code, nextCallAtS }, failures, nowS, minWindowS) {
  const pauseS = Math.max(1, nextCallAtS - nowS)
  if (code !== 'try later') return { atS: nowS + Math.min(LONGEST_S, pauseS), failures: 0 }
  const mostS = Math.max(pauseS, Math.min(LONGEST_S, minWindowS))
  const doubledS = Math.min(mostS, pauseS * 2 ** Math.min(failures, 20))
  return { atS: nowS + doubledS, failures: failures + 1 }
}

/** Whether a new result is worth asking for: at most one in each window, or an hour.
 * @param {number} fetchedAtS @param {number} nowS @param {number} minWindowS */
export const resultIsDue = (fetchedAtS, nowS, minWindowS) =>
  nowS < fetchedAtS || nowS - fetchedAtS >= Math.min(LONGEST_S, minWindowS)
