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

/** How many searches are on this device; null if that cannot be told. */
async function kept() {
  const settings = await loadSettings()
  const status = settings?.on ? await deviceOf(settings).status() : null
  return status?.what === 'status' ? status.recordsHeld : null
}

/** The worker notes a click in its own time. @param {Promise<number | null>} before */
async function sayWhatIsKept(before) {
  const old = await before
  if (old === null)
    return say('Nothing was noted: the extension is off. Turn it on in its options.', false)
  let now = await kept()
  for (let tries = 0; now === old && tries < 50; tries++) {
    await new Promise((done) => setTimeout(done, 100))
    now = await kept()
  }
  if (now === old || now === null) return say('Nothing was noted.', false)
  const searches = now === 1 ? 'search is' : 'searches are'
  say(`Noted. ${now} ${searches} kept on this device, until reported or forgotten.`, true)
}

const query = new URLSearchParams(location.search).get('q')?.trim()
if (query) {
  part('q').value = query
  const site = query.toLowerCase().replace(/\s+/g, '-')
  for (const number of [1, 2, 3]) {
    const url = `https://${site}.example/${number}`
    const link = Object.assign(document.createElement('a'), { href: url, textContent: url })
    link.addEventListener('click', (event) => {
      event.preventDefault()
      sayWhatIsKept(kept())
    })
    const item = document.createElement('li')
    item.append(link)
    part('results').append(item)
  }
}
