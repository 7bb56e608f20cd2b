"""Structured logging that excludes every query, URL and user id.

    log = logging.getLogger(__name__)
    log.info("client_reports_counted", extra={"partition": 3, "counted": 512})

Our lines have a past-tense event key and fields. A field's name must be in `FIELDS`; its value must
be a number, a boolean, an enum's member, or text wrapped in `SafeText`, by which the author states
that it is the project's (a topic, a version). The handler omits everything else and counts it as
refused.

Lines of other libraries may contain data: a Kafka library that reports a bad message may print the
message. Of such a line the handler writes the logger, the place, the text only if it is a constant
in the code that logged it, and of its arguments only numbers. Of an exception it writes type and
place; the message only if it is one of ours (`BlenderError`).

The handler counts a library's line that repeats one of the last ten seconds instead of writing it,
and adds the number to the next (`repeated`): while a broker is unavailable there may be a hundred
such lines per second.

Promises: everything logged by `logging`, `warnings` or an unhandled exception obeys this.
Assumes: no code prints to standard error in another way, or wraps foreign text in `SafeText`.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from enum import Enum
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO

from blendstream.blender.values.errors import BlenderError

if TYPE_CHECKING:
    from blendstream.streams.settings.sections import LogSettings

__all__ = ["FIELDS", "SafeHandler", "SafeText", "configure_logging"]

#: Every field that a log line may have. Add a name here when a new one cannot carry anyone's data;
#: remove a name that no line uses any more.
FIELDS: Final = frozenset(
    {
        "address",
        "advice",
        "counted",
        "early_ms",
        "entries",
        "epoch",
        "found",
        "kind",
        "log_position",
        "lost",
        "offset",
        "partition",
        "pid",
        "reason",
        "received",
        "record",
        "refused",
        "retry_in_s",
        "seconds",
        "servers",
        "skew_s",
        "status",
        "stem",
        "topic",
    }
)
OURS: Final = ("blendstream",)
DEEPEST_FRAMES: Final = 6
#: A library's line is not repeated within this time. If longer, an ongoing problem looks solved.
REPEATED_S: Final = 10.0
#: Maximum number of different lines that are remembered; the oldest are forgotten first.
_REMEMBERED: Final = 500
#: Number of stack frames above `logging` that are searched for a constant: libraries wrap it two or
#: three deep. Further up the stack, constants may equal data.
CALLERS: Final = 4
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class SafeText(str):
    """Text that its author declares to be the project's, never a person's: a topic, a state."""

    __slots__ = ()


SAFE_TYPES: Final = (bool, int, float, type(None), Enum, SafeText)


class SafeHandler(logging.StreamHandler[TextIO]):
    """Writes one line per record, as JSON or for people, and omits unsafe values."""

    def __init__(self, stream: TextIO, *, form: str = "json") -> None:
        super().__init__(stream)
        self._readable = form == "text" or (form == "auto" and stream.isatty())
        #: By line: time of its last write, and number of repetitions since.
        self._recent: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line, unless it repeats a recent one."""
        try:
            line = self.format(record)
            if line:
                self.stream.write(line + self.terminator)
                self.flush()
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Do nothing: `logging` would print the message here."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the line; empty if it is a repetition.

        It must run in the stack of the code that logged, which `_is_constant` examines.
        """
        ours = record.name.partition(".")[0] in OURS
        line = {
            "level": record.levelname.lower(),
            "logger": record.name,
            **(_our_event(record) if ours else _foreign_event(record)),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _safe_error(record.exc_info[1])
        if not ours:
            repeated = self._repetitions(json.dumps(line), record.created)
            if repeated is None:
                return ""
            line |= {"repeated": repeated} if repeated else {}
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {"at": f"{at}.{int(record.msecs):03d}Z", **line}
        return _for_people(entry) if self._readable else json.dumps(entry, ensure_ascii=False)

    def _repetitions(self, line: str, now_s: float) -> int | None:
        """Count a line's repetitions since its last write; None: this is one, do not write it."""
        written_s, times = self._recent.get(line, (-REPEATED_S, 0))
        if 0 <= now_s - written_s < REPEATED_S:
            self._recent[line] = written_s, times + 1
            return None
        self._recent.pop(line, None)
        self._recent[line] = now_s, 0  # The newest is last.
        if len(self._recent) > _REMEMBERED:
            del self._recent[next(iter(self._recent))]
        return times


def configure_logging(settings: LogSettings | None = None, stream: TextIO | None = None) -> None:
    """Send all logs of this process through one `SafeHandler`, crashes and warnings included."""
    handler = SafeHandler(stream or sys.stderr, form=settings.form if settings else "auto")
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OURS:
        logging.getLogger(name).setLevel((settings.level if settings else "info").upper())
    for name in list(logging.root.manager.loggerDict):
        # Handlers of other libraries would bypass ours.
        if isinstance(logger := logging.root.manager.loggerDict[name], logging.Logger):
            logger.handlers.clear()
            logger.propagate = True
    logging.captureWarnings(True)
    crash = logging.getLogger("blendstream.streams.telemetry.structured_logs")

    def on_crash(
        _kind: type[BaseException], error: BaseException, _where: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            return
        crash.critical("process_crashed", exc_info=error)

    sys.excepthook = on_crash
    threading.excepthook = lambda arguments: crash.critical(
        "thread_crashed", exc_info=arguments.exc_value
    )


def _our_event(record: logging.LogRecord) -> dict[str, Any]:
    event = record.msg if isinstance(record.msg, str) and record.msg.isidentifier() else None
    if event is None or not _is_constant(event):
        return {"event": "unsafe_line_refused", "place": _place(record)}
    given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    fields = {
        name: value.name.lower() if isinstance(value, Enum) else value
        for name, value in given.items()
        if name in FIELDS and isinstance(value, SAFE_TYPES)
    }
    refused = len(given) - len(fields) + len(record.args or ())
    if refused:
        fields |= {"refused_fields": refused, "place": _place(record)}
    return {"event": event, **fields}


def _foreign_event(record: logging.LogRecord) -> dict[str, Any]:
    event: dict[str, Any] = {"event": "library_said", "place": _place(record)}
    if isinstance(record.msg, str) and _is_constant(record.msg):
        event["text"] = record.msg
        arguments = record.args if isinstance(record.args, tuple) else ()
        event["arguments"] = [
            a if isinstance(a, int | float) else f"<{type(a).__name__}>" for a in arguments
        ]
    return event


def _safe_error(error: BaseException) -> dict[str, Any]:
    """Describe an error: type, place and cause; the message only of ours, which have no data."""
    shown: dict[str, Any] = {"type": f"{type(error).__module__}.{type(error).__qualname__}"}
    if isinstance(error, BlenderError):
        shown["message"] = str(error)
    frames = traceback.extract_tb(error.__traceback__, limit=-DEEPEST_FRAMES)
    shown["raised_at"] = [f"{_short(frame.filename)}:{frame.lineno}" for frame in frames]
    # A chain can be a circle when an old exception is raised again; one step is enough.
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        shown["caused_by"] = f"{type(cause).__module__}.{type(cause).__qualname__}"
    return shown


def _is_constant(text: str) -> bool:
    """Return True if the text is a constant of a function that is logging: code, not data."""
    frame: FrameType | None = sys._getframe(1)
    for passed in (__name__, "logging"):
        while frame is not None and frame.f_globals.get("__name__") == passed:
            frame = frame.f_back
    for _ in range(CALLERS):
        if frame is None:
            return False
        if any(isinstance(const, str) and const == text for const in frame.f_code.co_consts):
            return True
        frame = frame.f_back
    return False


def _place(record: logging.LogRecord) -> str:
    return f"{_short(record.pathname)}:{record.lineno}"


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


def _for_people(entry: dict[str, Any]) -> str:
    fields = dict(entry)
    start = f"{fields.pop('at')[11:19]} {fields.pop('level'):<8} {fields.pop('event')}"
    logger, error = fields.pop("logger"), fields.pop("error", None)
    line = " ".join([start, *(f"{name}={fields[name]}" for name in fields), f"({logger})"])
    if error:
        line += f"\n    {error['type']}: {error.get('message', '(message kept out of the log)')}"
        line += "".join(f"\n      at {place}" for place in error["raised_at"])
        line += f"\n      caused by {error['caused_by']}" if "caused_by" in error else ""
    return line
