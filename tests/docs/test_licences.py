"""Every package that is used has its licence on the page."""

import hashlib
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_the_page_names_every_locked_package_with_its_version_and_a_licence():
    """A licence that nobody looked at is a promise that nobody checked; `make lock` writes it."""
    lock = (REPOSITORY / "requirements.lock").read_text()
    page = (REPOSITORY / "docs" / "licences.md").read_text()
    rows = re.findall(r"^\| ([a-z0-9._-]+) \| (\S+) \| ([^|]+) \|", page, re.MULTILINE)

    rows = rows[1:]  # The first is the heading.
    locked = set(re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", lock, re.MULTILINE))
    assert {(name, version) for name, version, _ in rows} == locked
    assert [name for name, _, licence in rows if not licence.strip()] == []


def test_what_the_image_contains_is_free_of_licences_that_bind_those_who_serve_it():
    """The image is handed on; tools for tests are not part of it."""
    page = (REPOSITORY / "docs" / "licences.md").read_text()
    served = re.findall(r"^\| (\S+) \| \S+ \| ([^|]+) \| served \|$", page, re.MULTILINE)

    assert len(served) > 40
    assert [name for name, licence in served if re.search(r"\bA?GPL", licence)] == []


def test_files_of_others_are_those_that_were_looked_at():
    """Both are as their projects published them; a newer one brings its licence and its hash."""
    pages = REPOSITORY / "agents" / "gateway" / "pages"
    looked_at = {
        # swagger-ui-dist 5.34.1
        "docs/swagger-ui-bundle.js": (
            "36eeb4d5640b9c036b1d0f854499af1cceebbdb260b790a03a18be5e8488fbf5"
        ),
        "docs/swagger-ui.css": "c3cfe8248c4b0b89673600fb829924eafbac6de4bc4b2b06f5f5243483074d0a",
    }

    for name, sha256 in looked_at.items():
        assert hashlib.sha256((pages / name).read_bytes()).hexdigest() == sha256, name
    assert "DOMPurify" in (pages / "docs" / "swagger-ui-license.txt").read_text()
