// Runs on the search page only: tells the extension which link was clicked, and nothing else. What
// was searched for, the extension reads from the page's address, as the browser gives it.
{
  const clicked = (/** @type {MouseEvent} */ event) => {
    // A page can pretend a click; the browser says so. The right button opens a menu.
    if (!event.isTrusted || event.button > 1) return
    const link = event.composedPath().find((node) => node instanceof HTMLAnchorElement)
    // After the extension was removed or updated, this script is left without it.
    if (link?.href && chrome.runtime?.id) {
      chrome.runtime.sendMessage({ clicked: link.href }).catch(() => {})
    }
  }
  addEventListener('click', clicked, true)
  addEventListener('auxclick', clicked, true)
}
