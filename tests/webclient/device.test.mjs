// The whole device: conversations, the stores, and what must never happen.
import assert from 'node:assert/strict'
import * as fs from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import * as shipped from '../../webclient/lib/index.js'
import { FileStore as ShippedFileStore } from '../../webclient/lib/file-store.js'
import { FileStore } from '../../webclient/src/file-store.js'
import { Device, MemoryStore, PublishedResult } from '../../webclient/src/index.js'
import { vectors } from './support.mjs'
import { noteSubmission } from '../../webclient/src/sent-log.js'
import { camel, play } from './talking.mjs'

const { chmod, mkdtemp, readdir, readFile, rm, stat, symlink, utimes, writeFile } = fs
const conversations = [...vectors('conversations').conversations, ...vectors('sent').conversations]
const folders = []
const newFolder = async () => {
  folders.push(await mkdtemp(join(tmpdir(), 'device-')))
  return folders.at(-1)
}
after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true }))))

for (const vector of conversations) {
  test(vector.name, async () => {
    const memory = new MemoryStore()
    const lose = (store) => (store.text = null)
    await play(vector, Device, () => memory, lose)
    const other = new shipped.MemoryStore()
    await play(vector, shipped.Device, () => other, lose)
    const folder = await newFolder()
    const unlink = () => rm(join(folder, 'state'))
    await play(vector, shipped.Device, () => new ShippedFileStore(folder), unlink)
  })
}

const [sending] = conversations
const limits = camel(sending.limits)
const server = 'https://gateway.example'
const device = (store, more = {}, now = () => 0) =>
  new Device({ server, limits, store, ...more }, { clock: now, dice: { below: () => 0n } })
const listOf = (vector) => vector.steps.flatMap((s) => s.exchanges ?? [])[0].response.body

/** A server that shows one list and notes what it is posted; `take` answers posts. */
const showing =
  (list, posted, take) =>
  async (address, { method, body }) => {
    if (method !== 'POST') return new Response(list)
    posted.push(body)
    return take(posted.length)
  }
const accepted = () => new Response('{"verdicts":[{"status":"accepted"}]}', { status: 202 })
const NOW = 101 * 86400 + 3600

test('a token may be a function, asked before each sending', async () => {
  const vector = conversations.find(({ opt_in }) => opt_in)
  const [epochs] = vector.steps.flatMap((s) => s.exchanges ?? [])
  const { collecting } = JSON.parse(epochs.response.body)
  const minted = [Promise.reject(new Error('away')), 'first', 'second']
  const sent = []
  const fetch = async (_, { method, headers, body }) => {
    if (method !== 'POST') return new Response(epochs.response.body)
    sent.push([headers.authorization, body])
    return sent.length < 2 ? new Response('', { status: 401 }) : accepted()
  }
  const store = new MemoryStore()
  const optIn = { userId: 'sonja', token: () => minted.shift() }
  const one = device(store, { optIn, fetch }, () => collecting.window_start_s + 60)
  await one.record('weather', 'https://weather.example/')
  const outcomes = []
  for (let i = 0; i < 3; i++) outcomes.push((await one.maybeReport({ atOnce: true })).code)
  assert.deepEqual(outcomes, ['try later', 'try later', 'sent'])
  assert.deepEqual(
    sent.map(([token]) => token),
    ['Bearer first', 'Bearer second'],
  )
  assert.equal(sent[0][1], sent[1][1])
})

test('limits have no defaults where they are a promise, and limit something', () => {
  for (const name of Object.keys(limits)) {
    const { [name]: _, ...less } = limits
    assert.throws(() => device(new MemoryStore(), { limits: less }), RangeError, name)
  }
  const wrong = [
    { epsilonPerReport: 0 }, { epsilonPerReport: Infinity }, { epsilonPerReport: '4' },
    { epsilonPerReport: 9 }, { deltaPerReport: 1 }, { deltaPerReport: null }, { deltaPerReport: NaN },
    { deltaPerReport: 0.1 }, { periodS: 1.5 }, { periodS: 0 }, { maxAnswers: -1 }, { more: 1 },
    { minWindowS: 32 * 86400 }, { maxWindowS: 46 * 86400 }, { maxWaitS: undefined },
  ] // prettier-ignore
  for (const change of wrong) {
    assert.throws(() => device(new MemoryStore(), { limits: { ...limits, ...change } }), RangeError)
  }
})

test('a server is reached by TLS, or is this machine', () => {
  const bad = [
    'http://gateway.example',
    'ftp://gateway.example',
    'https://g.example/?a',
    'https://g.example/#a',
  ]
  for (const server of bad) assert.throws(() => device(new MemoryStore(), { server }), RangeError)
  for (const server of ['http://127.0.0.1:8080/', 'http://[::1]:1', 'http://localhost/base']) {
    device(new MemoryStore(), { server })
  }
  const optIn = { userId: '', token: 'x' }
  assert.throws(() => device(new MemoryStore(), { optIn }), RangeError)
  assert.throws(() => device(new MemoryStore(), { optIn: { userId: 'a', token: 'ü' } }), RangeError)
})

test('no cookie, no cache, no redirect and no referrer goes with a request', async () => {
  let asked
  const fetch = async (_, how) => ((asked = how), new Response('', { status: 404 }))
  await device(new MemoryStore(), { fetch }).maybeReport()
  assert.equal(asked.credentials, 'omit')
  assert.equal(asked.cache, 'no-store')
  assert.equal(asked.redirect, 'manual')
  assert.equal(asked.referrerPolicy, 'no-referrer')
})

test('a state that is lost or damaged is not taken for a new device', async () => {
  for (const text of [null, '', '{}', '{"version":3,"budget_entries":[]}']) {
    const store = new MemoryStore()
    assert.equal((await device(store).status()).code, 'status')
    store.text = text
    const fetch = () => assert.fail('asked')
    assert.equal((await device(store, { fetch }).maybeReport()).code, 'state unreadable')
    assert.equal((await device(store).status()).code, 'state unreadable')
  }
})

test('what cannot be read is forgotten too, and is still no new device', async () => {
  // A damaged state may quote opt-in searches that wait to be sent.
  const damaged = '{"pending":{"body":"a secret search"}'
  const forgets = async (store) => {
    assert.equal((await device(store).forget()).detail, 'forgotten')
    assert.deepEqual((await store.load()).records, [])
    assert.equal((await device(store).maybeReport()).code, 'state unreadable')
    assert.equal((await device(store).forget()).detail, 'forgotten')
  }
  for (const text of [null, '', 'null', damaged]) {
    const store = new MemoryStore()
    await device(store).status()
    await device(store).record('a secret search', 'https://x.example/')
    store.text = text
    await forgets(store)
    assert.doesNotMatch(store.text, /secret/)
  }
  const folder = await newFolder()
  await device(new FileStore(folder)).status()
  await device(new FileStore(folder)).record('a secret search', 'https://x.example/')
  await writeFile(join(folder, 'state'), damaged)
  await forgets(new FileStore(folder))
  for (const name of await readdir(folder)) {
    assert.doesNotMatch(await readFile(join(folder, name), 'utf8'), /secret/)
  }
})

test('forgetting on a device that is new leaves it new', async () => {
  const store = new MemoryStore()
  await device(store).record('a secret search', 'https://x.example/')
  assert.equal((await device(store).forget()).detail, 'forgotten')
  const status = await device(store).status()
  assert.equal(status.code, 'status')
  assert.equal(status.recordsHeld, 0)
})

test('on disk too', async () => {
  const folder = await newFolder()
  await device(new FileStore(folder)).status()
  const path = join(folder, 'state')
  const whole = await readFile(path, 'utf8')
  await writeFile(path, whole.replace('"cohort":0', '"cohort":1'))
  assert.equal((await device(new FileStore(folder)).status()).code, 'state unreadable')
  await rm(path)
  assert.equal((await device(new FileStore(folder)).status()).code, 'state unreadable')
  await writeFile(path, whole)
  assert.equal((await device(new FileStore(folder)).status()).code, 'status')
  assert.deepEqual((await readdir(folder)).sort(), ['begun', 'state'])
})

test('records that were damaged are given up, and no leftover outlives forgetting', async () => {
  const folder = await newFolder()
  const one = device(new FileStore(folder))
  await one.status()
  await writeFile(join(folder, 'records'), '[[1,"a secret search"')
  await writeFile(join(folder, 'records.new'), '[[1,"a secret search","https://x.example/"]]')
  assert.equal((await one.status()).recordsHeld, 0)
  assert.equal((await one.forget()).detail, 'forgotten')
  assert.deepEqual((await readdir(folder)).sort(), ['begun', 'records', 'state'])
  assert.equal(await readFile(join(folder, 'records'), 'utf8'), '[]')
})

test('an outcome quotes nothing that was stored', async () => {
  const store = new MemoryStore()
  store.load = async () => JSON.parse('a secret search')
  const { code, detail } = await device(store).status()
  assert.equal(code, 'storage refused')
  assert.doesNotMatch(detail, /secret/)
})

test('storage that fails is an outcome, and nothing is sent', async () => {
  const list = listOf(sending)
  const posted = []
  for (const broken of ['load', 'commit', 'begin', 'keep', 'exclusively']) {
    const store = new MemoryStore()
    store[broken] = async () => {
      throw new DOMException('full', 'QuotaExceededError')
    }
    const one = device(store, { fetch: showing(list, posted, accepted) }, () => NOW)
    if (broken === 'keep') {
      assert.equal((await one.record('a', 'https://x.example/')).code, 'storage refused')
    } else {
      const { code } = await one.maybeReport({ atOnce: true })
      assert.equal(code, 'storage refused', broken)
    }
  }
  assert.equal(posted.length, 0)
})

test('what a person typed is never an exception', async () => {
  const one = device(new MemoryStore())
  for (const [query, url] of [
    ['', 'u'],
    ['\0', 'u'],
    ['q', ''],
    ['\ud800', 'u'],
    ['x'.repeat(9999), 'u'],
    [undefined, null],
  ]) {
    assert.equal((await one.record(query, url)).code, 'text refused')
  }
})

test('the state is safe before anything is sent, and every attempt sends the same bytes', async () => {
  const posted = []
  const store = new MemoryStore()
  const fetch = showing(listOf(sending), posted, (n) => {
    const { budget_entries, pending } = JSON.parse(store.text)
    assert.equal(budget_entries.length, 1)
    assert.equal(pending.body, posted.at(-1))
    if (n < 4) throw new TypeError('dropped')
    return accepted()
  })
  let nowS = NOW
  // Dice of the real kind: a second draw would be another contributor.
  for (let i = 0; i < 4; i++, nowS += 3600) {
    const one = new Device({ server, limits, store, fetch }, { clock: () => nowS })
    const { code } = await one.maybeReport({ atOnce: true })
    assert.equal(code, i < 3 ? 'try later' : 'sent')
  }
  assert.equal(new Set(posted).size, 1)
  assert.equal(posted.length, 4)
})

test('two tabs that report at once spend once', async () => {
  const posted = []
  const store = new MemoryStore()
  await device(store).status()
  const fetch = showing(listOf(sending), posted, accepted)
  const tabs = () => device(store, { fetch }, () => NOW).maybeReport({ atOnce: true })
  const found = (await Promise.all([tabs(), tabs(), tabs()])).map(({ code }) => code)
  assert.deepEqual(found.sort(), ['nothing new', 'nothing new', 'sent'])
  // Without a lock between them, what they write is compared first.
  const unlocked = new MemoryStore()
  await device(unlocked).status()
  unlocked.exclusively = (act) => act()
  posted.length = 0
  const other = () => device(unlocked, { fetch }, () => NOW).maybeReport({ atOnce: true })
  await Promise.all([other(), other(), other()])
  assert.equal(JSON.parse(unlocked.text).budget_entries.length, 1)
  assert.equal(new Set(posted).size, 1)
})

test('forgetting while another tab is about to report stops that report', async () => {
  const store = new MemoryStore()
  const posted = []
  const one = device(store, { fetch: showing(listOf(sending), posted, accepted) }, () => NOW)
  await one.record('weather', 'https://weather.example/')
  const load = store.load.bind(store)
  let loads = 0
  store.load = async () => {
    const found = await load()
    // After the third look everything is chosen; then the person forgets.
    if (++loads === 3) {
      store.load = load
      await device(store, {}, () => NOW).forget()
    }
    return found
  }
  const { code } = await one.maybeReport({ atOnce: true })
  assert.equal(code, 'nothing new')
  assert.equal(posted.length, 0)
  assert.equal(JSON.parse(store.text).budget_entries.length, 0)
})

/** What a lock of this process says: process id, lock id, start, place. */
const ownLock = async (folder) => {
  const read = () => readFile(join(folder, 'busy'), 'utf8')
  return (await new FileStore(folder).exclusively(read)).split(' ')
}

test('the lock of a process that ended is removed, that of a living one waited for', async () => {
  const folder = await newFolder()
  const store = new FileStore(folder)
  await device(store).status()
  const [pid, id, start, place] = await ownLock(folder)
  const gone = [
    ['999999999', id, start, place],
    [pid, id, start, place], // an earlier process had our id, as in a restarted container
    [`${process.ppid}`, id, '1', place], // the id was given to another process since
  ]
  for (const lock of gone) {
    await writeFile(join(folder, 'busy'), lock.join(' '))
    await writeFile(join(folder, 'lock'), lock.join(' '))
    assert.equal(await store.exclusively(async () => 'mine'), 'mine')
    await store.keep([1, 'q', 'u'], 1000)
  }
  const parent = await readFile(`/proc/${process.ppid}/stat`, 'utf8')
  const alive = [`${process.ppid}`, id, parent.replace(/^.*\) /s, '').split(' ')[19], place]
  const unknown = [pid, id, start, 'elsewhere']
  for (const lock of [alive, unknown, ['']]) {
    await writeFile(join(folder, 'busy'), lock.join(' '))
    assert.equal(await store.exclusively(async () => 'mine'), undefined)
  }
  // Of another container nothing is known but the time: it is abandoned after ten minutes.
  const old = new Date(Date.now() - 601_000)
  for (const lock of [unknown, ['']]) {
    await writeFile(join(folder, 'busy'), lock.join(' '))
    await utimes(join(folder, 'busy'), old, old)
    assert.equal(await store.exclusively(async () => 'mine'), 'mine')
  }
  let inside = 0
  const once = async () => {
    assert.equal(inside++, 0)
    await new Promise((resolve) => setTimeout(resolve, 5))
    inside--
  }
  const stores = Array.from({ length: 8 }, () => new FileStore(folder))
  await Promise.all(stores.map((other) => other.exclusively(once)))
  await Promise.all(stores.map((other, i) => other.keep([i, 'q', 'u'], 1e6)))
  assert.equal((await store.load()).records.length, 11)
})

test('a planted link is never followed, and nothing of it is overwritten', async () => {
  for (const name of ['state', 'begun', 'records', 'lock', 'busy']) {
    const folder = await newFolder()
    const other = join(await newFolder(), 'other')
    await writeFile(other, "another's")
    await symlink(other, join(folder, name))
    const one = device(new FileStore(folder))
    const kept = await one.record('a secret search', 'https://x.example/')
    const asked = await one.maybeReport()
    assert.ok([kept.code, asked.code].includes('storage refused'), name)
    const { detail } = kept.code === 'storage refused' ? kept : asked
    assert.match(detail, /must be a plain file, but it is a link: remove it/)
    assert.equal(await readFile(other, 'utf8'), "another's")
  }
  for (const name of ['state.new', 'begun.new', 'records.new']) {
    const folder = await newFolder()
    const other = join(await newFolder(), 'other')
    await writeFile(other, "another's")
    await symlink(other, join(folder, name))
    const one = device(new FileStore(folder))
    assert.equal((await one.record('a secret search', 'https://x.example/')).code, 'kept')
    await one.status()
    assert.equal(await readFile(other, 'utf8'), "another's")
    assert.ok(!(await readdir(folder)).includes(name))
  }
})

test('the folder is for its owner alone, and a folder that is a link is refused', async () => {
  const folder = await newFolder()
  await chmod(folder, 0o755)
  const one = device(new FileStore(folder))
  await one.record('a secret search', 'https://x.example/')
  await chmod(join(folder, 'records'), 0o644)
  await one.status()
  assert.equal((await stat(folder)).mode & 0o777, 0o700)
  for (const name of await readdir(folder)) {
    assert.equal((await stat(join(folder, name))).mode & 0o777, 0o600, name)
  }
  // One with others' files in it may be wide on purpose: it is refused, not closed to them.
  await chmod(folder, 0o755)
  await writeFile(join(folder, 'photo'), '')
  const wide = await one.record('another', 'https://x.example/')
  assert.deepEqual([wide.code, /chmod 700/.test(wide.detail)], ['storage refused', true])
  assert.equal((await stat(folder)).mode & 0o777, 0o755)
  const leads = `${folder}-link`
  await symlink(folder, leads)
  folders.unshift(leads)
  const { code, detail } = await device(new FileStore(leads)).record('q', 'https://x.example/')
  assert.deepEqual([code, /it is a link/.test(detail)], ['storage refused', true])
})

test('records take a bounded room: the older half goes', async () => {
  const store = new MemoryStore()
  const one = device(store, { limits: { ...limits, maxRecordBytes: 1000 } })
  for (let i = 0; i < 200; i++) await one.record(`query ${i}`, 'https://example.org/')
  assert.ok(store.records.length < 30)
  assert.equal(store.records.at(-1)[1], 'query 199')
})

test('status tells what is there and what was spent', async () => {
  const store = new MemoryStore()
  await play(sending, Device, () => store)
  const status = await device(store, {}, () => NOW + 4 * 86400).status()
  assert.equal(status.epsilonSpent, 4)
  assert.equal(status.windowsAnswered, 1)
  assert.equal(status.lastEpoch, 7)
  assert.equal(status.unsentEpoch, null)
  const forgotten = await device(store, {}, () => NOW + 4 * 86400).forget()
  assert.equal(forgotten.detail, 'forgotten')
  assert.equal((await device(store, {}, () => NOW + 4 * 86400).status()).recordsHeld, 0)
})

test('what is shipped has the same exports, and importing needs no browser', () => {
  const names = ['Device', 'IndexedDbStore', 'MemoryStore', 'PublishedResult']
  assert.deepEqual(Object.keys(shipped).sort(), names)
  assert.equal(typeof globalThis.indexedDB, 'undefined')
  assert.equal(PublishedResult.read('{}'), null)
})

test('without IndexedDB the outcome says so', async () => {
  const one = device(new shipped.IndexedDbStore())
  assert.equal((await one.maybeReport()).code, 'storage refused')
  assert.equal((await one.record('q', 'u')).code, 'storage refused')
})

test('the oldest answers go first when they are too large', () => {
  const text = 'é'.repeat(Math.floor(((256 << 10) / 100 - 16) / 4))
  const cells = Array.from({ length: 100 }, (_, i) => [i, text, text])
  const submission = { randomizer: '', listed: 1, cells: 2, answers: [cells], searches: 0 }
  const [kept] = noteSubmission([{ at_s: 0 }], submission)
  assert.deepEqual(kept.submission, submission)
  const [first, second] = noteSubmission([kept, { at_s: 1 }], submission)
  assert.equal(first.submission.answers, null)
  assert.deepEqual(second.submission, submission)
})

const LIMITED = {
  'an epsilon above its own': 'epsilonPerReport 4, got 4.0',
  'a delta above its own': 'deltaPerReport 0.00001, got 0.000011',
  'more answers than its own limit': 'maxAnswers 4, got 5',
  'more cells than its own limit': 'maxCellsPerAnswer 1024, got 1025',
  'more cohorts than its own limit': 'maxCohorts 366, got 367',
  "an epoch's number too high for the time since 1970": 'minWindowS 3600',
  'a window too short': 'from minWindowS 3600 to maxWindowS 2678400, got 3599',
  'a window too long': 'to maxWindowS 2678400, got 2678401',
  'a window that has not ended': 'maxClockSkewS 900',
}
for (const [refused, named] of Object.entries(LIMITED)) {
  test(`the refusal of ${refused} names the limit`, async () => {
    const vector = conversations.find(({ name }) => name === `the device refuses ${refused}`)
    const [{ now_s }] = vector.steps
    const fetch = showing(listOf(vector), [], accepted)
    const outcome = await device(new MemoryStore(), { fetch }, () => now_s).maybeReport()
    assert.equal(outcome.code, 'head list refused')
    assert.ok(outcome.detail.includes(named), outcome.detail)
  })
}

test('so do the refusals of a long list, of a clock and of a period', async () => {
  const list = listOf(sending)
  const one = (own, headers = {}) =>
    device(
      new MemoryStore(),
      { limits: { ...limits, ...own }, fetch: async () => new Response(list, { headers }) },
      () => NOW,
    ).maybeReport()
  assert.match((await one({ maxHeadListBytes: 99 })).detail, /maxHeadListBytes 99/)
  const date = new Date((NOW + 901) * 1000).toUTCString()
  assert.match((await one({}, { date })).detail, /maxClockSkewS 900/)
  const vector = conversations.find(({ name }) => name === 'the periods budget is used up')
  const found = []
  await play(
    vector,
    class extends Device {
      async maybeReport(how) {
        found.push(await super.maybeReport(how))
        return found.at(-1)
      }
    },
    (
      (memory) => () =>
        memory
    )(new MemoryStore()),
  )
  const limited = found.find(({ code }) => code === 'limit reached')
  assert.match(limited.detail, /epsilonPerPeriod 8 and deltaPerPeriod/)
})

test("the gateway's sentence about a token is passed on, unless it repeats what was sent", async () => {
  const vector = conversations.find(({ opt_in }) => opt_in)
  const [epochs] = vector.steps.flatMap((s) => s.exchanges ?? [])
  const problem = { 'content-type': 'application/problem+json' }
  const expired = "a user's token must not have expired, and this one has"
  for (const [said, shown] of [
    [expired, true],
    ['you searched for A Private Matter', false],
    ['the token is a-token', false],
    ['of account-17', false],
    ['two\nlines', false],
    ['long'.repeat(100), false],
    [7, false],
  ]) {
    const { collecting } = JSON.parse(epochs.response.body)
    const nowS = collecting.window_start_s + 3600
    const fetch = async (_, { method }) =>
      method === 'POST'
        ? new Response(JSON.stringify({ detail: said }), { status: 401, headers: problem })
        : new Response(epochs.response.body)
    const optIn = { userId: 'account-17', token: 'a-token' }
    const one = device(new MemoryStore(), { fetch, optIn }, () => nowS)
    await one.record('a private matter', 'https://x.example/')
    const { code, detail } = await one.maybeReport({ atOnce: true })
    assert.equal(code, 'try later')
    assert.equal(detail.includes(`The gateway says: "${said}"`), shown, detail)
    assert.match(detail, /answered 401/)
  }
})
