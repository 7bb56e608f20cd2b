// The extension's events. The browser ends an idle worker, so all state is in storage.
import {
  look,
  note,
  storedResult,
  turnOff,
  isPermitted,
  loadSettings,
  wake,
} from './participation.js'
import { placeFor, suggestionsFor } from './suggestions.js'

// Content scripts must not see tokens and settings.
chrome.storage.local.setAccessLevel({ accessLevel: 'TRUSTED_CONTEXTS' })

chrome.runtime.onInstalled.addListener(({ reason }) => {
  if (reason === 'install') chrome.runtime.openOptionsPage()
  wake()
})
chrome.runtime.onStartup.addListener(wake)
chrome.alarms.onAlarm.addListener(look)

chrome.runtime.onMessage.addListener((message, sender) => {
  if (sender.id !== chrome.runtime.id) return
  const address = addressOf(sender)
  if (address) noteClick(message?.clicked, address)
})

/** The address of the page where a click happened. On sites it is the tab's present address:
 * `sender.url` still names the first page after a script changed the address
 * (`history.pushState`), and the click would be noted under an earlier query.
 * @param {chrome.runtime.MessageSender} sender */
const addressOf = ({ origin, url, tab }) =>
  origin === new URL(chrome.runtime.getURL('')).origin ? url : tab?.url

/** @param {unknown} link @param {string} address */
async function noteClick(link, address) {
  const noted = await note(link, address)
  // For the extension's own pages; content scripts do not receive it.
  if (noted) chrome.runtime.sendMessage({ noted }).catch(() => {})
}

chrome.permissions.onRemoved.addListener(async () => {
  const settings = await loadSettings()
  if (settings?.on && !(await isPermitted(settings))) await turnOff()
})

chrome.omnibox.setDefaultSuggestion({ description: 'Search the published statistics, offline' })
chrome.omnibox.onInputChanged.addListener(async (typed, suggest) => {
  suggest(suggestionsFor(await storedResult(), typed))
})
chrome.omnibox.onInputEntered.addListener((chosen, disposition) => {
  const url = placeFor(chosen, chrome.runtime.getURL('results.html'))
  if (disposition === 'currentTab') chrome.tabs.update({ url })
  else chrome.tabs.create({ url, active: disposition === 'newForegroundTab' })
})

chrome.action.onClicked.addListener(() => {
  chrome.tabs.create({ url: chrome.runtime.getURL('results.html') })
})
