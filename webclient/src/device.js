// What an application embeds: keeps searches on the device, answers each head list once, privately.
// docs/device-protocol.md says what every step is for; a server may be hostile, slow or away.
import { addEntry, checkEntry, checkedLimits, checkFollows, totalSpent } from './budget.js'
import { cellsOf, idOf, readHeadList } from './document.js'
import { fits, normalise, NORMALISATION } from './normalise.js'
import {
  describeAnswers,
  finishLast,
  noteSubmission,
  sentDocument,
  withoutAnswers,
} from './sent-log.js'
import { below, makeReport, randomizerFor, shuffled, systemDice } from './randomizers.js'

/** @typedef {import('./budget.js').BudgetEntry} BudgetEntry */
/** @typedef {import('./budget.js').GivenLimits} GivenLimits */
/** @typedef {import('./budget.js').Limits} Limits */
/** @typedef {import('./budget.js').Mode} Mode */
/** @typedef {import('./budget.js').Submission} Submission */
/** @typedef {import('./document.js').HeadList} HeadList */
/** @typedef {import('./stores.js').Store} Store */
/** @typedef {import('./stores.js').TimedRecord} TimedRecord */
/** What a call came to; never an exception. "sent": accepted. "waiting": a time was drawn.
 * "nothing new": no window to answer. "try later": the server was away or busy. "refused by
 * server", "expired": not counted, and still spent. The others: nothing was spent or sent.
 * @typedef {'sent' | 'waiting' | 'nothing new' | 'try later' | 'refused by server' | 'expired' |
 *   'head list refused' | 'clock wrong' | 'limit reached' | 'state unreadable' |
 *   'storage refused'} ResultCode */
/** `nextCallAtS`: calling earlier changes nothing. `detail` holds nothing of records or servers.
 * @typedef {{code: ResultCode, epoch: number | null, nextCallAtS: number, detail: string,
 *   freeAtS?: number}} Outcome */
/** @typedef {{mode: Mode, epoch: number, subject: string, window_start_s: number,
 *   window_end_s: number, records: number, send_at_s: number, until_s: number, epsilon: number,
 *   delta: number, listed: number}} ScheduledSend */
/** @typedef {{mode: Mode, epoch: number, body: string, until_s: number}} PendingSubmission */
/** @typedef {{version: 2, revision: number, cohorts: number, cohort: number,
 *   budget_entries: BudgetEntry[], scheduled_send: ScheduledSend | null,
 *   pending: PendingSubmission | null, forget_before_s: number}} State */
/** @typedef {{text: string | null, state: State, records: TimedRecord[]}} Loaded */
/** `bytes` is null when there were more than was asked for.
 * @typedef {{status: number, headers: Headers, bytes: Uint8Array<ArrayBuffer> | null}} Answer */
/** @typedef {{clock(): number, dice: import('./randomizers.js').Dice}} Parts */

const HTTP_DATE = /^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT$/
const FINAL = [400, 404, 409, 410, 413, 422]
/** @type {State} */
const FRESH = {
  version: 2,
  revision: 0,
  cohorts: 1,
  cohort: 0,
  budget_entries: [],
  scheduled_send: null,
  pending: null,
  forget_before_s: 0,
}
/** @param {Answer} answer */
const json = ({ bytes }) =>
  JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes ?? undefined))

/** @param {string} detail */
const refused = (detail) => ({ code: 'head list refused', detail })
/** @param {boolean} holds @param {string} detail */
const require = (holds, detail) => {
  if (!holds) throw refused(detail)
}
/** @param {Limits} limits @param {keyof Limits} name */
const named = (limits, name) => `this device's ${name} ${limits[name]}`
/** @param {number} asked @param {Limits} limits @param {keyof Limits} name */
const within = (asked, limits, name) =>
  require(asked <= limits[name], `it must stay within ${named(limits, name)}, got ${asked}`)
/** @param {import('./budget.js').Refusal | null} refusal */
const allow = (refusal) => {
  if (refusal) throw refusal
}

/** Every call returns a value; only `new Device` throws, for arguments that cannot be. */
export class Device {
  #server
  #limits
  #store
  #optIn
  #fetch
  #clock
  #dice
  #failures = 0
  /** Why the last request had no answer. */ #unreachable = 'did not answer'
  /** @type {{fromS: number, outcome: Outcome} | null} */ #pause = null

  /** `fetch`: your own, to send through a relay. `optIn`: only for who agreed to send searches as
   * they are; its token may be a function that gets the person's own from your backend. Nothing in an application's settings belongs into `parts`: tests hand them in.
   * @param {{server: string, limits: GivenLimits, store: Store, fetch?: typeof fetch,
   *   optIn?: {userId: string, token: string | (() => string | Promise<string>)}}} options @param {Parts} [parts] */
  constructor({ server, limits, store, optIn, fetch }, parts) {
    const { protocol, hostname, search, hash } = new URL(server)
    const local = ['localhost', '127.0.0.1', '[::1]'].includes(hostname)
    if ((protocol !== 'https:' && !(protocol === 'http:' && local)) || search || hash) {
      throw new RangeError('server: https:// (http:// for this machine), no query or fragment')
    }
    const token = optIn?.token
    const isToken = typeof token === 'function' || /^[ -~]+$/.test(token ?? '')
    if (optIn && !(fits(optIn.userId, 256) && isToken)) {
      throw new RangeError('optIn: a userId of 1 to 256 bytes and a token of printable ASCII')
    }
    this.#server = server.replace(/\/+$/, '')
    this.#limits = checkedLimits(limits)
    this.#store = store
    this.#optIn = optIn
    this.#fetch = fetch
    this.#clock = parts?.clock ?? (() => Date.now() / 1000)
    this.#dice = parts?.dice ?? systemDice
  }

  /** Keep what was searched for and clicked, on this device, until its window is answered.
   * @param {string} query @param {string} url
   * @returns {Promise<{code: 'kept' | 'text refused' | 'storage refused', detail: string}>} */
  async record(query, url) {
    const texts = [query, url].every((text) => typeof text === 'string')
    const record = texts && normalise(query, url)
    if (!record) return { code: 'text refused', detail: 'empty, too long, or not plain text' }
    try {
      await this.#store.keep([this.#now(), ...record], this.#limits.maxRecordBytes)
      return { code: 'kept', detail: '' }
    } catch (error) {
      const detail = /** @type {any} */ (error)?.detail ?? 'the storage did not take it'
      return { code: 'storage refused', detail }
    }
  }

  /** Remove all raw records, opt-in records not yet sent, and the text of answers that were sent.
   * What was spent stays spent.
   * @returns {Promise<Outcome>} */
  forget() {
    return this.#caught(async () => {
      const loaded = await this.#load(true)
      const { pending, budget_entries = [] } = loaded.state
      const kept = { budget_entries: budget_entries.map(withoutAnswers) }
      const changes = pending?.mode === 'opt-in' ? dropped(kept, 'dropped', null) : kept
      await this.#commit(loaded, budget_entries.length ? changes : {}, Infinity)
      return this.#outcome('nothing new', null, 'forgotten', this.#now())
    })
  }

  /** What is on the device and what was spent in the period that ends now. */
  async status() {
    return this.#caught(async () => {
      const { state, records } = await this.#load()
      const [epsilonSpent, deltaSpent] = totalSpent(state.budget_entries, this.#limits, this.#now())
      return {
        code: /** @type {const} */ ('status'),
        recordsHeld: records.length,
        epsilonSpent,
        deltaSpent,
        windowsAnswered: state.budget_entries.length,
        lastEpoch: state.budget_entries.at(-1)?.epoch ?? null,
        waitingUntilS: state.scheduled_send?.send_at_s ?? null,
        unsentEpoch: state.pending?.epoch ?? null,
      }
    })
  }

  /** What this device sent, what it can reveal at most, what is left and what follows; offline.
   * `document` is for a file, too. */
  async sentLog() {
    return this.#caught(async () => {
      const { state } = await this.#load()
      const document = sentDocument(state, this.#limits, this.#now())
      return { code: /** @type {const} */ ('sent log'), document }
    })
  }

  /** Do what is due, if anything. Call it at times that do not depend on searches. `atOnce` does
   * not wait for the scheduled time: for tests by hand.
   * @param {{atOnce?: boolean}} [how] @returns {Promise<Outcome>} */
  async maybeReport({ atOnce = false } = {}) {
    const fromS = this.#now()
    const pause = this.#pause
    // Asking earlier would change nothing, and tell the server that we are here.
    if (pause && !atOnce && pause.fromS <= fromS && fromS < pause.outcome.nextCallAtS) {
      return pause.outcome
    }
    const outcome = await this.#caught(() =>
      this.#store.exclusively(() => this.#caught(() => this.#exchange(atOnce))),
    )
    if (!outcome) return this.#outcome('nothing new', null, 'another tab is at it', fromS + 60)
    if (!/^st/.test(outcome.code)) this.#pause = { fromS, outcome }
    return outcome
  }

  #now() {
    return Math.floor(this.#clock())
  }

  /** @param {ResultCode} code @param {number | null} epoch @param {string} detail
   * @param {number} [nextCallAtS] @returns {Outcome} */
  #outcome(code, epoch, detail, nextCallAtS) {
    if (nextCallAtS === undefined) {
      this.#failures = 0
      nextCallAtS = this.#now() + this.#about(this.#longestPause())
    }
    return { code, epoch, nextCallAtS, detail }
  }

  /** @param {number | null} epoch @param {Answer | null} answer @param {string} [more]
   * @returns {Outcome} */
  #tryLater(epoch, answer, more = '') {
    const longest = this.#longestPause()
    const first = Math.max(1, Math.floor(longest / 120))
    const pause = this.#about(Math.min(longest, first * 2 ** Math.min(this.#failures++, 20)))
    const asked = answer?.headers.get('retry-after') ?? ''
    const wait = Math.max(pause, /^\d{1,9}$/.test(asked) ? Math.min(+asked, 3600) : 0)
    const said = answer ? `answered ${answer.status}` : this.#unreachable
    return this.#outcome('try later', epoch, `the server ${said}${more}`, this.#now() + wait)
  }

  #longestPause() {
    return Math.min(3600, this.#limits.minWindowS)
  }

  /** @param {number} pause */
  #about(pause) {
    return Math.max(1, pause - below(this.#dice, Math.floor(pause / 2) + 1))
  }

  /** Returns what `act` throws as an outcome; an error of the storage, too.
   * @template T @param {() => Promise<T>} act @returns {Promise<T | Outcome>} */
  async #caught(act) {
    try {
      return await act()
    } catch (thrown) {
      const { code, epoch = null, detail, nextCallAtS, freeAtS } = /** @type {any} */ (thrown) ?? {}
      // Errors of a system have a code, too, but no detail.
      if (typeof detail !== 'string') {
        // Its name only: a message may quote what was stored.
        const name = /** @type {any} */ (thrown)?.name
        return this.#outcome('storage refused', null, 'the storage failed: ' + name)
      }
      const outcome = this.#outcome(code, epoch, detail, nextCallAtS)
      return freeAtS === undefined ? outcome : { ...outcome, freeAtS }
    }
  }

  /** A state that is lost is no new device: it is refused, or with `lostToo` empty, which can be
   * written and is lost as well. (What cannot be read may quote searches, so nothing of it stays.)
   * @param {boolean} [lostToo] @returns {Promise<Loaded>} */
  async #load(lostToo) {
    const { text, begun, records } = await this.#store.load()
    const found = text ?? (begun ? '' : JSON.stringify(FRESH))
    /** @type {any} */ let state
    try {
      state = JSON.parse(found)
    } catch {}
    if (state?.version !== 2 || !Array.isArray(state.budget_entries)) {
      if (!lostToo) throw { code: 'state unreadable', detail: 'what was spent cannot be known' }
      return { text, state: /** @type {any} */ ({}), records }
    }
    if (text === null) await this.#store.commit(null, found, 0)
    if (!begun) await this.#store.begin()
    return { text: found, state, records }
  }

  /** @param {Loaded} loaded @param {Partial<State>} changes @param {number} [forgetBeforeS]
   * @returns {Promise<Loaded>} */
  async #commit({ text, state, records }, changes, forgetBeforeS = 0) {
    const changed = { ...state, ...changes, revision: state.revision + 1 }
    const after = JSON.stringify(changed)
    if (!(await this.#store.commit(text, after, forgetBeforeS))) {
      throw { code: 'nothing new', detail: 'another tab was faster', nextCallAtS: this.#now() + 1 }
    }
    return { text: after, state: changed, records: records.filter(([at]) => at >= forgetBeforeS) }
  }

  /** @param {string} path @param {number} [most] @param {RequestInit} [more]
   * @returns {Promise<Answer | null>} */
  async #ask(path, most = 1 << 20, more = {}) {
    try {
      // No cookies, and no cache: a server could recognise a device by the list it already has.
      const response = await (this.#fetch ?? fetch)(this.#server + path, {
        credentials: 'omit',
        cache: 'no-store',
        redirect: 'manual',
        referrerPolicy: 'no-referrer',
        signal: AbortSignal.timeout(120_000),
        ...more,
      })
      const { status, headers, body } = response
      const reader = body?.getReader()
      /** @type {BlobPart[]} */ const parts = []
      let size = 0
      for (let part; (part = await reader?.read()) && !part.done && size <= most;) {
        parts.push(/** @type {Uint8Array<ArrayBuffer>} */ (part.value))
        size += part.value.length
      }
      if (size > most) await reader?.cancel()
      const bytes = size > most ? null : new Uint8Array(await new Blob(parts).arrayBuffer())
      return { status, headers, bytes }
    } catch (error) {
      this.#unreachable = (await this.#isCors(error))
        ? `answers, but does not allow this page: the origin ${location.origin} must be in its setting gateway.cors_origins`
        : 'did not answer'
      return null
    }
  }

  /** A browser reports an absent server and one that does not allow the page's origin alike. Only
   * the second answers a request whose answer the page may not read. (Such a request cannot refuse
   * redirects; it carries nothing that names the device.)
   * @param {unknown} error */
  async #isCors(error) {
    const own = globalThis.location?.origin
    const crosses = own && own !== 'null' && own !== new URL(this.#server).origin
    if (this.#fetch || !crosses || !(error instanceof TypeError)) return false
    try {
      await fetch(this.#server + '/v1/epochs', {
        mode: 'no-cors',
        credentials: 'omit',
        cache: 'no-store',
        referrerPolicy: 'no-referrer',
        signal: AbortSignal.timeout(20_000),
      })
      return true
    } catch {
      return false
    }
  }

  /** @param {Answer} answer */
  #checkClock(answer) {
    // Other forms are no date: other clients would read others.
    const told = answer.headers.get('date')?.match(HTTP_DATE)?.[0] ?? ''
    const serverS = Date.parse(told) / 1000
    if (Math.abs(serverS - this.#now()) > this.#limits.maxClockSkewS) {
      const most = named(this.#limits, 'maxClockSkewS')
      throw { code: 'clock wrong', detail: `clocks must agree within ${most}: set the device's` }
    }
  }

  /** @param {boolean} atOnce @returns {Promise<Outcome>} */
  async #exchange(atOnce) {
    const mode = this.#optIn ? 'opt-in' : 'report'
    let loaded = await this.#load()
    const { state, records } = loaded
    const oldest = Math.max(state.forget_before_s, this.#now() - this.#limits.keepRecordsS)
    // Who no longer opts in sends nothing as it is, not even what was chosen before.
    const withdrawn = state.pending?.mode === 'opt-in' && mode === 'report'
    if (withdrawn || records.some(([at]) => at < oldest)) {
      const changes = withdrawn ? dropped(state, 'dropped', this.#now()) : {}
      loaded = await this.#commit(loaded, changes, oldest)
    }
    if (loaded.state.pending) return this.#deliver(loaded, loaded.state.pending)
    const { scheduled_send } = loaded.state
    const kept =
      scheduled_send?.mode === mode && this.#now() < scheduled_send.until_s ? scheduled_send : null
    return this.#optIn ? this.#sendRecords(kept, atOnce) : this.#report(kept, atOnce)
  }

  /** @param {ScheduledSend} scheduled_send @param {boolean} atOnce */
  #waitFor({ send_at_s, epoch }, atOnce) {
    if (!atOnce && this.#now() < send_at_s) {
      throw {
        code: 'waiting',
        epoch,
        detail: 'for the second that was drawn',
        nextCallAtS: send_at_s,
      }
    }
  }

  // ------------------------------------------------------------------------------ reports

  /** @param {ScheduledSend | null} scheduled_send @param {boolean} atOnce @returns {Promise<Outcome>} */
  async #report(scheduled_send, atOnce) {
    scheduled_send ??= await this.#schedule()
    const { epoch, subject } = scheduled_send
    this.#waitFor(scheduled_send, atOnce)
    const { document, id } = await this.#list(subject, epoch)
    require(id === subject, 'the list must be the one first shown')
    const randomizer = this.#checkList(document)
    require(this.#now() < document.reports_until_s, 'its reporting window has ended')
    const loaded = await this.#load()
    const { state } = loaded
    if (state.scheduled_send?.subject !== id || state.pending) {
      return this.#outcome('nothing new', epoch, 'another tab was faster')
    }
    const entry = this.#budgetEntry(document, id)
    allow(checkEntry(state.budget_entries, entry, this.#limits))
    const startS = Math.max(document.window_start_s, state.forget_before_s)
    const cells = cellsOf(document)
    const held = recordsIn(loaded.records, startS, document.window_end_s)
    // From here on the noise is drawn: these bytes, or none, are what the server will see.
    const body = makeReport(id, held, document.randomizer, cells, randomizer(cells), this.#dice)
    /** @type {PendingSubmission} */
    const pending = { mode: 'report', epoch, body, until_s: document.reports_until_s }
    /** @type {Submission} */
    const submission = {
      randomizer: document.randomizer.name,
      listed: document.listed,
      cells: cells.size,
      answers: describeAnswers(JSON.parse(body).answers, document),
      searches: 0,
      result: 'pending',
      finished_at_s: null,
    }
    return this.#spend(loaded, { ...entry, submission }, pending, document.window_end_s)
  }

  /** The one place where budget is spent: budget entry and bytes are durable before anything is sent.
   * @param {Loaded} loaded @param {BudgetEntry} entry @param {PendingSubmission} pending
   * @param {number} forgetS @returns {Promise<Outcome>} */
  async #spend(loaded, entry, pending, forgetS) {
    const forget_before_s = Math.max(loaded.state.forget_before_s, forgetS)
    const added = addEntry(loaded.state.budget_entries, entry, this.#limits)
    const budget_entries = noteSubmission(added, /** @type {Submission} */ (entry.submission))
    const changes = { budget_entries, pending, scheduled_send: null, forget_before_s }
    const safe = await this.#commit(loaded, changes, forget_before_s)
    return this.#deliver(safe, pending)
  }

  /** @param {string} which @param {number | null} epoch */
  async #list(which, epoch) {
    const answer = await this.#ask('/v1/head-lists/' + which, this.#limits.maxHeadListBytes)
    if (answer?.status === 404 && epoch === null) {
      throw { code: 'nothing new', detail: 'no head list has been published yet' }
    }
    if (answer?.status !== 200) throw this.#tryLater(epoch, answer)
    this.#checkClock(answer)
    const { bytes } = answer
    if (!bytes) throw refused(`it is longer than ${named(this.#limits, 'maxHeadListBytes')}`)
    const document = readHeadList(bytes)
    if (!document) throw refused('it is malformed')
    return { document, id: await idOf(bytes) }
  }

  /** Check the current list and draw when to report on it, once for good.
   * @returns {Promise<ScheduledSend>} */
  async #schedule() {
    const { document, id } = await this.#list('current', null)
    let loaded = await this.#load()
    const { budget_entries, forget_before_s, scheduled_send: missed } = loaded.state
    const { epoch, window_start_s, window_end_s, reports_until_s, cohorts } = document
    const nowS = this.#now()
    const last = budget_entries.at(-1)
    /** @param {boolean} passed @param {string} detail */
    const unless = (passed, detail) => {
      if (passed) throw { code: 'nothing new', epoch, detail }
    }
    unless(last?.subject === id, 'this window was already answered')
    unless(
      last?.mode === 'opt-in' && window_start_s < last.window_end_s,
      'this window was answered by opting in',
    )
    const entry = this.#budgetEntry(document, id)
    allow(checkFollows(budget_entries, entry))
    const randomizer = this.#checkList(document)
    if (cohorts !== loaded.state.cohorts) {
      // Drawn anew for each R: a place for every R a server may name would add up to a name.
      loaded = await this.#commit(loaded, { cohorts, cohort: below(this.#dice, cohorts) })
    }
    const asked = document.listed > 0 && epoch % cohorts === loaded.state.cohort
    if (!asked && window_end_s > forget_before_s) {
      loaded = await this.#commit(loaded, { forget_before_s: window_end_s }, window_end_s)
    }
    unless(!asked, 'this device is not asked about this window')
    unless(nowS >= reports_until_s, 'its reporting window has ended')
    allow(checkEntry(budget_entries, entry, this.#limits))
    unless(window_end_s <= forget_before_s, 'this window was passed over before')
    randomizer(cellsOf(document))
    const startS = Math.max(nowS, window_end_s)
    const untilS = Math.min(reports_until_s, nowS + this.#limits.maxWaitS)
    // The last tenth is left for sending again. A time that was missed is not drawn again.
    const span = Math.max(1, Math.floor(((untilS - startS) * 9) / 10))
    /** @type {ScheduledSend} */
    const scheduled_send = {
      mode: 'report',
      epoch,
      subject: id,
      window_start_s,
      window_end_s,
      records: document.randomizer.answers,
      send_at_s: missed?.subject === id ? missed.send_at_s : startS + below(this.#dice, span),
      until_s: untilS,
      epsilon: document.randomizer.epsilon,
      delta: document.randomizer.delta,
      listed: document.listed,
    }
    await this.#commit(loaded, { scheduled_send })
    return scheduled_send
  }

  /** Refuse a list that breaks this device's limits; else how to build its randomizer.
   * @param {HeadList} document */
  #checkList(document) {
    const { randomizer: spec, window_end_s, reports_until_s } = document
    const limits = this.#limits
    require(document.normalisation === NORMALISATION, 'unknown normalisation')
    within(spec.epsilon, limits, 'epsilonPerReport')
    within(spec.delta, limits, 'deltaPerReport')
    within(spec.answers, limits, 'maxAnswers')
    within(spec.max_cells_per_answer, limits, 'maxCellsPerAnswer')
    within(document.cohorts, limits, 'maxCohorts')
    const lengthS = this.#checkWindow(document)
    require(reports_until_s - window_end_s <= 4 * lengthS, 'reports for over four windows')
    const nowS = this.#now()
    const ended = window_end_s <= nowS + limits.maxClockSkewS
    require(ended, `its window has not ended, by clocks within ${named(limits, 'maxClockSkewS')}`)
    return (/** @type {import('./document.js').Cells} */ cells) => {
      const built = randomizerFor(spec, cells, document.query_wildcards)
      if (spec.cells_per_answer !== built?.cellsPerAnswer)
        throw refused('its randomizer cannot be built')
      return built
    }
  }

  /** @param {{epoch: number, window_start_s: number, window_end_s: number}} window */
  #checkWindow({ epoch, window_start_s, window_end_s }) {
    const { minWindowS, maxWindowS } = this.#limits
    const lengthS = window_end_s - window_start_s
    const most = Math.floor(this.#now() / minWindowS)
    require(epoch <=
      most, `epoch ${epoch} is more than windows of minWindowS ${minWindowS} since 1970`)
    const lasts = `from minWindowS ${minWindowS} to maxWindowS ${maxWindowS}`
    const fitting = minWindowS <= lengthS && lengthS <= maxWindowS
    require(fitting, `its window must last ${lasts}, got ${lengthS}`)
    return lengthS
  }

  /** An opt-in entry ends now, not at the window's end: later searches are not among those sent.
   * @param {{epoch: number, window_start_s: number, window_end_s: number,
   *   randomizer?: import('./document.js').Spec}} window @param {string} [subject] @returns {BudgetEntry} */
  #budgetEntry({ epoch, window_start_s, window_end_s, randomizer }, subject = '') {
    const at_s = this.#now()
    const { epsilon, delta } = randomizer ?? { epsilon: 0, delta: 0 }
    const soonS = Math.max(window_start_s, at_s) + 1
    return {
      mode: randomizer ? 'report' : 'opt-in',
      epoch,
      subject,
      window_start_s,
      window_end_s: randomizer ? window_end_s : Math.min(window_end_s, soonS),
      at_s,
      epsilon,
      delta,
      submission: null,
    }
  }

  // ------------------------------------------------------------------------------- opting in

  /** @param {ScheduledSend | null} scheduled_send @param {boolean} atOnce @returns {Promise<Outcome>} */
  async #sendRecords(scheduled_send, atOnce) {
    scheduled_send ??= await this.#collecting(atOnce)
    const { epoch, window_start_s, window_end_s, until_s } = scheduled_send
    const nowS = this.#now()
    this.#waitFor(scheduled_send, atOnce)
    const loaded = await this.#load()
    const { state } = loaded
    if (state.pending || JSON.stringify(state.scheduled_send) !== JSON.stringify(scheduled_send)) {
      return this.#outcome('nothing new', epoch, 'another tab was faster')
    }
    const entry = this.#budgetEntry(scheduled_send)
    allow(checkEntry(state.budget_entries, entry, this.#limits))
    const startS = Math.max(window_start_s, state.forget_before_s)
    const held = recordsIn(loaded.records, startS, window_end_s)
    // Searches in random order, repeats left out: slot 0 is a search drawn at random.
    const drawn = shuffled(held, this.#dice)
    const distinct = [...new Map(drawn.map((record) => [JSON.stringify(record), record])).values()]
    const user_id = this.#optIn?.userId
    /** @type {([string, string] | [null, null])[]} */
    const chosen = distinct.slice(0, scheduled_send.records)
    // Who takes part must not depend on who searched: a person without a record says so.
    if (!chosen.length) chosen.push([null, null])
    const entries = chosen.map(([query, url], slot) => ({ epoch, query, slot, url, user_id }))
    /** @type {PendingSubmission} */
    const pending = {
      mode: 'opt-in',
      epoch,
      body: JSON.stringify(entries),
      until_s: Math.min(until_s, startS + this.#limits.keepRecordsS),
    }
    /** @type {Submission} */
    const submission = {
      randomizer: '',
      listed: 0,
      cells: 0,
      answers: null,
      searches: drawn.length && chosen.length,
      result: 'pending',
      finished_at_s: null,
    }
    return this.#spend(loaded, { ...entry, submission }, pending, Math.min(window_end_s, nowS + 1))
  }

  /** @param {boolean} atOnce @returns {Promise<ScheduledSend>} */
  async #collecting(atOnce) {
    const answer = await this.#ask('/v1/epochs')
    if (answer?.status !== 200) throw this.#tryLater(null, answer)
    this.#checkClock(answer)
    const limits = this.#limits
    /** @type {any} */ let found
    try {
      found = json(answer).collecting
    } catch {}
    const nowS = this.#now()
    if (found === null) throw { code: 'nothing new', detail: 'no epoch is collecting' }
    const { epoch, window_start_s, window_end_s, optin_until_s, records_per_user } = found ?? {}
    const numbers = [epoch, window_start_s, window_end_s, optin_until_s, records_per_user]
    const whole = numbers.every((n) => Number.isSafeInteger(n) && n >= 0)
    const inOrder = window_start_s < window_end_s && window_end_s <= optin_until_s
    require(whole && inOrder && records_per_user > 0, 'its epochs are malformed')
    const loaded = await this.#load()
    const last = loaded.state.budget_entries.at(-1)
    if (last?.epoch === epoch && last?.window_start_s === window_start_s) {
      throw { code: 'nothing new', epoch, detail: 'this window was already answered' }
    }
    const lengthS = this.#checkWindow(found)
    within(records_per_user, limits, 'maxOptinRecords')
    require(optin_until_s - window_end_s <= lengthS, 'it takes records for too long')
    const now = window_start_s <= nowS + limits.maxClockSkewS && nowS < optin_until_s
    require(now, `it is not collecting now, by clocks within ${named(limits, 'maxClockSkewS')}`)
    allow(checkEntry(loaded.state.budget_entries, this.#budgetEntry(found), limits))
    // In the last quarter of the window, and never far ahead.
    const lateS = window_end_s - Math.floor(lengthS / 4)
    const soonS = nowS + limits.maxWaitS
    if (nowS < lateS && soonS < window_end_s && !atOnce) {
      throw { code: 'nothing new', epoch, detail: 'it is early in this long window' }
    }
    const startS = Math.min(Math.max(nowS, lateS), soonS)
    const span = Math.max(1, Math.min(window_end_s, soonS) - startS)
    /** @type {ScheduledSend} */
    const scheduled_send = {
      mode: 'opt-in',
      epoch,
      subject: '',
      window_start_s,
      window_end_s,
      records: records_per_user,
      send_at_s: startS + below(this.#dice, span),
      until_s: optin_until_s,
      epsilon: 0,
      delta: 0,
      listed: 0,
    }
    await this.#commit(loaded, { scheduled_send })
    return scheduled_send
  }

  // -------------------------------------------------------------------------------- sending

  /** Send the kept bytes once, and drop them when that settled it.
   * @param {Loaded} loaded @param {PendingSubmission} pending @returns {Promise<Outcome>} */
  async #deliver(loaded, { mode, epoch, body, until_s }) {
    const settled = async (/** @type {ResultCode} */ code, /** @type {string} */ detail) => {
      try {
        await this.#commit(loaded, dropped(loaded.state, code, this.#now()))
      } catch {
        // The bytes stay and go out once more, unchanged: the server counts them once.
      }
      return this.#outcome(code, epoch, detail)
    }
    if (this.#now() >= until_s) return settled('expired', 'time ran out before delivery')
    /** @type {Record<string, string>} */
    const headers = { 'content-type': 'application/json' }
    if (mode === 'opt-in') {
      const token = this.#optIn?.token
      try {
        headers.authorization = 'Bearer ' + (typeof token === 'function' ? await token() : token)
      } catch {
        return this.#tryLater(epoch, null)
      }
    }
    const path = mode === 'opt-in' ? '/v1/optin-records' : '/v1/reports'
    const answer = await this.#ask(path, undefined, { method: 'POST', headers, body })
    const code = answer && verdictOf(answer)
    if (code) return settled(code, code === 'sent' ? 'accepted' : 'what it cost stays spent')
    const last = loaded.state.budget_entries.at(-1)
    if (last && this.#now() >= last.at_s + this.#limits.maxWaitS) {
      return settled('expired', 'the server would not take it')
    }
    const said = answer && refusalSentence(answer, headers.authorization ?? '', mode, body)
    return this.#tryLater(epoch, answer, said ?? '')
  }
}

/** The gateway's own sentence about a token (401, 403), in a form that may be shown and logged: short,
 * printable, and without the token or a text that was sent. Else nothing.
 * @param {Answer} answer @param {string} authorization @param {Mode} mode @param {string} body */
function refusalSentence(answer, authorization, mode, body) {
  const problem = answer.headers.get('content-type')?.startsWith('application/problem+json')
  if (!problem || ![401, 403].includes(answer.status)) return ''
  try {
    const said = json(answer).detail
    const entries = mode === 'opt-in' ? JSON.parse(body).flatMap(Object.values) : []
    const texts = [authorization.replace('Bearer ', ''), ...entries].filter(
      (text) => text?.length > 3,
    )
    const repeats = texts.some((text) => said.toLowerCase().includes(text.toLowerCase()))
    return /^[^\p{C}\p{Zl}\p{Zp}]{1,300}$/u.test(said) && !repeats
      ? `. The gateway says: "${said}"`
      : ''
  } catch {
    return ''
  }
}

/** What changes when the bytes go, with what became of them.
 * @param {{budget_entries: BudgetEntry[]}} state @param {string} result
 * @param {number | null} nowS @returns {Partial<State>} */
const dropped = ({ budget_entries }, result, nowS) => ({
  pending: null,
  budget_entries: finishLast(budget_entries, result, nowS),
})

/** @param {TimedRecord[]} records @param {number} startS @param {number} endS
 * @returns {[string, string][]} */
const recordsIn = (records, startS, endS) =>
  records.filter(([at]) => startS <= at && at < endS).map(([, query, url]) => [query, url])

/** What this answer came to; null while the same bytes may still be wanted. Only the gateway's
 * own words count: a hotel's login page answers 403 or 200, too.
 * @param {Answer} answer @returns {ResultCode | null} */
function verdictOf(answer) {
  const { status, headers } = answer
  if (status !== 200 && status !== 202) {
    const problem = headers.get('content-type')?.startsWith('application/problem+json')
    return problem && FINAL.includes(status) ? 'refused by server' : null
  }
  /** @type {any[]} */ let verdicts = []
  try {
    verdicts = json(answer).verdicts
    for (const { status, reason = null } of verdicts) {
      const known = ['accepted', 'refused', 'retry'].includes(status)
      if (!known || !(reason === null || /^[a-z][a-z_]{0,39}$/.test(reason))) throw 0
    }
  } catch {
    verdicts = []
  }
  if (!verdicts.length) return status === 202 ? 'sent' : null
  if (verdicts.some((verdict) => verdict.status === 'retry')) return null
  if (verdicts.some((verdict) => verdict.status === 'accepted')) return 'sent'
  // Users take turns: no later answer would be another.
  const turn = verdicts.every((verdict) => verdict.reason === 'other_cohort')
  return turn ? 'nothing new' : 'refused by server'
}
