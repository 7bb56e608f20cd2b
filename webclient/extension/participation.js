// The device as the worker and the pages use it; both share one storage.
import { Device, IndexedDbStore, PublishedResult } from './client.js'
import { matchPattern, queryOf, readSearchPage, resultOf } from './search-page.js'
import { isAddress, sitesOf } from './settings.js'
import { nextLook, resultIsDue, FALLBACK_S } from './timing.js'

/** @typedef {import('./settings.js').Settings} Settings */

const storage = chrome.storage.local
/** @param {...string} names @returns {Promise<any>} */
const stored = (...names) => storage.get(names)
/** A larger result is not kept: the extension's room is 10 MB. */
const MOST_RESULT_BYTES = 4 << 20
const SCRIPT = 'search page'
const ALARM = 'look'

const nowS = () => Math.floor(Date.now() / 1000)

/** IndexedDB has the device's state; that it had begun is noted in the extension's own storage too,
 * which browsers clear apart from it. */
const store = new IndexedDbStore('blendstream', {
  has: async () => (await stored('begun')).begun === true,
  set: () => storage.set({ begun: true }),
})

/** @returns {Promise<Settings | null>} null: nothing was ever decided. */
export const loadSettings = async () => (await stored('settings')).settings ?? null

/** A new one each time: a worker does not live long enough to keep it.
 * @param {Settings} settings */
export const deviceOf = ({ server, limits, optIn }) =>
  new Device({
    server,
    limits: /** @type {any} */ (limits),
    store,
    ...(optIn && { optIn: { ...optIn, token: tokenOf(optIn.token) } }),
  })

/** A token, or how to get one: an application's backend knows who is signed in there, by its own
 * cookies, and gives that person a token for a short time.
 * @param {string} token or the backend's address */
export const tokenOf = (token) =>
  isAddress(token)
    ? async () => {
        const answer = await fetch(token, {
          credentials: 'include',
          cache: 'no-store',
          redirect: 'error',
          referrerPolicy: 'no-referrer',
          signal: AbortSignal.timeout(20_000),
        })
        if (!answer.ok) throw new Error('no token')
        return (await answer.text()).trim()
      }
    : token

/** @param {Settings} settings */
export const isPermitted = (settings) => chrome.permissions.contains({ origins: sitesOf(settings) })

/** Start or change taking part. The settings were checked and the browser gave permission.
 * @param {Settings} settings */
export async function turnOn(settings) {
  await storage.set({ settings: { ...settings, on: true } })
  await watchSearchPage(settings.searchPage)
  await storage.remove(['last', 'failures', 'fetchedAtS'])
  await lookAt(nowS() + 1)
}

/** Turn it off: stop noting, fetching and sending, and delete the noted searches. */
export async function turnOff() {
  const settings = await loadSettings()
  if (!settings) return
  // This also ends opting in, which must not resume when it is turned on again.
  await storage.set({ settings: { ...settings, on: false, optIn: null } })
  await watchSearchPage('')
  await chrome.alarms.clear(ALARM)
  await forget(settings)
}

/** Delete all searches from this device; return true on success. @param {Settings} settings */
export async function forget(settings) {
  for (let tries = 0; tries < 10; tries++) {
    const { code, detail } = await deviceOf(settings).forget()
    if (detail === 'forgotten') return true
    if (code !== 'nothing new') return false // else a report was in progress
  }
  return false
}

/** @param {string} address of the search page, or nothing */
async function watchSearchPage(address) {
  const registered = await chrome.scripting.getRegisteredContentScripts({ ids: [SCRIPT] })
  if (registered.length) await chrome.scripting.unregisterContentScripts({ ids: [SCRIPT] })
  const page = readSearchPage(address)
  if (!page) return
  await chrome.scripting.registerContentScripts([
    { id: SCRIPT, js: ['content.js'], matches: [matchPattern(page)], runAt: 'document_start' },
  ])
}

/** @param {number} atS */
const lookAt = (atS) => chrome.alarms.create(ALARM, { when: atS * 1000 })

/** Call after the browser started: it may have lost the alarms. */
export async function wake() {
  const settings = await loadSettings()
  if (!settings?.on) return
  if (!(await isPermitted(settings))) await turnOff()
  else if (!(await chrome.alarms.get(ALARM))) await lookAt(nowS() + 1)
}

/** Report if due, fetch the newest publication, and schedule the next call. */
export async function look() {
  const settings = await loadSettings()
  if (!settings?.on) return
  await lookAt(nowS() + FALLBACK_S)
  const { failures = 0, fetchedAtS = 0 } = await stored('failures', 'fetchedAtS')
  const outcome = await deviceOf(settings).maybeReport()
  const next = nextLook(outcome, failures, nowS(), settings.limits.minWindowS)
  const { code, detail, epoch } = outcome
  await storage.set({ failures: next.failures, last: { code, detail, epoch, atS: nowS() } })
  if (code !== 'try later' && resultIsDue(fetchedAtS, nowS(), settings.limits.minWindowS)) {
    await fetchResult(settings)
  }
  // No search noted from now on could ever be reported.
  if (code === 'state unreadable') await turnOff()
  // Somebody may have turned it off during these requests.
  if ((await loadSettings())?.on) await lookAt(Math.max(next.atS, nowS() + 1))
}

/** Keep the newest publication that has rows, for searching it without a network.
 * @param {Settings} settings */
async function fetchResult({ server }) {
  try {
    // Like the client's requests: no cookies, no cache, nothing that identifies this device.
    const response = await fetch(server.replace(/\/+$/, '') + '/v1/estimates/latest', {
      credentials: 'omit',
      cache: 'no-store',
      redirect: 'error',
      referrerPolicy: 'no-referrer',
      signal: AbortSignal.timeout(20_000),
    })
    const text = response.ok ? await textOf(response) : null
    if (text !== null && PublishedResult.read(text)?.empty === false) {
      await storage.set({ result: text })
    }
    await storage.set({ fetchedAtS: nowS() })
  } catch {
    // Asked again at the next look.
  }
}

/** @param {Response} response @returns {Promise<string | null>} null: too long. */
async function textOf(response) {
  const reader = response.body?.getReader()
  /** @type {BlobPart[]} */ const parts = []
  let size = 0
  for (let part; (part = await reader?.read()) && !part.done;) {
    size += part.value.length
    if (size > MOST_RESULT_BYTES) {
      await reader?.cancel()
      return null
    }
    parts.push(part.value)
  }
  return new Blob(parts).text()
}

/** The publication kept last, if any. */
export async function storedResult() {
  const { result } = await stored('result')
  return typeof result === 'string' ? PublishedResult.read(result) : null
}

/** What became of the last look. @returns {Promise<{code: string, detail: string, atS: number} | null>} */
export const lastLook = async () => (await stored('last')).last ?? null

/** The page that comes with the extension, for trials. */
const samplePage = {
  origin: new URL(chrome.runtime.getURL('')).origin,
  path: '/sample.html',
  parameter: 'q',
}

/** Note a click on the search page, if it is one. The query is read from the page's address, which
 * the browser states; a page could make its own scripts say anything.
 * @param {unknown} link @param {string} address of the page
 * @returns {Promise<string | null>} what became of it; null: it was nothing to note. */
export async function note(link, address) {
  const settings = await loadSettings()
  if (!settings?.on) return null
  for (const page of [samplePage, readSearchPage(settings.searchPage)]) {
    const query = page && queryOf(page, address)
    const result = page && resultOf(page, link)
    if (query && result) return (await deviceOf(settings).record(query, result)).code
  }
  return null
}
