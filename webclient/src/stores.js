// Where a device keeps its state and raw records: all or nothing, compared before it is replaced.

/** [second, query, URL] @typedef {[number, string, string]} TimedRecord */
/** `commit` durably replaces the state, if it still is `before`, and drops records made earlier
 * than `forgetBeforeS`, at once or not at all. `exclusively` runs `act` unless another tab or
 * process is at it (then: undefined). `begun` outlives the state, so that its loss is noticed.
 * @typedef {{
 *   load(): Promise<{text: string | null, begun: boolean, records: TimedRecord[]}>,
 *   begin(): Promise<void>,
 *   commit(before: string | null, after: string, forgetBeforeS: number): Promise<boolean>,
 *   keep(record: TimedRecord, maxBytes: number): Promise<void>,
 *   exclusively<T>(act: () => Promise<T>): Promise<T | undefined>}} Store */

/** The records with one more; the older half goes when they take too much.
 * @param {TimedRecord[]} records @param {TimedRecord} record @param {number} maxBytes */
export const grown = (records, record, maxBytes) => {
  const size = records.reduce((sum, [, query, url]) => sum + query.length + url.length + 16, 0)
  return [...(size < maxBytes ? records : records.slice(records.length >> 1)), record]
}

/** Forgets everything with the page: for trying it out, and for tests.
 * @implements {Store} */
export class MemoryStore {
  /** @type {string | null} */ text = null
  begun = false
  /** @type {TimedRecord[]} */ records = []
  #busy = false

  async load() {
    return { text: this.text, begun: this.begun, records: [...this.records] }
  }
  async begin() {
    this.begun = true
  }
  /** @param {string | null} before @param {string} after @param {number} forgetBeforeS */
  async commit(before, after, forgetBeforeS) {
    if (this.text !== before) return false
    this.text = after
    this.records = this.records.filter(([at]) => at >= forgetBeforeS)
    return true
  }
  /** @param {TimedRecord} record @param {number} maxBytes */
  async keep(record, maxBytes) {
    this.records = grown(this.records, record, maxBytes)
  }
  /** @template T @param {() => Promise<T>} act @returns {Promise<T | undefined>} */
  async exclusively(act) {
    if (this.#busy) return undefined
    this.#busy = true
    try {
      return await act()
    } finally {
      this.#busy = false
    }
  }
}

/** A second place that says that this device has begun: browsers may clear IndexedDB alone.
 * @typedef {{has(): Promise<boolean>, set(): Promise<unknown>}} Marker */
/** localStorage; where there is none (workers), the cache; else nothing is noticed.
 * @param {string} name @returns {Marker} */
function defaultMarker(name) {
  const key = `blendstream ${name} has begun`
  const { localStorage, caches } = globalThis
  if (localStorage) {
    return {
      has: async () => localStorage.getItem(key) !== null,
      set: async () => localStorage.setItem(key, ''),
    }
  }
  return { has: async () => !!(await caches?.has(key)), set: async () => caches?.open(key) }
}

/** The store of pages, workers and extensions; tabs of one origin share it.
 * @implements {Store} */
export class IndexedDbStore {
  #name
  #marker
  /** @param {string} [name] @param {Marker} [marker] */
  constructor(name = 'blendstream', marker) {
    this.#name = name
    this.#marker = marker
  }

  /** @returns {Marker} */
  #mark() {
    return (this.#marker ??= defaultMarker(this.#name))
  }

  /** Runs `act` in one transaction. It must be over when `act` returns: a transaction closes at
   * the first foreign await, so everything is chosen before it opens.
   * @template T @param {IDBTransactionMode} mode
   * @param {(store: IDBObjectStore, found: [any, any]) => T} act @returns {Promise<T>} */
  async #transaction(mode, act) {
    const db = await new Promise((resolve, reject) => {
      const open = indexedDB.open(this.#name, 1)
      open.onupgradeneeded = () => open.result.createObjectStore('device')
      open.onsuccess = () => resolve(open.result)
      open.onerror = open.onblocked = () => reject(open.error)
    })
    try {
      return await new Promise((resolve, reject) => {
        const transaction = db.transaction('device', mode, { durability: 'strict' })
        const store = transaction.objectStore('device')
        /** @type {T} */ let value
        const [state, records] = ['state', 'records'].map((key) => store.get(key))
        records.onsuccess = () => {
          value = act(store, [state.result ?? null, records.result ?? []])
        }
        transaction.oncomplete = () => resolve(value)
        transaction.onabort = () => reject(transaction.error)
      })
    } finally {
      db.close()
    }
  }

  async load() {
    const found = await this.#transaction('readonly', (_, [text, records]) => ({ text, records }))
    return { ...found, begun: await this.#mark().has() }
  }
  async begin() {
    await this.#mark().set()
  }
  /** @param {string | null} before @param {string} after @param {number} forgetBeforeS */
  commit(before, after, forgetBeforeS) {
    return this.#transaction('readwrite', (store, [text, records]) => {
      if (text !== before) return false
      store.put(after, 'state')
      const left = records.filter((/** @type {TimedRecord} */ [at]) => at >= forgetBeforeS)
      if (left.length < records.length) store.put(left, 'records')
      return true
    })
  }
  /** @param {TimedRecord} record @param {number} maxBytes */
  async keep(record, maxBytes) {
    await this.#transaction('readwrite', (store, [, records]) =>
      store.put(grown(records, record, maxBytes), 'records'),
    )
  }
  /** @template T @param {() => Promise<T>} act @returns {Promise<T | undefined>} */
  async exclusively(act) {
    // Without Web Locks two tabs may both ask; what they write is still compared first.
    if (!globalThis.navigator?.locks) return act()
    return navigator.locks.request(`blendstream ${this.#name}`, { ifAvailable: true }, (lock) =>
      lock ? act() : undefined,
    )
  }
}
