"""Files for people: where they are served, and that they need no other host."""

from __future__ import annotations

import gzip
import re

from blendstream.agents.gateway.read.static_pages import FOLDER, StaticPages
from tests.agents.gateway.doubles import make_gateway


async def test_the_documentation_page_needs_no_other_host():
    """It is read where there is no internet, and tells no third party who reads it."""
    gateway = make_gateway(pages=StaticPages())

    page = await gateway.ask("GET", "/docs")
    named = re.findall(r'(?:src|href)="([^"]*)"', page.body.decode())
    parts = {path: await gateway.ask("GET", path) for path in named if path.startswith("/")}

    assert page.status == 200
    assert page.body == (await gateway.ask("GET", "/docs/")).body
    assert all(path == "data:," or re.match("/[^/]", path) for path in named)
    assert {"/openapi.json", "/docs/swagger-ui-bundle.js"} < set(parts)
    for path, part in {"/docs": page, **parts}.items():
        assert part.status == 200, path
        policy = part.headers.get("content-security-policy", "")
        assert path == "/openapi.json" or policy.startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in policy


async def test_a_large_file_is_packed_once_and_named_by_its_bytes():
    """Packed for each reader, Swagger UI would take 46 ms of the processor each time."""
    first, second = (make_gateway(pages=StaticPages()) for _ in range(2))
    path = "/docs/swagger-ui-bundle.js"

    packed = await first.ask("GET", path, headers={"accept-encoding": "gzip"})
    plain = await second.ask("GET", path)
    again = await second.ask(
        "GET", path, {}, {"accept-encoding": "gzip", "if-none-match": packed.headers["etag"]}
    )

    assert len(packed.body) < len(plain.body) / 2
    assert gzip.decompress(packed.body) == plain.body
    assert again.status == 304, "all gateways name it alike"


async def test_files_beside_the_gateway_are_served(tmp_path):
    """The place for the results page."""
    (tmp_path / "index.html").write_text("<!doctype html><title>results</title>")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "chart.js").write_text("1")
    (tmp_path / ".secret").write_text("1")
    gateway = make_gateway(pages=StaticPages(tmp_path))

    root = await gateway.ask("GET", "/")
    script = await gateway.ask("GET", "/sub/chart.js")

    assert root.headers["content-type"] == "text/html; charset=utf-8"
    assert "javascript" in script.headers["content-type"]
    for path in ("/../test_app.py", "/.secret", "/sub", "/sub/", ""):
        assert (await gateway.ask("GET", path)).status == 404, path
    assert (await gateway.ask("POST", "/")).status == 404


def test_the_results_page_makes_no_markup_of_text():
    """Queries come from people: a script of ours that parsed one as HTML would run theirs."""
    scripts = sorted((FOLDER / "results").glob("*.js"))

    assert len(scripts) > 10
    for script in scripts:
        text = script.read_text()
        for way in (
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "DOMParser",
        ):
            assert way not in text, (script.name, way)


async def test_the_results_page_names_every_script_that_it_needs():
    """So a browser asks for all of them at once, not for one after another."""
    gateway = make_gateway(pages=StaticPages())
    page = (await gateway.ask("GET", "/")).body.decode()

    named = set(re.findall(r'(?:href|src)="results/([^"]+[.]js)"', page))
    assert named == {script.name for script in (FOLDER / "results").glob("*.js")}
