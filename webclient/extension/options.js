// The options page: nothing is on, noted or sent before a person says so here.
import { forget, loadSettings, turnOff, turnOn } from './participation.js'
import { LIMITS, problemOf, sitesOf, TRIAL_LIMITS } from './settings.js'
import { duration } from './words.js'

/** @typedef {import('./settings.js').Settings} Settings */
/** @param {string} id @returns {any} */
const part = (id) => document.getElementById(id)
/** @type {Settings | null} */ let current = null

/** @param {string} tag @param {string} text */
const made = (tag, text = '') => Object.assign(document.createElement(tag), { textContent: text })

/** Without an exponent: people write 0.00001. @param {number} number */
const plain = (number) =>
  number.toLocaleString('en', { useGrouping: false, maximumFractionDigits: 20 })

/** @param {string} name @param {number | null} value */
function startOf(name, value) {
  if (value === null) return 'you choose'
  return name.endsWith('S') ? duration(value) : value.toLocaleString()
}

function buildLimits() {
  for (const [name, label, start] of LIMITS) {
    const row = made('tr')
    const head = /** @type {HTMLTableCellElement} */ (made('th'))
    head.scope = 'row'
    const words = /** @type {HTMLLabelElement} */ (made('span', label))
    words.id = `label-${name}`
    head.append(words)
    const input = Object.assign(document.createElement('input'), { id: name, inputMode: 'decimal' })
    input.autocomplete = 'off'
    input.setAttribute('aria-labelledby', words.id)
    input.value = start === null ? '' : plain(start)
    const cell = made('td')
    cell.append(input)
    const about = made('td', startOf(name, start))
    about.className = 'hint wide'
    row.append(head, about, cell)
    part('limits').append(row)
  }
}

/** @returns {Settings} */
function written() {
  const entries = LIMITS.map(([name]) => {
    const text = part(name).value.trim()
    return [name, text === '' ? NaN : Number(text)]
  })
  const server = part('server').value.trim()
  const searchPage = part('searchPage').value.trim()
  const optIn = current?.optIn ?? null
  return { on: true, server, searchPage, limits: Object.fromEntries(entries), optIn }
}

/** @param {string} id @param {string | null} text */
function say(id, text) {
  part(id).textContent = text ?? ''
  part(id).hidden = !text
}

function show() {
  const on = !!current?.on
  part('state').textContent = on
    ? `On. Searches on the ${current?.searchPage ? 'search page below and the ' : ''}sample page are noted on this device, and randomised reports are sent.`
    : 'Off. Nothing is noted, asked for or sent.'
  if (on && current?.optIn)
    part('state').textContent = 'On, and your searches are sent as they are.'
  part('state').className = on ? 'good' : 'notice'
  part('save').textContent = on ? 'Save changes' : 'Turn on'
  part('off').hidden = !on
  part('forget').disabled = !current
  const optedIn = !!current?.optIn
  part('opt-in-state').textContent = optedIn
    ? 'On.'
    : on
      ? 'Off.'
      : 'Off. Turn the extension on first.'
  part('opt-in-on').disabled = !on
  part('opt-in-off').hidden = !optedIn
  part('userId').value = current?.optIn?.userId ?? ''
  part('token').value = current?.optIn?.token ?? ''
  part('agree').checked = optedIn
}

function fill() {
  if (!current) return
  part('server').value = current.server
  part('searchPage').value = current.searchPage
  for (const [name] of LIMITS) part(name).value = plain(current.limits[name])
}

part('settings').addEventListener('submit', async (/** @type {Event} */ event) => {
  event.preventDefault()
  const settings = written()
  say('problem', problemOf(settings))
  if (part('problem').textContent) return
  // First of all: a browser asks only in the moment of a click.
  const granted = await chrome.permissions
    .request({ origins: sitesOf(settings) })
    .catch(() => false)
  if (!granted)
    return say('problem', 'Without your permission for these sites nothing was changed.')
  await turnOn(settings)
  await load()
})

part('off').addEventListener('click', async () => {
  await turnOff()
  await load()
})

part('forget').addEventListener('click', async () => {
  const done = current && (await forget(current))
  part('forgotten').textContent = done ? 'Forgotten.' : 'That failed. Try again.'
})

part('trial').addEventListener('click', () => {
  for (const [name, value] of Object.entries(TRIAL_LIMITS)) part(name).value = plain(value)
  part('trial-hint').hidden = false
})

part('opt-in').addEventListener('submit', async (/** @type {Event} */ event) => {
  event.preventDefault()
  if (!current?.on) return
  const optIn = { userId: part('userId').value.trim(), token: part('token').value.trim() }
  const agreed = part('agree').checked
  say('opt-in-problem', agreed ? problemOf({ ...current, optIn }) : 'Tick the box if you agree.')
  if (part('opt-in-problem').textContent) return
  const granted = await chrome.permissions
    .request({ origins: sitesOf({ ...current, optIn }) })
    .catch(() => false)
  if (!granted)
    return say('opt-in-problem', 'Without your permission for this address nothing was changed.')
  await turnOn({ ...current, optIn })
  await load()
})

part('opt-in-off').addEventListener('click', async () => {
  if (current) await turnOn({ ...current, optIn: null })
  await load()
})

async function load() {
  current = await loadSettings()
  show()
}

buildLimits()
await load()
fill()
