"""Run the demo, save what it prints, and write its figures into the pages that show them.

    python docs/front_page.py --run     what `make front-page` does, about five minutes
    python docs/front_page.py           write the pages again from the run that is saved

The run is `docs/demo-run.txt`: the demo's output, then `blendstream plan` for some sizes, then what
the results page showed in the two pictures, which are taken from the same run. In a page, the text
between `<!-- demo-run: NAME -->` and `<!-- end -->` is written by this program; a test compares it.
"""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
RUN = DOCS / "demo-run.txt"
COMMAND = Path(sys.executable).with_name("blendstream")
#: The pictures show trends, so they are taken when some epochs are published.
EPOCHS = 10
PATIENCE_S = 900
#: People for whom the README says what to expect; the middle one is the demo, the first the trial.
SIZES = ((1_000, 9_000), (4_000, 36_000), (40_000, 360_000))
#: Each picture: where on the results page, its height, what must be there, whose text is saved.
PICTURES = {
    "results-page.png": (
        "#",
        1_000,
        "#queries-table tbody tr",
        "#headline, #queries-table tbody tr",
    ),
    "results-history.png": ("#q=cinema+tonight&q=news+today", 900, "#chart .line", "#readout"),
}
#: Of the README's table, and of a picture's text.
ROWS = 5


def main() -> None:
    """Run the demo if `--run` is given; write the pages."""
    if "--run" in sys.argv[1:]:
        RUN.write_text(run())
    saved = Run.read(RUN.read_text())
    for page, text in pages(saved).items():
        page.write_text(text)
        print(f"wrote {page.relative_to(REPOSITORY)}")


# --- the run ---------------------------------------------------------------------------------


def run() -> str:
    """Run the demo; write the pictures and return the text of the run."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    head = f"{time.strftime('%-d %B %Y', time.gmtime())}, {cores} cores, load {load:.0f}"
    demo = _Demo()
    try:
        demo.wait_until_published(EPOCHS)
        shown = take_pictures(demo.gateway)
        demo.process.terminate()  # As Ctrl-C.
        if demo.process.wait(120) != 0:
            raise SystemExit(f"the demo failed:\n{demo.text}")
        demo.reading.join()
    finally:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(120)
    parts = [head, "$ blendstream demo", anonymous(demo.text)]
    for optin, clients in SIZES:
        words = ["plan", "--optin-users", str(optin), "--clients", str(clients)]
        planned = subprocess.run(  # noqa: S603 - our own command
            [COMMAND, *words], capture_output=True, text=True, check=True
        )
        parts += [f"$ blendstream {' '.join(words)}", planned.stdout]
    for name, text in shown.items():
        parts += [f"$ # docs/{name}, sha256 {digest(name)}", text]
    return "".join(f"{part.rstrip()}\n" for part in parts)


class _Demo:
    """A running `blendstream demo`, with its output so far."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            [COMMAND, "demo"],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.append(line)
            print(line, end="", flush=True)

    @property
    def text(self) -> str:
        return "".join(self._lines)

    @property
    def gateway(self) -> str:
        found = re.search(r"results page +(http://\S+)/", self.text)
        assert found, self.text
        return found[1]

    def wait_until_published(self, epochs: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(re.findall(r"Epoch \d+ published: ", self.text)) < epochs:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the demo did not publish {epochs} epochs:\n{self.text}")
            time.sleep(0.5)


def take_pictures(gateway: str) -> dict[str, str]:
    """Write each picture; return the text of each picture's page."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only a run needs a browser

    shown = {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (where, height, there, told) in PICTURES.items():
            page = browser.new_page(viewport={"width": 1280, "height": height})
            page.goto(f"{gateway}/{where}")
            page.locator(there).first.wait_for()
            page.screenshot(path=DOCS / name)
            texts = page.locator(told).all_inner_texts()[:ROWS]
            shown[name] = "\n".join(" ".join(text.split()) for text in texts)
            page.close()
        browser.close()
    return shown


def anonymous(text: str) -> str:
    """Remove the user's folder and token, and spaces at the end of lines."""
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    text = text.replace(str(REPOSITORY), "/home/you/blendstream")
    return re.sub(r"(LOCALCLIENT_TOKEN=\w+\.\d+\.\w{6})\S+", r"\1…", text)


def digest(name: str) -> str:
    """Return a picture's SHA-256, which shows that it is of this run."""
    return hashlib.sha256((DOCS / name).read_bytes()).hexdigest()


# --- what the pages show of it ---------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One record of the tables that the demo prints."""

    record: str
    true: str
    estimate: str
    interval: str
    #: Of the profile `paper`, or "not listed".
    paper: str
    paper_interval: str

    @classmethod
    def printed(cls, line: re.Match[str]) -> Row:
        """Read one line of the table."""
        record, true, estimate, interval, paper, paper_interval = line.groups()
        if paper == "–":
            return cls(record, true, estimate, interval, "not listed", "")
        return cls(record, true, estimate, interval, f"{paper[:-1]} %", f"{paper_interval[:-1]} %")


@dataclass(frozen=True)
class Planned:
    """The expectation of `blendstream plan` for one way to spend."""

    found: str
    error: float


@dataclass(frozen=True)
class Run:
    """A saved run."""

    head: str
    printed: str
    rows: list[Row]
    people: str
    epsilon: str
    #: By the number of opt-in users: by default, and with ε in each epoch.
    planned: dict[int, tuple[Planned, Planned]]
    #: The epoch in the first picture, and each picture's hash.
    pictured: int
    pictures: dict[str, str]

    @classmethod
    def read(cls, text: str) -> Run:
        """Read what `run` wrote."""
        head, _, rest = text.partition("\n")
        commands = dict(re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", rest, re.MULTILINE))
        printed = commands["blendstream demo"]
        line = r"\] (\S.* → \S+) +(\S+)% +(\S+)% +(\S+)% +(\S+) +(\S.*)"
        people = re.search(r"published: (.+ opt-in users, .+ devices);", printed)
        epsilon = re.search(r"Each epoch here spends ε = (\S+),", printed)
        pictured = re.search(r"^Epoch (\d+), .* quer(?:y|ies)", rest, re.MULTILINE)
        assert people, "the run has no published epoch"
        assert pictured, "the run lacks what its picture shows"
        assert epsilon, "the run does not say which way of spending it shows"
        planned = {}
        for optin, clients in SIZES:
            told = commands[f"blendstream plan --optin-users {optin} --clients {clients}"]
            planned[optin] = (_planned("one budget", told), _planned("sharp, each epoch", told))
        return cls(
            head,
            printed,
            [Row.printed(row) for row in re.finditer(line, printed)],
            people[1],
            epsilon[1],
            planned,
            int(pictured[1]),
            dict(re.findall(r"^\$ # docs/(\S+), sha256 (\w+)$", text, re.MULTILINE)),
        )


def _planned(way: str, text: str) -> Planned:
    found = re.search(rf"^{way} +\S+ +\S+ +(\S+) +(\S+)", text, re.MULTILINE)
    assert found, f"the run lacks the plan for {way!r}"
    return Planned(found[1].replace(",", " "), float(found[2]))


def pages(saved: Run) -> dict[Path, str]:
    """Return the text of every page that shows part of the run."""
    readme, demo = REPOSITORY / "README.md", DOCS / "demo.md"
    trial = DOCS / "first-service.md"
    return {
        readme: filled(
            readme.read_text(), table=table(saved), caption=caption(saved), people=people(saved)
        ),
        demo: filled(demo.read_text(), printed=printed(saved), default=default(saved)),
        trial: filled(trial.read_text(), default=trial_default(saved)),
    }


def filled(page: str, **blocks: str) -> str:
    """Return the page with its generated blocks replaced; each must occur once."""
    for name, block in blocks.items():
        begin, end = f"<!-- demo-run: {name} -->\n", "<!-- end -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        assert after, f"no block {name!r}"
        # Blank lines: some readers of Markdown would take a comment for the table's next row.
        page = f"{before}{begin}\n{block}\n{end}{after}"
    return page


def table(saved: Run) -> str:
    lines = [
        "| query → result | true share | `sharp` | 95 % interval | `paper` | 95 % interval |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in saved.rows[:ROWS]:
        lines.append(
            f"| {row.record} | {row.true} % | {row.estimate} % | {row.interval} % | "
            f"{row.paper} | {row.paper_interval} |"
        )
    return "\n".join(lines) + "\n"


def caption(saved: Run) -> str:
    when = saved.head.partition(",")[0]
    return wrapped(
        f"One epoch of the demo: {saved.people}, with **ε = {saved.epsilon} for this epoch alone** "
        f"(`budget.period_epochs = 0`). The picture shows epoch {saved.pictured} of the same run, "
        f"`make front-page` on {when}. [The whole output](docs/demo.md)."
    )


def people(saved: Run) -> str:
    lines = [
        f"| opt-in users + devices | ε = {saved.epsilon} for all 30, the default | "
        f"ε = {saved.epsilon} in each, as above |",
        "|---:|---:|---:|",
    ]
    for optin, clients in SIZES:
        cells = [f"{one.found} ({one.error:#.2g})" for one in saved.planned[optin]]
        sizes = f"{optin:,} + {clients:,}".replace(",", " ")
        sizes += ", the demo" if optin == 4_000 else ""
        lines.append(f"| {sizes} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _expected(planned: Planned) -> str:
    records = "record" if planned.found == "1" else "records"
    return f"{planned.found} {records} with an L1 error of {planned.error:#.2g}"


def printed(saved: Run) -> str:
    """Return the output up to the comparison with the default, and its end."""
    begin, _, rest = saved.printed.partition("stopping ...")
    upto = re.search(r"\A.*? in each of them, as here.*?\n", begin, re.DOTALL)
    assert upto, "the run lacks the comparison with the default"
    last = begin[begin.rindex("\n") + 1 :]
    said = wrapped(
        f"On {saved.head}, without a terminal (on a terminal, states, rates and refusals are "
        "redrawn in place):"
    )
    return f"{said}\n```\n{upto[0]}…\n{last}stopping ...{rest.rstrip()}\n```\n"


def default(saved: Run) -> str:
    by_default, each = saved.planned[4_000]
    return wrapped(
        f"**The demo spends ε = {saved.epsilon} in each epoch** (`budget.period_epochs = 0`), so "
        f"that few people give results within a minute. With default settings a service spends "
        f"ε = {saved.epsilon} in 30 epochs together. For the demo's people `blendstream plan` then "
        f"expects {_expected(by_default)} after 30 epochs; with the demo's settings, "
        f"{_expected(each)}, for ε = {30 * float(saved.epsilon):g} in total."
    )


def trial_default(saved: Run) -> str:
    by_default, each = saved.planned[1_000]
    return wrapped(
        f"The trial's settings spend ε = {saved.epsilon} in each epoch "
        "(`budget.period_epochs = 0`), as the demo does. With default settings a service spends "
        f"ε = {saved.epsilon} in 30 epochs together: for these people `blendstream plan "
        f"--optin-users 1000 --clients 9000` then expects {_expected(by_default)}; with the "
        f"trial's settings, {_expected(each)}. [The README](../README.md) has more sizes."
    )


def wrapped(text: str) -> str:
    """Wrap prose as `docs/wrap.py` does."""
    return str(runpy.run_path(str(DOCS / "wrap.py"))["wrapped"](text))


if __name__ == "__main__":
    main()
