// Trends and local search in the stored publication, and the spent budget of this device.
import { deviceOf, lastLook, loadSettings, storedResult } from './participation.js'
import { isWebAddress } from './search-page.js'
import { quoted, typed } from './typed-text.js'
import { aboutShares, duration, meaningOf, moment, nameOf, percent, shareOf } from './words.js'

const TRENDS = 20
const AGAIN_MS = 3000
/** @param {string} id @returns {any} */
const part = (id) => document.getElementById(id)
/** Creates an element with text, never markup: strangers typed queries and addresses.
 * @param {string} tag @param {string} [text] @param {string} [className] */
const made = (tag, text = '', className = '') =>
  Object.assign(document.createElement(tag), { textContent: text, className })

/** @param {{probability: number, low: number, high: number}} row @param {number} most */
function bar({ probability, low, high }, most) {
  const box = made('div', '', 'bar')
  box.setAttribute('aria-hidden', 'true')
  const width = (/** @type {number} */ share) =>
    `${(100 * Math.max(0, Math.min(share, most))) / most}%`
  const range = made('i', '', 'range')
  range.style.left = width(low)
  range.style.width = width(high - Math.max(0, low))
  const share = made('i', '', 'share')
  share.style.width = width(probability)
  box.append(range, share)
  return box
}

/** @param {import('./client.js').PublishedResult | null} result */
function showTrends(result) {
  const rows = result?.trends(TRENDS) ?? []
  part('none').hidden = rows.length > 0
  part('trends').hidden = rows.length === 0
  part('trends').caption.textContent = `Epoch ${result?.epoch}: what people searched for most`
  const most = Math.max(...rows.map((row) => row.high), 1e-9)
  const body = rows.map((row) => {
    const line = made('tr')
    const head = /** @type {HTMLTableCellElement} */ (made('th'))
    head.scope = 'row'
    head.append(typed(row.query))
    const picture = made('td')
    picture.append(bar(row, most))
    line.append(
      head,
      made('td', shareOf(row), 'number'),
      made('td', `${percent(Math.max(0, row.low))} to ${percent(row.high)}`, 'number wide hint'),
      picture,
    )
    return line
  })
  part('trends').tBodies[0].replaceChildren(...body)
  part('disputed').hidden = !rows.some((row) => row.disputed)
  part('at-least').hidden = !rows.some((row) => row.atLeast)
  part('which').textContent = result && rows.length ? aboutShares(result) : ''
}

/** @param {import('./client.js').PublishedResult | null} result */
function showFound(result) {
  const query = new URLSearchParams(location.search).get('q')?.trim()
  if (!query) return
  part('q').value = query
  const found = (result?.search(query, 10) ?? []).filter(({ url }) => isWebAddress(url))
  const list = made('ol', '', 'results')
  for (const row of found) {
    const item = made('li')
    const link = Object.assign(document.createElement('a'), { href: row.url, rel: 'noreferrer' })
    link.append(typed(row.url, 'ltr'))
    item.append(link, made('div', `${shareOf(row)} of all searches${nameOf(row)}`, 'hint'))
    list.append(item)
  }
  const others = (result?.complete(query, 6) ?? []).filter((row) => row.query !== query)
  const more = made('p', others.length ? 'Longer: ' : '')
  others.forEach((row, i) => {
    const href = `?q=${encodeURIComponent(row.query)}`
    const link = Object.assign(document.createElement('a'), { href })
    link.append(typed(row.query))
    more.append(i ? ', ' : '', link)
  })
  const none = made('p', `No published result for “${quoted(query)}”.`)
  part('found').replaceChildren(found.length ? list : none, more)
}

/** Which limit it was, or how the service answered.
 * @param {{code: string, detail: string}} last */
const detailOf = ({ code, detail }) =>
  ['head list refused', 'clock wrong', 'limit reached', 'try later'].includes(code) && detail
    ? ` (${detail})`
    : ''

/** @param {number} value @param {number} limit @param {string} name */
function amount(value, limit, name) {
  const box = made('span')
  const meter = Object.assign(document.createElement('meter'), { min: 0, max: limit, value })
  meter.setAttribute('aria-label', `${name} spent`)
  box.append(
    meter,
    `${value.toLocaleString()} of ${limit.toLocaleString(undefined, { maximumFractionDigits: 12 })}`,
  )
  return box
}

async function showSpent() {
  const settings = await loadSettings()
  const status = settings && (await deviceOf(settings).status())
  const last = await lastLook()
  part('state').className = settings?.on ? 'good' : 'notice'
  part('state').textContent = settings?.on ? 'On.' : 'Off. Nothing is noted, asked for or sent.'
  if (settings?.on && settings.optIn)
    part('state').textContent = 'On, and your searches are sent as they are.'
  /** @type {[string, string | Node][]} */ let lines = []
  if (!settings || !status) lines = [['Spent', 'Nothing: it was never turned on.']]
  else if (status.code !== 'status') lines = [['State', meaningOf(status.code)]]
  else {
    const { epsilonPerPeriod, deltaPerPeriod, periodS } = settings.limits
    lines = [
      ['Period', `${duration(periodS)}, ending now`],
      ['ε spent', amount(status.epsilonSpent, epsilonPerPeriod, 'ε')],
      ['δ spent', amount(status.deltaSpent, deltaPerPeriod, 'δ')],
      [
        'Windows answered',
        `${status.windowsAnswered}` +
          (status.lastEpoch === null ? '' : `, the last in epoch ${status.lastEpoch}`),
      ],
      ['Searches on this device', `${status.recordsHeld}`],
      ...(status.waitingUntilS
        ? [
            /** @type {[string, string]} */ ([
              'Next report',
              `not before ${moment(status.waitingUntilS)}`,
            ]),
          ]
        : []),
    ]
  }
  if (last)
    lines.push(['Last look', `${moment(last.atS)}: ${meaningOf(last.code)}${detailOf(last)}`])
  part('spent').replaceChildren(
    ...lines.flatMap(([name, value]) => {
      const description = made('dd')
      description.append(value)
      return [made('dt', name), description]
    }),
  )
}

async function show() {
  const result = await storedResult()
  showTrends(result)
  await showSpent()
  return result
}

showFound(await show())
setInterval(() => document.hidden || show(), AGAIN_MS)
