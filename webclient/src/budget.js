// The device's limits and privacy budget, which no server can change. Protocol, 5.

/** ε and δ are for data that differ in the values of one person's records (replace-one). The first
 * five have no default: no budget without somebody's choice.
 * @typedef {{epsilonPerReport: number, deltaPerReport: number, epsilonPerPeriod: number,
 *   deltaPerPeriod: number, periodS: number, maxAnswers?: number, maxOptinRecords?: number,
 *   maxHeadListBytes?: number, maxCellsPerAnswer?: number, maxCohorts?: number,
 *   minWindowS?: number, maxWindowS?: number, maxWaitS?: number, maxClockSkewS?: number,
 *   keepRecordsS?: number, maxRecordBytes?: number}} GivenLimits */
/** @typedef {Required<GivenLimits>} Limits */
/** @typedef {'report' | 'opt-in'} Mode */
/** @typedef {{mode: Mode, epoch: number, subject: string, window_start_s: number,
 *   window_end_s: number, at_s: number, epsilon: number, delta: number,
 *   submission: Submission | null}} BudgetEntry */
/** A cell that an answer named: its number, query and URL; null is ⋆.
 * @typedef {[number, string | null, string | null]} SentCell */
/** What was sent for one window: the randomised answers, or how many searches unchanged. `result`
 * is "pending", "dropped" or the code of the delivery.
 * @typedef {{randomizer: string, listed: number, cells: number, answers: SentCell[][] | null,
 *   searches: number, result: string, finished_at_s: number | null}} Submission */

const DAY = 86400
const DEFAULTS = {
  maxAnswers: 4,
  maxOptinRecords: 10,
  maxHeadListBytes: 1 << 20,
  maxCellsPerAnswer: 1024,
  maxCohorts: 366,
  minWindowS: 3600,
  maxWindowS: 31 * DAY,
  maxWaitS: 2 * DAY,
  maxClockSkewS: 900,
  keepRecordsS: 45 * DAY,
  maxRecordBytes: 4 << 20,
}
/** Entries stay for a year at least: to shorten a period and lengthen it again frees no budget. */
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

/** @param {BudgetEntry[]} entries @param {Limits} limits @param {number} nowS */
function sums(entries, limits, nowS) {
  let [epsilon, delta] = [0n, 0n]
  for (const entry of entries) {
    if (entry.at_s > nowS - limits.periodS) {
      epsilon += decimal(entry.epsilon)
      delta += decimal(entry.delta)
    }
  }
  return [epsilon, delta]
}

/** Returns the (ε, δ) spent within the period that ends now.
 * @param {BudgetEntry[]} entries @param {Limits} limits @param {number} nowS */
export const totalSpent = (entries, limits, nowS) =>
  sums(entries, limits, nowS).map((sum) => Number(sum + 'e-400'))

/** Returns the (ε, δ) that reports may still spend now.
 * @param {BudgetEntry[]} entries @param {Limits} limits @param {number} nowS */
export const totalLeft = (entries, limits, nowS) =>
  left(entries, limits, nowS).map((amount) => (amount > 0n ? Number(amount + 'e-400') : 0))

/** Returns the first second, from now on, at which a report at the device's own limit fits.
 * @param {BudgetEntry[]} entries @param {Limits} limits @param {number} nowS */
export const nextFitS = (entries, limits, nowS) =>
  firstFit(entries, limits, nowS, limits.epsilonPerReport, limits.deltaPerReport)

/** @param {BudgetEntry[]} entries @param {Limits} limits @param {number} nowS */
function left(entries, limits, nowS) {
  const [epsilon, delta] = sums(entries, limits, nowS)
  return [decimal(limits.epsilonPerPeriod) - epsilon, decimal(limits.deltaPerPeriod) - delta]
}

/** Now, or when enough old entries have left the period. Within its own limits a report fits then.
 * @param {BudgetEntry[]} entries @param {Limits} limits @param {number} nowS
 * @param {number} epsilon @param {number} delta @returns {number} */
function firstFit(entries, limits, nowS, epsilon, delta) {
  const times = entries.map((old) => Math.max(nowS, old.at_s + limits.periodS))
  const found = [nowS, ...times].find((atS) => {
    const [most, mostDelta] = left(entries, limits, atS)
    return decimal(epsilon) <= most && decimal(delta) <= mostDelta
  })
  return /** @type {number} */ (found)
}

/** @typedef {{code: string, detail: string, freeAtS?: number}} Refusal */

/** Returns why the entry's window or time does not follow the last entry's; null if it does.
 * @param {BudgetEntry[]} entries @param {BudgetEntry} entry @returns {Refusal | null} */
export function checkFollows(entries, entry) {
  const last = entries.at(-1)
  if (last && entry.at_s < last.at_s) {
    return {
      code: 'clock wrong',
      detail: `the last report was made at ${last.at_s}; set the clock`,
    }
  }
  if (last && entry.window_start_s < last.window_end_s) {
    return { code: 'head list refused', detail: 'windows must not overlap or go back' }
  }
  return null
}

/** Returns why this entry may not be added now; null if it may.
 * @param {BudgetEntry[]} entries @param {BudgetEntry} entry @param {Limits} limits @returns {Refusal | null} */
export function checkEntry(entries, entry, limits) {
  const refusal = checkFollows(entries, entry)
  if (refusal) return refusal
  const freeAtS = firstFit(entries, limits, entry.at_s, entry.epsilon, entry.delta)
  if (freeAtS === entry.at_s) return null
  const detail =
    `reports must stay within epsilonPerPeriod ${limits.epsilonPerPeriod} and deltaPerPeriod ` +
    `${limits.deltaPerPeriod} in ${limits.periodS} s; the next fits at ${freeAtS}`
  return { code: 'limit reached', detail, freeAtS }
}

/** @param {BudgetEntry[]} entries @param {BudgetEntry} entry @param {Limits} limits @returns {BudgetEntry[]} */
export function addEntry(entries, entry, limits) {
  const rememberS = Math.max(limits.periodS, REMEMBER_S)
  return [...entries.filter((old) => old.at_s > entry.at_s - rememberS), entry]
}
