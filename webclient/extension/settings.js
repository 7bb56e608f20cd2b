// What a person decided, checked: without all of it the extension stays off.
import { Device, MemoryStore } from './client.js'
import { readSearchPage, sitePattern } from './search-page.js'

/** `optIn` is null unless the person agreed, apart from the rest, to send searches as they are.
 * `searchPage` may be empty: then only the bundled sample page is looked at.
 * @typedef {{on: boolean, server: string, searchPage: string, limits: Record<string, number>,
 *   optIn: {userId: string, token: string} | null}} Settings */

/** Every limit: its name, what it means, the value it starts with. Null: a person must choose.
 * @type {[string, string, number | null][]} */
export const LIMITS = [
  ['epsilonPerReport', 'ε of one report, at most', null],
  ['deltaPerReport', 'δ of one report, at most', null],
  ['epsilonPerPeriod', 'ε of all reports of a period, at most', null],
  ['deltaPerPeriod', 'δ of all reports of a period, at most', null],
  ['periodS', 'Length of that period, in seconds', null],
  ['maxAnswers', 'Answers in one report, at most', 4],
  ['maxOptinRecords', 'Searches sent as they are in one window, at most', 10],
  ['minWindowS', 'Shortest window of time to report on, in seconds', 3600],
  ['maxWindowS', 'Longest window, in seconds', 31 * 86400],
  ['maxWaitS', 'Longest wait before a report is sent, in seconds', 2 * 86400],
  ['maxClockSkewS', 'Most that this clock and the service’s may differ, in seconds', 900],
  ['keepRecordsS', 'Searches stay on this device for at most, in seconds', 45 * 86400],
  ['maxRecordBytes', 'Room for searches on this device, in bytes', 4 << 20],
  ['maxHeadListBytes', 'Largest list of records to download, in bytes', 1 << 20],
  ['maxCellsPerAnswer', 'Cells in one answer, at most', 1024],
  ['maxCohorts', 'Groups that take turns, at most', 366],
]

/** For invented searches against `make demo`, whose windows last seconds. */
export const TRIAL_LIMITS = {
  epsilonPerReport: 4,
  deltaPerReport: 0.00001,
  epsilonPerPeriod: 100_000,
  deltaPerPeriod: 0.5,
  periodS: 86400,
  minWindowS: 5,
}

/** Whether this is the address of a backend that gives tokens, and not a token.
 * @param {string} token */
export const isAddress = (token) => /^https?:\/\//.test(token)

/** Why these settings cannot be used, in a sentence; null if they can.
 * @param {Settings} settings @returns {string | null} */
export function problemOf({ server, searchPage, limits, optIn }) {
  for (const [name, label] of LIMITS) {
    if (!Number.isFinite(limits[name])) return `“${label}” must be a number.`
  }
  if (searchPage && !readSearchPage(searchPage)) {
    return 'The search page must be an https:// address with %s as the value of one parameter, such as https://search.example/find?q=%s.'
  }
  try {
    new URL(server)
  } catch {
    return 'The service’s address must be complete, such as https://gateway.example.'
  }
  try {
    new Device({
      server,
      limits: /** @type {any} */ (limits),
      store: new MemoryStore(),
      ...(optIn && { optIn }),
    })
  } catch (error) {
    return `It must hold: ${/** @type {Error} */ (error).message}.`
  }
  if (optIn && isAddress(optIn.token) && !isSafe(optIn.token)) {
    return 'The address that gives you a token must begin with https://.'
  }
  return null
}

/** @param {string} address */
function isSafe(address) {
  try {
    const { protocol, hostname } = new URL(address)
    return protocol === 'https:' || ['localhost', '127.0.0.1'].includes(hostname)
  } catch {
    return false
  }
}

/** The sites that the browser must give permission for. @param {Settings} settings */
export const sitesOf = ({ server, searchPage, optIn }) => [
  ...new Set([server, searchPage, optIn?.token ?? ''].filter(isAddress).map(sitePattern)),
]
