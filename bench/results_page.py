"""Load time of the results page with 500 records and 30 epochs in headless Chromium, in ms."""

from __future__ import annotations

import contextlib
import os
import statistics

import psutil
from playwright.sync_api import Browser, sync_playwright

from bench._page import Table
from tests.browser.conftest import serving
from tests.browser.publications import filtered, many

TITLE = "The results page"
TEXT = """
The time to load and use the results page with 500 records and 30 epochs, in headless Chromium on
the same cores. A new gateway builds its tables for its first visitor. Later visits are medians of
seven, each with an empty cache. Processor time is that of the gateway and the browser; every visit
includes the time of an empty page.
"""

QUERIES, EPOCHS, RUNS = 250, 30, 7

#: When the page says that it has drawn everything, in milliseconds since it was asked for.
READY = """
new MutationObserver((_, watch) => {
  if (!document.querySelector("main[aria-busy=false]")) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.readyAt = performance.now(); }));
}).observe(document, { subtree: true, childList: true, attributes: true });
"""
#: From a key or a click until the next frame is on the screen.
ANSWERED = """
async (act) => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const began = performance.now();
  if (act === "type") {
    const box = document.getElementById("search");
    box.value = "ti";
    box.dispatchEvent(new Event("input"));
  }
  if (act === "open") {
    document.querySelector("#queries-table tbody a").click();
    await new Promise((done) => addEventListener("hashchange", done, { once: true }));
  }
  if (act === "all") document.getElementById("more").click();
  await frame();
  return performance.now() - began;
}
"""


def processor_ms() -> float:
    """Return the processor time of this process (with the gateway) and its browsers, in ms.

    Others may share the machine: this is what a visit would take where nobody does, or less.
    """
    used = 0.0
    for process in (me := psutil.Process(os.getpid()), *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return 1000 * used


def visited(browser: Browser, url: str) -> dict[str, float]:
    """One visit with an empty cache: milliseconds, and what was sent."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    sent = []
    page.on("requestfinished", lambda request: sent.append(request.sizes()["responseBodySize"]))
    page.add_init_script(READY)
    before = processor_ms()
    page.goto(url, wait_until="commit")
    page.wait_for_function("() => window.readyAt")
    made = {"drawn": page.evaluate("window.readyAt"), "processor": processor_ms() - before}
    assert page.locator("#queries-table tbody tr").count() == 20
    for act in ("type", "all", "open"):
        made[act] = page.evaluate(ANSWERED, act)
    page.wait_for_selector("#chart .band", state="attached")
    made["kilobytes"] = sum(sent) / 1000
    context.close()
    return made


def empty_page_ms(browser: Browser, url: str) -> float:
    """Return Chromium's processor time for an empty page: a part of every visit."""
    context = browser.new_context()
    page = context.new_page()
    before = processor_ms()
    page.goto(url)
    used = processor_ms() - before
    context.close()
    return used


def main() -> list[Table]:
    """The first visit, for which the gateway makes its tables, and the median of others."""
    documents = [filtered(document, 40) for document in many(QUERIES, EPOCHS)]
    with serving(documents) as site, sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        first = visited(browser, site.url)
        later = [visited(browser, site.url) for _ in range(RUNS)]
        empty = statistics.median(
            empty_page_ms(browser, f"{site.url}/healthz") for _ in range(RUNS)
        )
        browser.close()
    names = {
        "drawn": "page drawn and ready, ms",
        "processor": "processors, ms",
        "type": "offers for a typed letter, ms",
        "all": "all queries shown, ms",
        "open": "a query's history, ms",
        "kilobytes": "sent, gzip-compressed, KB",
    }
    records = sum(len(document.records) for document in documents) // EPOCHS
    table = Table(["step", "first visit", "later"], f"{records} records, {EPOCHS} epochs")
    for key, name in names.items():
        median = statistics.median(run[key] for run in later)
        table.add(name, f"{first[key]:.0f}", f"{median:.0f}")
    table.add("processors for an empty page, ms", "", f"{empty:.0f}")
    return [table]
