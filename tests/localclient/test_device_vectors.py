"""The vectors of docs/device-protocol.md are what this client does, and catch wrong clients."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vectors.device.make import FILES, FOLDER, written
from tests.vectors.device.texts import TEXTS, outcome

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", FILES)
def test_the_vectors_are_what_this_client_does(name: str) -> None:
    """Written once and compared for ever: clients in other languages are built on them."""
    made = apart(name) if name == "normalise" else written(name)
    assert (FOLDER / f"{name}.json").read_text() == made


def apart(name: str) -> str:
    """Made in another process: measuring what 147 000 normalisations cover takes longer."""
    script = f"from tests.vectors.device.make import written; print(written({name!r}), end='')"
    clean = {key: os.environ[key] for key in os.environ if not key.startswith("COV")}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=True, cwd=ROOT, env=clean,
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    ("name", "key", "least"),
    [
        ("normalise", "texts", 60),
        ("documents", "accepted", 20),
        ("documents", "refused", 30),
        ("exponents", "exponents", 40),
        ("channels", "channels", 60),
        ("reports", "reports", 40),
        ("budget", "budget_entries", 20),
        ("sent", "conversations", 15),
        ("conversations", "conversations", 60),
    ],
)
def test_there_are_enough_of_them(name: str, key: str, least: int) -> None:
    assert len(json.loads((FOLDER / f"{name}.json").read_text())[key]) >= least


def test_the_texts_are_others_than_those_of_the_frames() -> None:
    known = json.loads((ROOT / "tests/vectors/frames.json").read_text())["normalise"]
    frames = {(text["query"], text["url"]) for text in known}

    assert len(set(TEXTS) - frames) >= 60


# --- normalising wrongly -------------------------------------------------------------------------

SPACE = "\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
Result = list[str] | None


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def rule(  # the right one, taken apart so that each part can be wrong
    query: str,
    url: str,
    *,
    first: Callable[[str], str] = nfc,
    fold: Callable[[str], str] = str.casefold,
    last: Callable[[str], str] = nfc,
    space: str = SPACE,
    run: str = "+",
    clean: Callable[[str], str] = lambda text: text,
    control: str = "\x00-\x1f\x7f-\x9f",
    length: Callable[[str], int] = lambda text: len(text.encode()),
    surrogates: bool = False,
    raw: int = 4,
    least: int = 1,
) -> Result:
    if surrogates:
        query, url = (
            t.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for t in (query, url)
        )
    try:
        if len(query.encode()) > raw * 256 or len(url.encode()) > raw * 1024:
            return None
        text = re.sub(f"[{space}]{run}", " ", last(fold(first(query)))).strip(" ")
        link = clean(re.sub(f"^[{space}]+|[{space}]+$", "", url))
        if not least <= length(text) <= 256 or not least <= length(link) <= 1024:
            return None
    except UnicodeEncodeError:
        return None
    return None if re.search(f"[{control}]", text + link) else [text, link]  # fmt: skip


def only_bmp(text: str) -> str:
    return "".join(c if ord(c) > 0xFFFF else c.casefold() for c in text)


def simple(text: str) -> str:
    return "".join(f if len(f := c.casefold()) == 1 else c for c in text)


def turkic(text: str) -> str:
    return text.replace("I", "ı").replace("İ", "i").casefold()


def kept(text: str) -> str:
    return text


def without(marks: str) -> str:
    return SPACE.replace(marks, "")


MISTAKES: dict[str, dict[str, object]] = {
    "no composing first": {"first": kept},
    "no composing after folding": {"last": kept},
    "compatibility forms composed (NFKC)": {"first": lambda t: unicodedata.normalize("NFKC", t)},
    "decomposed (NFD)": {"last": lambda t: unicodedata.normalize("NFD", t)},
    "folding of the basic plane only": {"fold": only_bmp},
    "lower case instead of folding": {"fold": str.lower},
    "upper case, then lower": {"fold": lambda t: t.upper().lower()},
    "simple folding, one character for one": {"fold": simple},
    "Turkic folding": {"fold": turkic},
    "no folding": {"fold": kept},
    "white space without U+1680": {"space": without("\u1680")},
    "white space without U+0085": {"space": without("\x85")},
    "white space without U+001C to U+001F": {"space": without("\x1c- ") + " "},
    "white space of ASCII only": {"space": "\t-\r "},
    "white space without U+2028 and U+2029": {"space": without("\u2028\u2029")},
    "white space with U+FEFF, as JavaScript has it": {"space": SPACE + "\ufeff"},
    "white space with U+200B": {"space": SPACE + "\u200b"},
    "white space with U+180E, as it was once": {"space": SPACE + "\u180e"},
    "runs of white space kept": {"run": ""},
    "unpaired surrogates replaced": {"surrogates": True},
    "characters counted, not bytes": {"length": len},
    "UTF-16 counted, not bytes": {"length": lambda t: len(t.encode("utf-16-le")) // 2},
    "no limit before normalising": {"raw": 1_000},
    "the limit before normalising that of after": {"raw": 1},
    "empty text taken": {"least": 0},
    "control characters of ASCII only": {"control": "\x00-\x1f\x7f"},
    "delete taken for a letter": {"control": "\x00-\x1f\x80-\x9f"},
    "URLs composed": {"clean": nfc},
    "URLs folded": {"clean": str.casefold},
    "white space within URLs collapsed": {"clean": lambda t: re.sub(f"[{SPACE}]+", " ", t)},
}


def test_the_rule_taken_apart_is_the_rule() -> None:
    """Otherwise the mistakes below would be found for another reason."""
    assert [rule(*text) for text in TEXTS] == [outcome(*text) for text in TEXTS]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_known_mistake_in_normalising_fails_a_vector(mistake: str) -> None:
    """A client that counts another text than the server's loses its answers without a word."""
    vectors = json.loads((FOLDER / "normalise.json").read_text())["texts"]
    wrong = [
        v
        for v in vectors
        if rule(v["query"], v["url"], **MISTAKES[mistake]) != v["record"]  # type: ignore[arg-type]
    ]

    assert wrong, mistake
