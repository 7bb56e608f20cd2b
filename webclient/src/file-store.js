// Stores a device's state and records in a folder, for Node and Electron; browsers never import it.
//
// Promises: the folder (0700) and its files (0600) belong to the user who runs the client. Wider
// modes are narrowed; links, pipes and other users' files are refused and never written through.
// A write leaves the old text or the new one. The lock of an earlier process is removed, also
// if the system gave this process the same id.
// Assumes: a rename is atomic; other users cannot rename the folders above this one.
import { createHash, randomUUID } from 'node:crypto'
import { constants, readFileSync, readlinkSync } from 'node:fs'
import { link, lstat, mkdir, open, readdir, rename, rm, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { grown } from './stores.js'

/** @typedef {import('./stores.js').Store} Store */
/** @typedef {import('./stores.js').TimedRecord} TimedRecord */

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_DIRECTORY = 0 } = constants
/** Never through a link, and never waiting for the other end of a planted pipe (Windows: 0). */
const CAREFULLY = (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0)
const NAMES = ['state', 'begun', 'records']
/** Every file that this module creates: a folder with only these may be narrowed to its owner. */
const OWN = /^(state|begun|records)(\.new)?$|^(lock|busy)(\.[0-9a-f-]{36}(\.dead)?)?$/
/** A lock of another container is taken for abandoned after this. Holding one takes seconds:
 * shorter could break a lock in use, longer delays the first report after a container is replaced. */
const ABANDONED_MS = 600_000

/** @param {string} text */
const seal = (text) => createHash('sha256').update(text).digest('hex')

/** @param {string} detail */
const refused = (detail) => Object.assign(new Error(detail), { code: 'storage refused', detail })

/** @param {any} error @param {...string} codes */
const isCode = (error, ...codes) => codes.includes(error?.code)

/** @template T @param {() => T} read @returns {T | ''} */
const orNothing = (read) => {
  try {
    return read()
  } catch {
    return ''
  }
}

/** Where a process id is valid: this start of the machine and this container.
 * Empty where the system does not report it. */
const PLACE = orNothing(
  () =>
    readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim() +
    readlinkSync('/proc/self/ns/pid').replace(/\D/g, '-'),
)

/** When a process started, in the kernel's ticks; empty if there is none or nobody can know.
 * @param {number} pid */
const startOf = (pid) =>
  orNothing(
    () =>
      readFileSync(`/proc/${pid}/stat`, 'utf8')
        .replace(/^.*\) /s, '')
        .split(' ')[19],
  )

const START = startOf(process.pid)
/** The locks that this process holds; any other that bears its id is from an earlier process. */
const held = new Set()

/** Returns true if the process that wrote a lock has ended. A lock that names no place (a crash may
 * leave an empty one) or another place is judged by its age.
 * @param {number} pid @param {string} id @param {string} start @param {string | undefined} place
 * @param {number} ageMs */
function isGone(pid, id, start, place, ageMs) {
  if (place !== PLACE) return ageMs > ABANDONED_MS
  if (pid === process.pid) return !held.has(id)
  try {
    process.kill(pid, 0)
  } catch (error) {
    return isCode(error, 'ESRCH')
  }
  return start !== startOf(pid)
}

/** @implements {Store} */
export class FileStore {
  #folder
  /** @param {string} folder */
  constructor(folder) {
    this.#folder = folder
  }

  async load() {
    await this.#makePrivate()
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
  async begin() {
    await this.#locked('lock', 100, () => this.#write('begun', ''))
  }
  /** @param {string | null} before @param {string} after @param {number} forgetBeforeS */
  async commit(before, after, forgetBeforeS) {
    return !!(await this.#locked('lock', 100, async () => {
      const { text, records } = await this.load()
      if (text !== before) return false
      await this.#write('state', seal(after) + '\n' + after)
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
      return [] // damaged: searches that cannot be read are discarded
    }
  }

  /** @param {string} name @returns {Promise<string | null>} */
  async #read(name) {
    try {
      return (await this.#withFile(name, O_RDONLY, (file) => file.readFile())).toString()
    } catch (error) {
      if (isCode(error, 'ENOENT')) return null
      throw error
    }
  }

  /** Replaces a file durably, all or nothing. Callers hold the lock.
   * @param {string} name @param {string} text */
  async #write(name, text) {
    const path = join(this.#folder, name)
    await this.#withFile(name + '.new', O_WRONLY | O_CREAT | O_EXCL, async (file) => {
      await file.writeFile(text)
      await file.sync()
    })
    await rename(path + '.new', path)
    const folder = await open(this.#folder)
    await folder.sync().finally(() => folder.close())
  }

  /** Opens a file of this user, with mode 600, and closes it afterwards.
   * @template T @param {string} name @param {number} flags
   * @param {(file: import('node:fs/promises').FileHandle) => Promise<T>} act @returns {Promise<T>} */
  async #withFile(name, flags, act) {
    /** @param {string} found */
    const planted = (found) =>
      refused(`${name} in the client's folder must be a plain file, but it is ${found}: remove it`)
    const file = await open(join(this.#folder, name), flags | CAREFULLY, 0o600).catch((error) => {
      throw isCode(error, 'ELOOP') ? planted('a link') : error
    })
    try {
      if (!(await file.stat()).isFile()) throw planted('none')
      await narrow(file, name, 0o600, true)
      return await act(file)
    } finally {
      await file.close()
    }
  }

  /** Creates the folder if needed; refuses one that others can reach or that is a link. */
  async #makePrivate() {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    if (process.platform === 'win32') return // folders cannot be opened there, nor have modes
    const flags = O_RDONLY | O_DIRECTORY | CAREFULLY
    const folder = await open(this.#folder, flags).catch((error) => {
      if (!isCode(error, 'ELOOP', 'ENOTDIR')) throw error
      throw refused("the client's folder must be a folder, but it is a link or a file: remove it")
    })
    try {
      // A folder that holds others' files may be wide on purpose.
      const own = (await readdir(this.#folder)).every((name) => OWN.test(name))
      await narrow(folder, 'the folder', 0o700, own)
    } finally {
      await folder.close()
    }
  }

  /** Runs `act` while this process has the lock; undefined when another has it for too long.
   * @template T @param {string} name @param {number} tries @param {() => Promise<T>} act
   * @returns {Promise<T | undefined>} */
  async #locked(name, tries, act) {
    await this.#makePrivate()
    const path = join(this.#folder, name)
    const id = randomUUID()
    const draft = `${name}.${id}`
    held.add(id)
    try {
      await this.#withFile(draft, O_WRONLY | O_CREAT | O_EXCL, (file) =>
        file.writeFile([process.pid, id, START, PLACE].join(' ')),
      )
      try {
        for (; ; tries--) {
          try {
            await link(join(this.#folder, draft), path)
            break
          } catch (error) {
            if (!isCode(error, 'EEXIST')) throw error
          }
          const cleared = await this.#clearAbandoned(name)
          if (tries <= 0 && !cleared) {
            if (name === 'busy') return undefined
            throw refused('another process has kept the lock; delete it if there is none')
          }
          if (!cleared) await new Promise((resolve) => setTimeout(resolve, 50))
        }
      } finally {
        await unlink(join(this.#folder, draft))
      }
      try {
        // Writers hold `lock`, as this process does now: what is half-written is from one that ended.
        if (name === 'lock') {
          for (const left of NAMES) await rm(join(this.#folder, left + '.new'), { force: true })
        }
        return await act()
      } finally {
        await unlink(path)
      }
    } finally {
      held.delete(id)
    }
  }

  /** Removes the lock of a process that ended. Only who created `.dead` for that very lock may,
   * and reads it again first: another process may have taken it in between.
   * @param {string} name @returns {Promise<boolean>} true if the lock may be free now. */
  async #clearAbandoned(name) {
    const owner = await this.#read(name)
    if (owner === null) return true
    const [pid, id, start, place] = owner.split(' ')
    if (!isGone(+pid, id, start, place, await this.#ageMs(name))) return false
    const entry = `${name}.${seal(owner).slice(0, 36)}.dead`
    try {
      await this.#withFile(entry, O_WRONLY | O_CREAT | O_EXCL, async () => {})
    } catch {
      // Another process is at it, or was killed at it.
      const left = (await this.#ageMs(entry)) > ABANDONED_MS
      if (left) await rm(join(this.#folder, entry), { force: true })
      return false
    }
    if ((await this.#read(name)) === owner) await unlink(join(this.#folder, name))
    await unlink(join(this.#folder, entry))
    return true
  }

  /** @param {string} name @returns {Promise<number>} */
  async #ageMs(name) {
    const found = await lstat(join(this.#folder, name)).catch(() => null)
    return found ? Date.now() - found.mtimeMs : 0
  }
}

/** Removes other users' rights, or refuses.
 * @param {import('node:fs/promises').FileHandle} handle @param {string} name
 * @param {number} mode @param {boolean} own */
async function narrow(handle, name, mode, own) {
  if (process.platform === 'win32') return
  let found = await handle.stat()
  if (found.uid !== process.geteuid?.()) {
    throw refused(`${name} must belong to the user who runs the client: run it as the owner`)
  }
  if (found.mode & 0o077 && own) {
    await handle.chmod(mode)
    found = await handle.stat()
  }
  if (found.mode & 0o077) {
    throw refused(`${name} must be for its owner alone: run chmod ${mode.toString(8)} on it`)
  }
}
