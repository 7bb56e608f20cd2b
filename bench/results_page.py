"""The results page with 500 records and 30 epochs in headless Chromium: when it answers, in ms."""

from __future__ import annotations

import contextlib
import os
import statistics

import psutil
from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import serving
from tests.browser.publications import filtered, many

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
    """What this process (the gateway is in it) and all its browsers have used, in milliseconds.

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
    """What Chromium takes of processors to show nothing: a part of every visit."""
    context = browser.new_context()
    page = context.new_page()
    before = processor_ms()
    page.goto(url)
    used = processor_ms() - before
    context.close()
    return used


def main() -> None:
    """The first visit, for which the gateway makes its tables, and the median of others."""
    documents = [filtered(document, 40) for document in many(QUERIES, EPOCHS)]
    print(f"{sum(len(d.records) for d in documents) // EPOCHS} records, {EPOCHS} epochs")
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
        "processor": "of processors, all of it, ms",
        "type": "a typed letter's offers, ms",
        "all": "all queries shown, ms",
        "open": "a query's history, ms",
        "kilobytes": "sent, packed, KB",
    }
    for key, name in names.items():
        median = statistics.median(run[key] for run in later)
        print(f"{name:<28} first visit {first[key]:7.0f}   later, median {median:7.0f}")
    print(f"an empty page takes of processors, median {empty:.0f} ms")
