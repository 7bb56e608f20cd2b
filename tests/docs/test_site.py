"""`make docs` makes a site of the pages: every link leads somewhere, and nothing is fetched."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from blendstream import localclient

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built as `make docs` builds it: a link or an anchor that leads nowhere fails."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_on_the_site_and_in_its_navigation(site):
    """mkdocs complains about a page that mkdocs.yml does not list; decisions list themselves."""
    pages = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").rglob("*.md")}
    missing = [page for page in pages if not (site / page.with_suffix(".html")).exists()]

    assert missing == []
    home = (site / "index.html").read_text()
    for decision in (REPOSITORY / "docs" / "decisions").glob("*.md"):
        assert f"decisions/{decision.stem}.html" in home


def test_the_first_page_leads_to_every_other():
    """A reader who does not know the name of a page looks there."""
    first = (REPOSITORY / "docs" / "index.md").read_text()
    pages = {page.name for page in (REPOSITORY / "docs").glob("*.md")} - {"index.md"}

    assert sorted(page for page in pages if f"]({page})" not in first) == []


def test_the_reference_has_every_public_name_with_types_and_descriptions(site):
    """It is generated: a name without a docstring, or lost by a move, would go unnoticed."""
    page = (site / "reference.html").read_text()
    names = [f"localclient.{name}" for name in localclient.__all__ if name != "ParameterError"]

    assert [n for n in (*names, "Results") if f'id="blendstream.{n}"' not in page] == []
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert "max_answers: int = 4" in text
    assert "m_C that a server may ask for" in text  # a comment above the field


def test_no_page_loads_anything_from_another_host(site):
    """The site must work without a network, and tell no other host who reads it."""
    loaded = [
        (page.name, address)
        for page in site.rglob("*.html")
        for address in re.findall(
            r'<(?:script|img|iframe|source)[^>]*? src(?:set)?="?([^" >]+)'
            r'|<link[^>]*? rel="?(?:stylesheet|preconnect)"?[^>]*? href="?([^" >]+)',
            page.read_text(),
        )
        if re.match(r"(?:https?:)?//", "".join(address))
    ]

    assert loaded == []


def test_an_alert_is_found_by_its_name_as_prometheus_and_as_grafana_write_it(site):
    """runbook_url has small letters, the dashboard's link has the alert's own name."""
    runbook = (site / "runbook.html").read_text()

    assert 'id="processgone"' in runbook
    assert 'id="ProcessGone"' in runbook


def test_figures_follow_the_sites_switch_between_light_and_dark(site):
    """A figure in light colours on a dark page is hardly seen."""
    page = (site / "evaluation.html").read_text()

    assert "<picture>" not in page
    assert page.count("#only-light") == page.count("#only-dark") > 5


def test_make_docs_builds_the_site_this_way():
    makefile = (REPOSITORY / "Makefile").read_text()

    assert re.search(r"^docs: setup .*\n\t.*mkdocs build --strict$", makefile, re.MULTILINE)
