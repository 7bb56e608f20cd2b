"""Tests that no query, URL or user id gets into a log line."""

import ast
import enum
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blendstream import streams
from blendstream.blender.values.errors import ParameterError
from blendstream.streams.settings.sections import LogSettings
from blendstream.streams.tables.batch_verdict import BatchVerdict
from blendstream.streams.telemetry.structured_logs import (
    FIELDS,
    SafeHandler,
    SafeText,
    configure_logging,
)

# Built at run time: a constant in a function that logs would rightly count as code, not data.
QUERY = "-".join(["private", "query", "of", "someone"])


class Reason(enum.Enum):
    """As refusals have them."""

    OVER_LIMIT = "over limit"


@pytest.fixture(params=["json", "text"])
def written(request: pytest.FixtureRequest):
    """Everything that a logger below `written` and the library `faust` would have written."""
    stream = io.StringIO()
    handler = SafeHandler(stream, form=request.param)
    names = ("blendstream.streams.written", "faust.written")
    for name in names:
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield stream
    for name in names:
        logging.getLogger(name).removeHandler(handler)


ours = logging.getLogger("blendstream.streams.written")
theirs = logging.getLogger("faust.written")


@pytest.mark.parametrize(
    "leak",
    [
        lambda: ours.info(QUERY),
        lambda: ours.info("counted %s", QUERY),
        lambda: ours.info(f"counted {QUERY}"),
        lambda: ours.info("record_counted", extra={"query": QUERY}),
        lambda: ours.info("record_counted", extra={"topic": QUERY}),
        lambda: ours.info("record_counted", extra={"epoch": [QUERY]}),
        lambda: ours.info("record_counted", extra={QUERY: 1}),
        lambda: theirs.error("Crashed on message %r", QUERY),
        lambda: theirs.error(f"Crashed on message {QUERY}"),
        lambda: theirs.error("Crashed on %(value)s", {"value": QUERY}),
        lambda: theirs.error(ValueError(QUERY)),
    ],
)
def test_text_that_came_from_outside_is_never_written(written, leak):
    """Whether it reaches the logger on purpose or by mistake, as text, argument or field."""
    leak()

    assert written.getvalue(), "something must be said, or an operator would look in vain"
    assert QUERY not in written.getvalue()


@pytest.mark.parametrize("log", [ours, theirs], ids=["ours", "theirs"])
def test_an_exception_from_a_library_shows_its_type_and_place_but_not_its_message(written, log):
    """Libraries quote the invalid value in the message."""
    try:
        try:
            raise KeyError(QUERY)
        except KeyError as error:
            raise ValueError(f"cannot decode {QUERY}") from error
    except ValueError:
        log.exception("batch_failed")

    assert QUERY not in written.getvalue()
    assert "builtins.ValueError" in written.getvalue()
    assert "telemetry/test_structured_logs.py:" in written.getvalue()
    assert "builtins.KeyError" in written.getvalue()


def test_the_message_of_our_own_error_is_written(written):
    """It states what must hold and what to do, and by contract contains nobody's data."""
    try:
        raise ParameterError("epsilon must be above 0, got epsilon=0.0")
    except ParameterError:
        ours.exception("start_refused")

    assert "epsilon must be above 0, got epsilon=0.0" in written.getvalue()


def test_numbers_enum_members_and_known_text_are_written_as_fields():
    """An operator can search for the event and compute with the fields."""
    stream = io.StringIO()
    ours.addHandler(handler := SafeHandler(stream, form="json"))
    ours.setLevel(logging.INFO)
    fields = {
        "partition": 3,
        "seconds": 0.5,
        "reason": Reason.OVER_LIMIT,
        "topic": SafeText("a.v1"),
    }
    ours.info("entries_refused", extra=fields)
    ours.removeHandler(handler)

    line = json.loads(stream.getvalue())
    assert line["event"] == "entries_refused"
    assert {name: line[name] for name in fields} == {
        "partition": 3,
        "seconds": 0.5,
        "reason": "over_limit",
        "topic": "a.v1",
    }
    assert "refused_fields" not in line


def test_a_refused_field_is_counted_with_its_place(written):
    """So that whoever wrote the line notices, and finds it."""
    ours.info("record_counted", extra={"user_id": 123_456_789, "epoch": 4})

    assert "123456789" not in written.getvalue()
    assert "refused_fields" in written.getvalue()
    assert "test_structured_logs.py" in written.getvalue()


def calls_in_the_code() -> Iterator[ast.Call]:
    """Every call in our packages."""
    root = Path(streams.__file__).parent.parent
    for package in ("blender", "streams", "agents", "localclient"):
        for path in sorted((root / package).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call):
                    yield call


def fields_in_the_code() -> set[str]:
    """The names that any of our log calls gives to `extra`."""
    found: set[str] = set()
    for call in calls_in_the_code():
        for given in (word.value for word in call.keywords if word.arg == "extra"):
            if isinstance(given, ast.Dict):
                found |= {ast.literal_eval(name) for name in given.keys if name is not None}
            else:
                # The line of a counted batch: the only one whose fields are not written there.
                assert ast.unparse(given) == "dict(summary)"
                found |= BatchVerdict().summary().keys()
    return found


def test_the_list_of_fields_holds_what_log_lines_have_and_no_more():
    """A list that admits whatever comes to mind leaves nothing out."""
    assert fields_in_the_code() == FIELDS


def test_every_line_of_ours_has_its_event_as_a_constant_of_the_function_that_logs():
    """Each release was logged as "unsafe_line_refused", because its event was an attribute."""
    logging_calls = [c for c in calls_in_the_code() if ast.unparse(c.func).startswith("log.")]
    events = [ast.unparse(c.args[0]) for c in logging_calls if hasattr(logging, c.func.attr)]

    assert len(events) > 20
    # A name is one of two constants that the function itself chose from.
    assert [event for event in events if not event.startswith("'") and event != "event"] == []


def test_fausts_lines_are_fausts_though_a_class_of_ours_writes_them():
    """mode gives a subclass a logger of its module: two refused lines at each worker's start."""
    from blendstream.agents.worker.faust_app import CountingApp, _Consumer, _ConsumerThread

    for service in (CountingApp, _Consumer, _ConsumerThread):
        assert service.logger.name.startswith("faust.")


def test_a_librarys_constant_text_and_numbers_are_written(written):
    """Otherwise nobody could tell what a library complained about."""
    theirs.warning("Heartbeat failed for group %s after %d ms", QUERY, 3000)

    assert "Heartbeat failed for group %s after %d ms" in written.getvalue()
    assert "3000" in written.getvalue()


def complain(broker: int) -> None:
    theirs.error("Unable connect to node with id %s", broker)


def set_clock(monkeypatch, now_s: float) -> None:
    """Stamp log records with this time. Python 3.13 and newer read `time_ns`, older ones `time`."""
    monkeypatch.setattr(logging.time, "time", lambda: now_s)
    monkeypatch.setattr(logging.time, "time_ns", lambda: int(now_s * 1e9))


def test_a_complaint_is_written_once_and_then_with_how_often_it_was_repeated(written, monkeypatch):
    """A library wrote a hundred lines a second for as long as a broker was away."""
    for step in range(500):
        set_clock(monkeypatch, 1000 + step / 100)
        complain(1)
        complain(2)
    assert len(written.getvalue().splitlines()) == 2
    set_clock(monkeypatch, 1015)
    complain(1)
    complain(1)
    *_, last = written.getvalue().splitlines()
    assert len(written.getvalue().splitlines()) == 3
    assert "repeated" in last
    assert "499" in last


def test_our_own_lines_are_all_written(written):
    """A partition that stopped, went on and stopped again has stopped twice."""
    for _ in range(3):
        ours.error("partition_halted", extra={"partition": 1})
    assert written.getvalue().count("partition_halted") == 3


def test_a_clock_that_is_set_back_hides_nothing(written, monkeypatch):
    for now in (1000.0, 10.0):
        set_clock(monkeypatch, now)
        complain(1)
    assert len(written.getvalue().splitlines()) == 2


def test_memory_of_what_was_said_is_bounded(written):
    for broker in range(2000):
        complain(broker)
    complain(1999)
    assert len(written.getvalue().splitlines()) == 2000
    complain(0)  # Forgotten, and so written again.
    assert len(written.getvalue().splitlines()) == 2001


def test_a_line_that_cannot_be_written_stops_nobody_and_is_printed_nowhere_else(capsys):
    stream = io.StringIO()
    ours.addHandler(handler := SafeHandler(stream, form="json"))
    try:
        stream.close()
        ours.error("record_counted", extra={"query": QUERY})
    finally:
        ours.removeHandler(handler)
    assert QUERY not in "".join(capsys.readouterr())


CRASH = """
import logging, sys, threading, warnings, asyncio
from blendstream.streams.telemetry.structured_logs import configure_logging
logging.getLogger("noisy").addHandler(logging.StreamHandler())
configure_logging()
secret = "-".join(["private", "query"])
logging.getLogger("noisy").error(f"about {secret}")
warnings.warn(f"about {secret}")
thread = threading.Thread(target=lambda: int(secret)); thread.start(); thread.join()
async def forget():
    asyncio.get_running_loop().create_task(fail()); await asyncio.sleep(0.01)
async def fail(): raise ValueError(secret)
asyncio.run(forget())
raise ValueError(secret)
"""


def test_a_crashing_process_writes_no_data_either():
    """Unhandled exceptions, warnings, threads, tasks and other handlers bypass most logs."""
    ended = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 1
    assert "private-query" not in ended.stderr + ended.stdout
    for said in ("process_crashed", "thread_crashed", "noisy", "py.warnings", "asyncio"):
        assert said in ended.stderr


def test_configured_levels_and_forms_are_used():
    """`log.level` and `log.form` are settings; a setting that does nothing would mislead."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level, sys.excepthook)
    stream = io.StringIO()
    try:
        configure_logging(LogSettings(level="error", form="json"), stream)
        ours.setLevel(logging.NOTSET)
        ours.info("too_quiet_to_matter")
        ours.error("batch_failed")
    finally:
        logging.captureWarnings(False)
        root.handlers[:], root.level, sys.excepthook = before
        for name in ("blendstream",):
            logging.getLogger(name).setLevel(logging.NOTSET)

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == [
        "batch_failed"
    ]


STARTED = """
import logging
from blendstream.streams.telemetry.structured_logs import configure_logging
configure_logging()
logging.getLogger("blendstream.agents.worker").info("worker_started", extra={"partition": 3})
"""


def test_by_itself_the_form_is_text_on_a_terminal_and_json_elsewhere():
    """Nobody reads JSON on a terminal, and no program reads text."""
    ours, terminal = os.openpty()
    for stderr in (terminal, subprocess.PIPE):
        ended = subprocess.run([sys.executable, "-c", STARTED], stderr=stderr, check=True)
        said = (os.read(ours, 1000) if ended.stderr is None else ended.stderr).decode()
        if stderr == terminal:
            assert "worker_started" in said
            assert "{" not in said
        else:
            assert json.loads(said)["event"] == "worker_started"
    os.close(ours)
    os.close(terminal)
