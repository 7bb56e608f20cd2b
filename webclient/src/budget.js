// What a device allows and what it has spent: rules that no server can change. Protocol, 5.

/** ε and δ are for data that differ in the values of one person's records (replace-one). The first
 * five have no default: a budget that nobody chose is nobody's promise.
 * @typedef {{epsilonPerReport: number, deltaPerReport: number, epsilonPerPeriod: number,
 *   deltaPerPeriod: number, periodS: number, maxAnswers?: number, maxOptinRecords?: number,
 *   maxHeadListBytes?: number, maxCellsPerAnswer?: number, maxCohorts?: number,
 *   minWindowS?: number, maxWindowS?: number, maxWaitS?: number, maxClockSkewS?: number,
 *   keepRecordsS?: number, maxRecordBytes?: number}} GivenLimits */
/** @typedef {Required<GivenLimits>} Limits */
/** @typedef {'report' | 'opt-in'} Mode */
/** @typedef {{mode: Mode, epoch: number, subject: string, window_start_s: number,
 *   window_end_s: number, at_s: number, epsilon: number, delta: number}} Claim */

const DAY = 86400
const DEFAULTS = {
  maxAnswers: 4,
  maxOptinRecords: 10,
  maxHeadListBytes: 8 << 20,
  maxCellsPerAnswer: 1024,
  maxCohorts: 366,
  minWindowS: 3600,
  maxWindowS: 31 * DAY,
  maxWaitS: 2 * DAY,
  maxClockSkewS: 900,
  keepRecordsS: 45 * DAY,
  maxRecordBytes: 4 << 20,
}
/** Claims are kept for a year at least: who shortens a period and lengthens it spends no more. */
const REMEMBER_S = 366 * DAY

/** @param {GivenLimits} given @returns {Limits} */
export function checkedLimits(given) {
  /** @type {any} */ const limits = { ...DEFAULTS, ...given }
  /** @type {(holds: boolean, what: string) => void} */
  const must = (holds, what) => {
    if (!holds) throw new RangeError('limits: ' + what)
  }
  for (const [name, value] of Object.entries(limits)) {
    if (/^epsilon/.test(name)) must(Number.isFinite(value) && value > 0, name + ' above 0')
    else if (/^delta/.test(name))
      must(Number.isFinite(value) && value >= 0 && value < 1, name + ' in [0, 1)')
    else must(Number.isSafeInteger(value) && value > 0, name + ': whole, at least 1')
  }
  must(
    Object.keys(limits).length === 16 && 'periodS' in limits,
    'epsilonPerReport, deltaPerReport, epsilonPerPeriod, deltaPerPeriod and periodS, no unknown ones',
  )
  must(limits.epsilonPerReport <= limits.epsilonPerPeriod, 'a report within the period')
  must(limits.deltaPerReport <= limits.deltaPerPeriod, 'a report within the period')
  must(limits.minWindowS <= limits.maxWindowS, 'minWindowS <= maxWindowS')
  must(limits.maxWindowS <= limits.keepRecordsS, 'maxWindowS <= keepRecordsS')
  return limits
}

/** The decimal number as written, times 10^400: three reports at 0.1 fit a limit of 0.3.
 * @param {number} x */
function decimal(x) {
  const [digits, e] = x.toExponential().split('e')
  const [whole, part = ''] = digits.split('.')
  return BigInt(whole + part) * 10n ** BigInt(400 + +e - part.length)
}

/** @param {Claim[]} claims @param {Limits} limits @param {number} nowS */
function sums(claims, limits, nowS) {
  let [epsilon, delta] = [0n, 0n]
  for (const claim of claims) {
    if (claim.at_s > nowS - limits.periodS) {
      epsilon += decimal(claim.epsilon)
      delta += decimal(claim.delta)
    }
  }
  return [epsilon, delta]
}

/** (ε, δ) spent within the period that ends now.
 * @param {Claim[]} claims @param {Limits} limits @param {number} nowS */
export const spent = (claims, limits, nowS) =>
  sums(claims, limits, nowS).map((sum) => Number(sum + 'e-400'))

/** @typedef {{what: string, detail: string, freeAtS?: number}} Refusal */

/** Why the claim's window or time does not come after what was answered last; null if it does.
 * @param {Claim[]} claims @param {Claim} claim @returns {Refusal | null} */
export function checkFollows(claims, claim) {
  const last = claims.at(-1)
  if (last && claim.at_s < last.at_s) {
    return {
      what: 'clock wrong',
      detail: `the last report was made at ${last.at_s}; set the clock`,
    }
  }
  if (last && claim.window_start_s < last.window_end_s) {
    return { what: 'head list refused', detail: 'windows must not overlap or go back' }
  }
  return null
}

/** Why this claim may not be added now; null if it may.
 * @param {Claim[]} claims @param {Claim} claim @param {Limits} limits @returns {Refusal | null} */
export function checkClaim(claims, claim, limits) {
  /** @param {number} atS */
  const fits = (atS) => {
    const [epsilon, delta] = sums(claims, limits, atS)
    return (
      epsilon + decimal(claim.epsilon) <= decimal(limits.epsilonPerPeriod) &&
      delta + decimal(claim.delta) <= decimal(limits.deltaPerPeriod)
    )
  }
  const refusal = checkFollows(claims, claim)
  if (refusal || fits(claim.at_s)) return refusal
  const times = claims.map((old) => Math.max(claim.at_s, old.at_s + limits.periodS))
  const freeAtS = times.find(fits)
  return { what: 'limit reached', detail: `the next report fits at ${freeAtS}`, freeAtS }
}

/** @param {Claim[]} claims @param {Claim} claim @param {Limits} limits @returns {Claim[]} */
export function withClaim(claims, claim, limits) {
  const rememberS = Math.max(limits.periodS, REMEMBER_S)
  return [...claims.filter((old) => old.at_s > claim.at_s - rememberS), claim]
}
