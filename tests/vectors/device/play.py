"""Play the vectors of this folder against any client: a program that reads and writes JSON lines.

    python tests/vectors/device/play.py -- COMMAND...             all of them but `sent`
    python tests/vectors/device/play.py conversations -- COMMAND  those of one file
    python tests/vectors/device/play.py "conversations: a wrong clock" -- COMMAND   one of them
    python tests/vectors/device/play.py list conversations        the names of those of one file

Prints each vector that the client fails: what must come, and what came. Exits 1 if there is any.
README.md in this folder describes the lines. Needs Python 3.11 and nothing else: copy this file and
the `.json` files beside it to where you want them.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(__file__).parent
#: A client that says nothing for so long is ended.
SILENCE_S = 60
#: Draws below smaller bounds are tried one by one, others by halving.
_ONE_BY_ONE = 64

Draw = Callable[[int], int]
Vector = tuple[str, Callable[["Client"], None]]


class Failed(Exception):
    """The client did something else than the vector."""


def must(what: str, expected: object, found: object) -> None:
    if expected != found:
        shown = [json.dumps(value, default=str)[:2_000] for value in (expected, found)]
        raise Failed(f"{what} must be\n    {shown[0]}\n  and is\n    {shown[1]}")


class Client:
    """The program under test; a step is one line to it, and lines back until its result."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def end(self) -> None:
        """Kill it: what it must remember is then on its disk, or lost."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def step(
        self, line: dict[str, Any], draw: Draw | None = None, exchanges: Sequence[Any] = ()
    ) -> Any:
        """Return the client's result of one step."""
        left = list(exchanges)
        self._say(line)
        while True:
            said = self._hear()
            if "below" in said and draw:
                self._say({"drawn": str(draw(int(said["below"])))})
            elif "request" in said:
                if not left:
                    raise Failed(f"nothing is to be requested here, and it requests {said}")
                exchange = left.pop(0)
                must("a request", exchange["request"], said["request"])
                self._say({"response": _sized(exchange["response"], line)})
            elif "result" in said:
                must("the number of requests that did not come", 0, len(left))
                return said["result"]
            else:
                raise Failed(f"a line must have one of the keys below, request, result: {said}")

    def _say(self, line: dict[str, Any]) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii"
            )
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Failed("the client has ended") from None

    def _hear(self) -> dict[str, Any]:
        process = self._process
        assert process
        assert process.stdout
        timer = threading.Timer(SILENCE_S, process.kill)
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        try:
            said = json.loads(line)
        except ValueError:
            raise Failed(f"the client must write a JSON object, got {line[:200]!r}") from None
        return said if isinstance(said, dict) else {}


def _sized(response: dict[str, Any] | None, line: dict[str, Any]) -> dict[str, Any] | None:
    """An answer that is too large is given as one byte more than the device's limit."""
    if response is None or not response.get("too_large"):
        return response
    return {**response, "body": " " * (line["limits"]["max_head_list_bytes"] + 1)}


# ------------------------------------------------------------------------------- one file each


def normalise(vectors: dict[str, Any]) -> Iterator[Vector]:
    def of(texts: list[list[str]], client: Client) -> Any:
        return client.step({"do": "normalise", "texts": texts})

    def every(client: Client) -> None:
        digest = hashlib.sha256()
        for first, last in vectors["all"]["ranges"]:
            points = range(first, last + 1)
            records = of([[f"x{chr(point)}x", "u"] for point in points], client)
            for point, record in zip(points, records, strict=True):
                digest.update(f"{point} {record[0] if record else ''}\n".encode())
        must("the hash of every character", vectors["all"]["sha256"], digest.hexdigest())

    for number, text in enumerate(vectors["texts"]):

        def one(client: Client, text: Any = text) -> None:
            must("the record", [text["record"]], of([[text["query"], text["url"]]], client))

        yield f"{number} {ascii(text['query'])[:60]} {ascii(text['url'])[:40]}", one
    yield "every character", every


def documents(vectors: dict[str, Any]) -> Iterator[Vector]:
    for kind in ("accepted", "refused"):
        for vector in vectors[kind]:

            def one(client: Client, vector: Any = vector, kind: str = kind) -> None:
                data = vector["hex"] if "hex" in vector else vector["text"].encode().hex()
                expected = kind == "accepted" and {key: vector[key] for key in ("id", "cells")}
                found = client.step({"do": "read head list", "hex": data})
                must("id and cells", expected or None, found)

            yield f"{kind}, {vector['name']}", one


def exponents(vectors: dict[str, Any]) -> Iterator[Vector]:
    for vector in vectors["exponents"]:

        def one(client: Client, vector: Any = vector) -> None:
            step = {"do": "exponent", "bits": vector["bits"], "answers": vector["answers"]}
            must("the numerator", vector["numerator"], client.step(step))

        yield f"{vector['epsilon']}/{vector['answers']}", one


def widths(vectors: dict[str, Any]) -> Iterator[Vector]:
    rows = [
        (name, epsilon, records, cap, 16, width)
        for epsilon, records, cap, *both in vectors["widths"]
        for name, width in zip(("subset-selection", "subset-or-none"), both, strict=True)
    ]
    rows += [("subset-or-none", *row) for row in vectors["by_share"]]
    for name, epsilon, records, cap, share, width in rows:
        step = {"do": "width", "name": name, "epsilon": epsilon, "records": records, "cap": cap}

        def one(client: Client, step: Any = (step, share), width: int = width) -> None:
            must("the width", width, client.step({**step[0], "listed_64ths": step[1]}))

        yield f"{name}, epsilon {epsilon}, {records} records, cap {cap}, {share}/64", one


def channels(vectors: dict[str, Any]) -> Iterator[Vector]:
    for number, vector in enumerate(vectors["channels"]):

        def one(client: Client, vector: Any = vector) -> None:
            for held, expected in enumerate(vector["probability"]):
                shape = {key: vector[key] for key in ("records", "randomizer")}
                step = {"do": "answer", **shape, "held": held}
                must(f"the channel of cell {held}", expected, channel(client, step))

        yield f"{number} {vector['randomizer']['name']}, {vector['cells']} cells", one


def channel(client: Client, step: dict[str, Any]) -> dict[str, str]:
    """The exact distribution of the client's answers, by every draw that it may be given.

    Where a bound is large, draws between two with the same consequence are taken to have it, too.
    """
    found: dict[str, Fraction] = {}

    def run(draws: tuple[int, ...]) -> tuple[list[int], str]:
        bounds: list[int] = []

        def draw(bound: int) -> int:
            bounds.append(bound)
            return draws[len(bounds) - 1] if len(bounds) <= len(draws) else 0

        answer = client.step(step, draw)
        return bounds, ",".join(map(str, answer))

    def ranges(draws: tuple[int, ...], first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of the next draw with one consequence each."""
        found = {end: run((*draws, end)) for end in (first, last)}
        cuts = [first]

        def cut(low: int, high: int) -> None:
            if found[low] == found[high]:
                return
            if high - low == 1:
                cuts.append(high)
                return
            middle = (low + high) // 2
            found[middle] = run((*draws, middle))
            cut(low, middle)
            cut(middle, high)

        cut(first, last)
        return list(zip(cuts, [*(start - 1 for start in cuts[1:]), last], strict=True))

    def explore(draws: tuple[int, ...], chance: Fraction) -> None:
        bounds, answer = run(draws)
        if len(bounds) == len(draws):
            found[answer] = found.get(answer, Fraction(0)) + chance
            return
        bound = bounds[len(draws)]
        parts = (
            [(i, i) for i in range(bound)] if bound <= _ONE_BY_ONE else ranges(draws, 0, bound - 1)
        )
        for first, last in parts:
            explore((*draws, first), chance * Fraction(last - first + 1, bound))

    explore((), Fraction(1))
    return {answer: str(chance) for answer, chance in found.items()}


def reports(vectors: dict[str, Any]) -> Iterator[Vector]:
    for vector in vectors["reports"]:

        def one(client: Client, vector: Any = vector) -> None:
            draws = [(int(bound), int(drawn)) for bound, drawn in vector["dice"]]

            def draw(bound: int) -> int:
                expected, drawn = draws.pop(0) if draws else (None, 0)
                must("the bound of a draw", expected, bound)
                return drawn

            listed = [[f"q{i // 3}", f"u{i % 3}"] for i in range(vector["records"])]
            step = {"do": "write report", "head_list": vectors["head_list"], "records": listed}
            more = {"randomizer": vector["randomizer"], "held": vector["held"]}
            must("the body", vector["body"], client.step({**step, **more}, draw))
            must("the draws that did not come", [], draws)

        yield vector["name"], one


def budget(vectors: dict[str, Any]) -> Iterator[Vector]:
    for vector in vectors["budget_entries"]:

        def one(client: Client, vector: Any = vector) -> None:
            step = {key: vector[key] for key in ("limits", "budget_entries", "entry")}
            expected = {key: vector.get(key) for key in ("result", "free_at_s", "spent")}
            must("the verdict", expected, client.step({"do": "check budget entry", **step}))

        yield vector["name"], one


def search(vectors: dict[str, Any]) -> Iterator[Vector]:
    def step(text: str, filtered: bool, **asked: Any) -> dict[str, Any]:
        usual = {"search": [], "complete": [], "trends": 3}
        return {"do": "search", "text": text, "filtered": filtered, **usual, **asked}

    for number, vector in enumerate(vectors["publications"]):

        def one(client: Client, vector: Any = vector) -> None:
            asked = {key: [row[0] for row in vector[key]] for key in ("search", "complete")}
            found = client.step(step(vector["text"], True, **asked))
            must("what is found", _found(vector), found)
            own = client.step(step(vector["text"], False))
            must("what one epoch says", vector["own"], own and {k: own[k] for k in vector["own"]})

        yield f"publication {number}", one
    for vector in vectors["refused"]:

        def no(client: Client, vector: Any = vector) -> None:
            must("what is found", None, client.step(step(vector["text"], True)))

        yield f"refused, {vector['name']}", no


def _found(vector: dict[str, Any]) -> dict[str, Any]:
    rows = {key: [row[1] for row in vector[key]] for key in ("search", "complete")}
    return {**{key: vector[key] for key in ("read", "epoch", "empty", "trends")}, **rows}


def conversations(vectors: dict[str, Any]) -> Iterator[Vector]:
    for vector in vectors["conversations"]:
        yield vector["name"], lambda client, vector=vector: converse(client, vector)


def sent(vectors: dict[str, Any]) -> Iterator[Vector]:
    return conversations(vectors)


def converse(client: Client, vector: dict[str, Any]) -> None:
    with TemporaryDirectory(prefix="device-") as folder:
        n, d = vector["dice"]

        def draw(bound: int) -> int:
            return bound * n // d

        life = {"folder": folder, "limits": vector["limits"], "opt_in": vector["opt_in"]}
        client.step({"do": "start", **life, "state": "kept"}, draw)
        for number, step in enumerate(vector["steps"]):
            try:
                if step["do"] == "restart":
                    n, d = step.get("dice", (n, d))
                    client.end()
                    life |= {key: step[key] for key in ("opt_in", "limits") if key in step}
                    client.step({"do": "start", **life, "state": step.get("state", "kept")}, draw)
                    continue
                asked = {k: v for k, v in step.items() if k not in ("exchanges", "outcome")}
                exchanges = step.get("exchanges", ())
                found = client.step({**asked, "limits": life["limits"]}, draw, exchanges)
                expected = step.get("outcome")
                if isinstance(expected, dict) and isinstance(found, dict):
                    found = {key: found.get(key) for key in expected}
                must("the outcome", expected, found)
            except Failed as failure:
                when = step.get("now_s", "")
                raise Failed(f"in step {number}, {step['do']} {when}: {failure}") from None


FILES: dict[str, Callable[[dict[str, Any]], Iterator[Vector]]] = {
    file.__name__: file
    for file in (
        *(normalise, documents, exponents, widths, channels),
        *(reports, budget, conversations, search, sent),
    )
}
#: Played when they are named: a client may do without what they show.
OPTIONAL = {"sent"}


def every_vector() -> Iterator[tuple[str, str, Callable[[Client], None]]]:
    """Yield each vector's file, full name and test."""
    for file, vectors_of in FILES.items():
        for name, run in vectors_of(json.loads((FOLDER / f"{file}.json").read_text())):
            yield file, f"{file}: {name}", run


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["list"]:
        print("\n".join(full for file, full, _ in every_vector() if file in arguments))
        return 0
    if "--" not in arguments or arguments[-1] == "--":
        print(__doc__, file=sys.stderr)
        return 2
    end = arguments.index("--")
    chosen, client = arguments[:end], Client(arguments[end + 1 :])
    failures = played = 0
    for file, full, run in every_vector():
        wanted = file in chosen or full in chosen if chosen else file not in OPTIONAL
        if not wanted:
            continue
        played += 1
        try:
            run(client)
        except Failed as failure:
            failures += 1
            client.end()
            print(f"FAILED {full}\n  {failure}", flush=True)
    client.end()
    print(f"{played - failures} of {played} vectors passed")
    return 1 if failures or not played else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
