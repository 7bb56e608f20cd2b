"""A page with the browser's client, of another origin than the real gateway that counts it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

from blendstream.agents.local.ports import free_port
from tests.browser.real_service import CELL, QUERY, URL, RealService, real_service
from tests.localclient.support import serving

pytestmark = pytest.mark.browser

#: A device of the page; limits that let a test see a report within seconds.
DEVICE = """
const { Device, IndexedDbStore } = await import('/webclient/lib/index.js')
const limits = {
  epsilonPerReport: 20, deltaPerReport: 1e-5, epsilonPerPeriod: 20, deltaPerPeriod: 1e-5,
  periodS: 86400, minWindowS: 2, maxWaitS: 4,
}
const device = new Device({ server, limits, store: new IndexedDbStore(name), optIn })
/** Until it is sent, as a timer would call it. */
const sent = async () => {
  for (let tries = 0; tries < 100; tries++) {
    const { code, nextCallAtS } = await device.maybeReport()
    if (code === 'sent') return true
    await new Promise((done) => setTimeout(done, Math.max(200, nextCallAtS * 1000 - Date.now())))
  }
  return false
}
"""


@pytest.fixture(scope="module")
def service(kafka, redis_server, origin: str) -> Iterator[RealService]:
    site = urlsplit(origin)
    listed = f"{site.scheme}://{site.netloc}"
    with real_service(kafka.url, redis_server.url, gateway__cors_origins=listed) as made:
        yield made


def test_a_page_of_a_listed_origin_reports_and_opts_in_and_is_counted(
    browser: Browser,
    origin: str,
    service: RealService,
) -> None:
    """CORS shows it `Date` and lets its token through; what it sent is what Redis has."""
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(origin)

    def run(name: str, opt_in: object, script: str) -> object:
        source = f"async ([server, name, optIn]) => {{ {DEVICE} {script} }}"
        return tab.evaluate(source, [service.url, name, opt_in])

    record = f"return (await device.record({QUERY!r}, {URL!r})).code"
    opt_in = {"userId": "a person", "token": service.token}
    assert [run("reports", None, record), run("opts in", opt_in, record)] == ["kept", "kept"]
    service.publish_head_list(7)
    service.open_epoch_that_ends_soon(20)

    assert run("reports", None, "return sent()")
    assert run("opts in", opt_in, "return sent()")
    # Takes part without a search: counted, and adds to no record.
    assert run("has none", {**opt_in, "userId": "another person"}, "return sent()")

    assert service.cells(7, 1) == [int(cell == CELL) for cell in range(51)]
    assert service.optin_records(20, 2) == {(QUERY, URL): 1}
    assert not service.said(QUERY, "r1.example", "a person", "another person")
    context.close()


def test_a_page_whose_origin_is_not_listed_is_told_so_and_an_absent_server_is_not(
    browser: Browser, origin: str
) -> None:
    """To a page both look alike, and only one is mended by the operator's CORS setting."""
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(origin)
    source = f"async ([server, name, optIn]) => {{ {DEVICE} return device.maybeReport() }}"
    with serving() as gateway:
        refused = tab.evaluate(source, [gateway.url, "refused", None])
    absent = tab.evaluate(source, [f"http://127.0.0.1:{free_port()}", "absent", None])

    assert refused["code"] == absent["code"] == "try later"
    assert "gateway.cors_origins" in refused["detail"]
    assert origin.startswith(refused["detail"].split("the origin ")[1].split(" ")[0])
    assert absent["detail"] == "the server did not answer"
    context.close()
