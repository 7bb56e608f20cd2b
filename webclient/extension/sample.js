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

async function sayWhatIsKept() {
  const settings = await loadSettings()
  if (!settings?.on)
    return say('The extension is off: nothing was noted. Turn it on in its options.', false)
  const status = await deviceOf(settings).status()
  if (status.what !== 'status')
    return say('Nothing was noted: what was spent cannot be read.', false)
  const many = status.recordsHeld
  say(
    `Noted. ${many} ${many === 1 ? 'search is' : 'searches are'} kept on this device, until reported or forgotten.`,
    true,
  )
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
      // The worker notes it first.
      setTimeout(sayWhatIsKept, 300)
    })
    const item = document.createElement('li')
    item.append(link)
    part('results').append(item)
  }
}
