// The store of Node and Electron: a folder of the user's own. Imported by itself, never by browsers.
import { createHash, randomUUID } from 'node:crypto'
import { link, mkdir, open, readFile, rename, rm, unlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { grown } from './stores.js'

/** @typedef {import('./stores.js').Store} Store */
/** @typedef {import('./stores.js').TimedRecord} TimedRecord */

/** @param {string} text */
const seal = (text) => createHash('sha256').update(text).digest('hex')

/** @implements {Store} */
export class FileStore {
  #folder
  /** @param {string} folder */
  constructor(folder) {
    this.#folder = folder
  }

  async load() {
    const [text, begun, records] = await Promise.all([
      this.#read('state'),
      this.#read('begun'),
      this.#records(),
    ])
    if (text === null) return { text, begun: begun !== null, records }
    // The hash finds accidents; a damaged state is not read.
    const body = text.slice(65)
    return { text: seal(body) === text.slice(0, 64) ? body : '', begun: begun !== null, records }
  }
  begin() {
    return this.#write('begun', '')
  }
  /** @param {string | null} before @param {string} after @param {number} forgetBeforeS */
  async commit(before, after, forgetBeforeS) {
    return !!(await this.#locked('lock', 100, async () => {
      const { text, records } = await this.load()
      if (text !== before) return false
      await this.#write('state', seal(after) + '\n' + after)
      // What a crash left half-written may hold searches that are to be forgotten.
      await rm(join(this.#folder, 'records.new'), { force: true })
      const left = records.filter(([at]) => at >= forgetBeforeS)
      if (forgetBeforeS) await this.#write('records', JSON.stringify(left))
      return true
    }))
  }
  /** @param {TimedRecord} record @param {number} maxBytes */
  async keep(record, maxBytes) {
    await this.#locked('lock', 100, async () =>
      this.#write('records', JSON.stringify(grown(await this.#records(), record, maxBytes))),
    )
  }
  /** @template T @param {() => Promise<T>} act @returns {Promise<T | undefined>} */
  exclusively(act) {
    return this.#locked('busy', 0, act)
  }

  /** @returns {Promise<TimedRecord[]>} */
  async #records() {
    const text = await this.#read('records')
    try {
      return JSON.parse(text ?? '[]')
    } catch {
      return [] // damaged: searches that cannot be read are given up
    }
  }

  /** @param {string} name @returns {Promise<string | null>} */
  async #read(name) {
    try {
      return await readFile(join(this.#folder, name), 'utf8')
    } catch (error) {
      if (/** @type {any} */ (error).code === 'ENOENT') return null
      throw error
    }
  }

  /** Durably, all or nothing.
   * @param {string} name @param {string} text */
  async #write(name, text) {
    const path = join(this.#folder, name)
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const file = await open(path + '.new', 'w', 0o600)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(path + '.new', path)
    const folder = await open(this.#folder)
    await folder.sync().finally(() => folder.close())
  }

  /** Runs `act` while this process has the lock; undefined when another has it for too long.
   * @template T @param {string} name @param {number} tries @param {() => Promise<T>} act
   * @returns {Promise<T | undefined>} */
  async #locked(name, tries, act) {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const path = join(this.#folder, name)
    const own = `${process.pid} ${randomUUID()}`
    const draft = `${path}.${own.slice(-36)}`
    await writeFile(draft, own, { mode: 0o600 })
    try {
      for (; ; tries--) {
        try {
          await link(draft, path)
          break
        } catch (error) {
          if (/** @type {any} */ (error).code !== 'EEXIST') throw error
        }
        const cleared = await this.#clearDead(path)
        if (tries <= 0 && !cleared) {
          if (name === 'busy') return undefined
          throw new Error('another process has kept the lock; delete it if there is none')
        }
        if (!cleared) await new Promise((resolve) => setTimeout(resolve, 50))
      }
    } finally {
      await unlink(draft)
    }
    try {
      return await act()
    } finally {
      await unlink(path)
    }
  }

  /** Removes the lock of a process that is gone. Only who made `.dead` for that very lock may, and
   * looks again first: a lock that was taken meanwhile is another.
   * @param {string} path @returns {Promise<boolean>} */
  async #clearDead(path) {
    const owner = (await readFile(path, 'utf8').catch(() => '')).split(' ')
    if (!owner[1]) return true
    try {
      process.kill(+owner[0], 0)
      return false
    } catch (error) {
      if (/** @type {any} */ (error).code !== 'ESRCH') return false
    }
    const claim = `${path}.${owner[1]}.dead`
    try {
      await writeFile(claim, '', { flag: 'wx' })
    } catch {
      return false
    }
    const again = await readFile(path, 'utf8').catch(() => '')
    if (again === owner.join(' ')) await unlink(path)
    await unlink(claim)
    return true
  }
}
