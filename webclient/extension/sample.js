// The sample search page: three invented results for every query, the same as the demo's people open.
import { deviceOf, loadSettings } from './participation.js'

/** @param {string} id @returns {any} */
const part = (id) => document.getElementById(id)

/** @param {string} text @param {boolean} good */
function say(text, good) {
  Object.assign(part('said'), {
    textContent: text,
    className: good ? 'good' : 'notice',
    hidden: false,
  })
}

/** @param {string} code became of a click */
async function sayNoted(code) {
  const settings = await loadSettings()
  const status = settings && (await deviceOf(settings).status())
  if (code !== 'kept' || status?.code !== 'status') return say('It could not be noted.', false)
  const searches = status.recordsHeld === 1 ? 'search is' : 'searches are'
  say(`Noted. ${status.recordsHeld} ${searches} on this device, until reported or forgotten.`, true)
}

chrome.runtime.onMessage.addListener(({ noted }) => {
  if (noted) sayNoted(noted)
})

const query = new URLSearchParams(location.search).get('q')?.trim()
if (query) {
  part('q').value = query
  const site = query.toLowerCase().replace(/\s+/g, '-')
  for (const number of [1, 2, 3]) {
    const url = `https://${site}.example/${number}`
    const link = Object.assign(document.createElement('a'), { href: url, textContent: url })
    link.addEventListener('click', async (event) => {
      event.preventDefault()
      if ((await loadSettings())?.on) return // the worker says when it was noted
      say('Nothing was noted: the extension is off. Turn it on in its options.', false)
    })
    const item = document.createElement('li')
    item.append(link)
    part('results').append(item)
  }
}
