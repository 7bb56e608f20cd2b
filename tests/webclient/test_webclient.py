"""The client for browsers: its tests in Node, its size, and what only a killed process shows."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unicodedata import normalize

import pytest

from tests.localclient.publications import publication
from tests.localclient.support import DAY, HOUR, serving
from tests.vectors.device.conversations import day
from tests.webclient.node import CLIENT, ROOT, node

HERE = Path(__file__).parent
#: Bytes of all that is shipped, each file compressed as a server would. The gate.
#: Compressed. `index.js` is what every visitor loads; `file-store.js` is for Node alone.
MAX_BYTES = {"index.js": 12_000, "file-store.js": 2_500}
NOW = 101 * DAY + HOUR


@pytest.mark.long
@pytest.mark.parametrize("module", sorted(path.name for path in HERE.glob("*.test.mjs")))
def test_in_node(module: str) -> None:
    """The same vectors in the other language; each module says what it is about."""
    ended = subprocess.run(
        node("--test", HERE / module), capture_output=True, text=True, check=False, timeout=170
    )

    failed = re.findall(r"^not ok .*?^  \.\.\.", ended.stdout, re.MULTILINE | re.DOTALL)
    assert ended.returncode == 0, "\n".join(failed) + ended.stderr
    assert int(re.findall(r"^# pass (\d+)", ended.stdout, re.MULTILINE)[0]) > 5
    assert re.findall(r"^# (?:skipped|todo) (\d+)", ended.stdout, re.MULTILINE) == ["0", "0"]


def test_all_that_is_shipped_fits() -> None:
    """Who embeds it has every visitor load it."""
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in shipped()}

    assert set(sizes) == set(MAX_BYTES)
    assert all(size <= MAX_BYTES[name] for name, size in sizes.items()), sizes


def shipped() -> list[Path]:
    return sorted((CLIENT / "lib").glob("*.js"))


def test_what_is_shipped_was_made_of_these_sources() -> None:
    """After a change: `npm install && npm run ship` in webclient/."""
    made_of = subprocess.run(
        [sys.executable, "-c", "import ship; print(ship.digest(), end='')"],
        capture_output=True, text=True, check=True, cwd=CLIENT,
    ).stdout  # fmt: skip

    assert (CLIENT / "lib/sources").read_text() == made_of


EXTENSION = CLIENT / "extension"


def test_the_extension_has_the_client_that_is_shipped() -> None:
    """A browser loads nothing from outside the extension's folder: it has a copy."""
    assert (EXTENSION / "client.js").read_bytes() == (CLIENT / "lib/index.js").read_bytes()


def test_the_extension_is_one_version_with_the_client_and_loads_only_its_own_files() -> None:
    versions = {
        json.loads(path.read_text())["version"]
        for path in (CLIENT / "package.json", EXTENSION / "manifest.json")
    }
    assert len(versions) == 1
    files = {path.name for path in EXTENSION.iterdir()}
    for path in sorted(EXTENSION.glob("*.html")) + sorted(EXTENSION.glob("*.js")):
        text = path.read_text()
        named = re.findall(r"""(?:from '|src="|href=")([^'"?]+)['"?]""", text)
        assert {name.removeprefix("./") for name in named} <= files, path.name
        # Strings become elements only as text, and nothing is written to a log.
        assert not re.search(r"innerHTML|insertAdjacentHTML|\beval\b|\bconsole\b", text), path.name


def test_the_folding_table_is_the_one_of_pythons_unicode() -> None:
    made = subprocess.run(
        [sys.executable, CLIENT / "make_folding.py"], capture_output=True, text=True, check=True
    )

    assert (CLIENT / "src/folding.js").read_text() == made.stdout


def test_every_character_folds_as_in_python() -> None:
    """Half of them are not in the table but fold with the parts that they decompose into."""
    letters = [chr(c) for c in range(0x110000) if chr(c).casefold() != chr(c)]
    # With a mark that composes, and one that stays behind when an iota is written out.
    texts = [letter + mark for letter in letters for mark in ("", "\u0301", "\u0327")]
    folded = subprocess.run(
        node("--input-type=module", "--eval", FOLD), capture_output=True, check=True, cwd=CLIENT,
        input=json.dumps(texts).encode(),
    ).stdout  # fmt: skip

    expected = [normalize("NFC", normalize("NFC", text).casefold()) for text in texts]
    assert len(letters) > 1400
    assert json.loads(folded) == expected


FOLD = """
import { readFileSync } from 'node:fs'
import { fold } from './src/folding.js'
const texts = JSON.parse(readFileSync(0, 'utf8'))
console.log(JSON.stringify(texts.map((text) => fold(text.normalize()).normalize())))
"""


def test_every_module_has_types_and_nothing_is_imported_from_elsewhere() -> None:
    """No dependency: only the store of files loads anything, and that is Node's own."""
    for source in (CLIENT / "src").glob("*.js"):
        types = (CLIENT / "lib/types" / source.name).with_suffix(".d.ts").read_text()
        export = r"^export (?:async )?(?:const|class|function) (\w+)"
        exported = re.findall(export, source.read_text(), re.MULTILINE)
        assert [name for name in exported if not re.search(rf"\b{name}\b", types)] == []
    imports = {path.name: set(re.findall(r'from"([^"]+)"', path.read_text())) for path in shipped()}
    assert imports["index.js"] == set()
    assert all(name.startswith("node:") for name in imports["file-store.js"])
    assert json.loads((CLIENT / "package.json").read_text()).get("dependencies") is None


@pytest.mark.long
def test_a_device_killed_at_any_moment_spends_once_and_sends_the_same_bytes(tmp_path: Path) -> None:
    """SIGKILL at moments spread over a whole report, then again until it is accepted."""
    with serving() as gateway:
        gateway.show(day(100))
        for milliseconds in range(0, 120, 12):
            folder = tmp_path / str(milliseconds)
            gateway.posted.clear()
            command = node(HERE / "killed.mjs", folder, gateway.url, str(NOW))
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            # From the first file on it is at work; before, there is nothing to interrupt.
            deadline = time.monotonic() + 60
            while not (folder / "records").exists() and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(milliseconds / 1000)
            process.send_signal(signal.SIGKILL)
            process.communicate()

            outcomes = [
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
                for _ in range(2)
            ]

            assert outcomes[-1] == "nothing new", outcomes
            state = json.loads((folder / "state").read_text().partition("\n")[2])
            assert len(state["budget_entries"]) == 1
            assert len(set(gateway.bodies)) == 1


@pytest.mark.long
def test_connections_that_drop_after_sending_cost_one_entry_and_get_the_same_bytes(
    tmp_path: Path,
) -> None:
    """The server has the report, the device does not know: a second draw would tell more."""
    with serving() as gateway:
        gateway.show(day(100))
        answer = gateway.answer

        def drop_three(path: str) -> tuple[int, dict[str, str], bytes]:
            if path == "/v1/reports" and len(gateway.posted) <= 3:
                raise ConnectionAbortedError  # ends the connection without an answer
            return answer(path)

        gateway.answer = drop_three  # type: ignore[method-assign]
        command = node(HERE / "killed.mjs", tmp_path, gateway.url, str(NOW))
        outcomes = [
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            for _ in range(5)
        ]

        assert outcomes == ["try later"] * 3 + ["sent", "nothing new"]
        assert len(gateway.bodies) == 4
        assert len(set(gateway.bodies)) == 1
    state = json.loads((tmp_path / "state").read_text().partition("\n")[2])
    assert len(state["budget_entries"]) == 1


def test_the_documented_code_mints_the_tokens_that_gateways_take() -> None:
    """Backends in other languages copy it."""
    page = (ROOT / "docs/api.md").read_text()
    (code,) = re.findall(r"```js\n(import .*?mintUserToken.*?)```", page, re.DOTALL)
    minted = json.loads((ROOT / "tests/vectors/user_tokens.json").read_text())["minted"]
    asked = [[vector["key"], vector["user_id"], vector["expires_s"]] for vector in minted]
    script = (
        f"{code}\nconsole.log(JSON.stringify({json.dumps(asked)}.map((a) => mintUserToken(...a))))"
    )
    ended = subprocess.run(
        node("--input-type=module", "--eval", script), capture_output=True, text=True, check=True
    )

    assert json.loads(ended.stdout) == [vector["token"] for vector in minted]


def test_the_guides_code_runs_and_each_call_returns_a_value(tmp_path: Path) -> None:
    """As it is printed, in Node, which has no IndexedDB: that is refused, and nothing throws."""
    page = (ROOT / "docs/webclient.md").read_text()
    embedding, searching = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    library = (CLIENT / "lib" / "index.js").as_uri()
    (tmp_path / "published.json").write_bytes(publication().to_bytes())
    script = (
        f"import {{ PublishedResult }} from '{library}'\n"
        "import { readFileSync } from 'node:fs'\n"
        f"{embedding.replace('./lib/index.js', library)}\n"
        f"const bytes = readFileSync('{tmp_path / 'published.json'}')\n"
        f"{searching}\n"
        "console.log(JSON.stringify([code, detail, result.trends(10).length]))"
    )
    ended = subprocess.run(
        node("--input-type=module", "--eval", script), capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr
    code, detail, trends = json.loads(ended.stdout)
    assert f"*{code}*" in page
    assert detail
    assert trends > 0
