// What this device sent and what it can reveal, from its storage alone.
import { deviceOf, loadSettings } from './participation.js'
import {
  answerInWords,
  boundInWords,
  budgetInWords,
  nextInWords,
  resultInWords,
  unchangedInWords,
  windowInWords,
} from './sent-words.js'
import { typed } from './typed-text.js'
import { meaningOf, moment } from './words.js'

/** @typedef {import('./sent-words.js').SentDocument} SentDocument */
/** @typedef {import('./sent-words.js').SentEntry} SentEntry */

const AGAIN_MS = 3000
/** @param {string} id @returns {any} */
const part = (id) => document.getElementById(id)
/** Text only: queries and addresses were typed by strangers.
 * @param {string} tag @param {string} [text] @param {string} [className] */
const made = (tag, text = '', className = '') =>
  Object.assign(document.createElement(tag), { textContent: text, className })

/** @type {SentDocument | null} */ let log = null
let drawn = ''

/** @param {SentEntry} entry */
function answersOf(entry) {
  if (entry.mode === 'opt-in') return [made('p', `Sent: ${unchangedInWords(entry)}`)]
  if (!entry.answers) {
    return [made('p', 'Sent: a randomised answer. Its text was removed from this device.')]
  }
  const many = entry.answers.length
  return entry.answers.flatMap((answer, i) => {
    const { sentence, texts } = answerInWords(entry, answer)
    const which = many > 1 ? `Answer ${i + 1} of ${many}: ` : 'Sent: '
    const list = made('ul')
    list.append(
      ...texts.map((text) => {
        const item = made('li')
        // Each isolated: a control in one must not turn the other around.
        text.forEach((one, i) => item.append(i ? ' → ' : '', typed(one)))
        return item
      }),
    )
    return [made('p', which + sentence), ...(texts.length ? [list] : [])]
  })
}

/** @param {SentEntry} entry */
function itemOf(entry) {
  const item = made('li')
  item.append(
    made('h3', `${moment(entry.at_s)}, epoch ${entry.epoch}: ${resultInWords(entry.result)}`),
    made('p', `About ${windowInWords(entry)}.`, 'hint'),
    ...answersOf(entry),
  )
  if (entry.mode === 'report') {
    if (entry.answers) {
      const why = 'Chance adds and replaces answers, so none of these need be yours.'
      item.append(made('p', why, 'hint'))
    }
    item.append(made('p', boundInWords(entry)))
  }
  return item
}

async function show() {
  const settings = await loadSettings()
  const found = settings && (await deviceOf(settings).sentLog())
  log = found && 'document' in found ? found.document : null
  part('export').disabled = !log
  const problem = found && !log ? meaningOf(found.code) : null
  part('state').hidden = !problem
  part('state').textContent = problem ?? ''
  // The time passes, and nothing else may have changed: who reads or selects is not disturbed.
  const now = JSON.stringify([settings?.on, log && { ...log, at_s: 0 }])
  if (now === drawn) return
  drawn = now
  part('none').hidden = !!log?.sent.length
  part('next').textContent = log ? nextInWords(log, !!settings?.on) : 'Nothing.'
  part('budget').replaceChildren(
    ...(log ? budgetInWords(log) : []).flatMap(([name, value]) => [
      made('dt', name),
      made('dd', value),
    ]),
  )
  if (!log) part('budget').replaceChildren(made('dt', 'Budget'), made('dd', 'None was chosen yet.'))
  part('sent').replaceChildren(...[...(log?.sent ?? [])].reverse().map(itemOf))
}

part('export').addEventListener('click', () => {
  if (!log) return
  const file = new Blob([JSON.stringify(log, null, 2) + '\n'], { type: 'application/json' })
  const link = document.createElement('a')
  link.href = URL.createObjectURL(file)
  link.download = 'what-this-device-sent.json'
  link.click()
  URL.revokeObjectURL(link.href)
  part('exported').textContent = 'Saved.'
})

await show()
setInterval(() => document.hidden || show(), AGAIN_MS)
