"""The command line: `blendstream SUBCOMMAND`.

A subcommand is a module with `run(arguments) -> int`, `add_arguments(parser)` if it has options,
and one line in `SUBCOMMANDS`. It is imported only when used, so that none waits for another's
libraries.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from blendstream.agents.output import drop_unread_output
from blendstream.blender.values.errors import BlenderError
from blendstream.streams.version import version_of

__all__ = ["SUBCOMMANDS", "Subcommand", "build_parser", "main"]


class Subcommand(NamedTuple):
    """What follows `blendstream` on the command line."""

    name: str
    module: str
    sentence: str


#: In the order a newcomer needs them.
SUBCOMMANDS = (
    Subcommand(
        "demo", "blendstream.agents.commands.demo", "see the whole service run on simulated people"
    ),
    Subcommand(
        "stack", "blendstream.agents.commands.stack", "run a real Kafka and Redis on this machine"
    ),
    Subcommand(
        "gateway",
        "blendstream.agents.commands.gateway",
        "serve the HTTP API for devices and analysts",
    ),
    Subcommand(
        "worker", "blendstream.agents.commands.worker", "count opt-in records and client reports"
    ),
    Subcommand("jobs", "blendstream.agents.commands.jobs", "open, seal and publish epochs"),
    Subcommand(
        "run", "blendstream.agents.commands.run", "gateway, worker and jobs in one terminal"
    ),
    Subcommand(
        "simulate",
        "blendstream.agents.commands.simulate",
        "send simulated people to a service for trial",
    ),
    Subcommand(
        "epochs", "blendstream.agents.commands.epochs", "show the epochs' states; give one up"
    ),
    Subcommand("results", "blendstream.agents.commands.results", "show what was published"),
    Subcommand(
        "ledger", "blendstream.agents.commands.ledger", "show what the privacy budget was spent on"
    ),
    Subcommand(
        "verify", "blendstream.agents.commands.verify", "check that log, Redis and topics agree"
    ),
    Subcommand("rebuild", "blendstream.agents.commands.rebuild", "fill Redis again from Kafka"),
    Subcommand(
        "doctor",
        "blendstream.agents.commands.doctor",
        "check the installation; say how to fix what is wrong",
    ),
    Subcommand(
        "keys", "blendstream.agents.commands.keys", "make a master secret, or see which are set"
    ),
    Subcommand(
        "tokens",
        "blendstream.agents.commands.tokens",
        "give applications tokens for opt-in records",
    ),
    Subcommand(
        "settings",
        "blendstream.agents.commands.settings",
        "show every setting, its value and its origin",
    ),
    Subcommand(
        "plan",
        "blendstream.agents.commands.plan",
        "say what each way of spending privacy would give",
    ),
    Subcommand(
        "evaluate",
        "blendstream.agents.commands.evaluate",
        "measure accuracy; draw the paper's figures",
    ),
    Subcommand(
        "completion",
        "blendstream.agents.commands.completion",
        "let the shell complete verbs and options",
    ),
)

ABOUT = """\
Learn which queries people search for and which results they click, under hybrid differential
privacy: opt-in users trust the curator, everyone else randomises on their own device.
"""

FIRST_STEPS = """\
first steps:
  blendstream demo --epochs 3           see all of it on this machine; nothing is left behind
  blendstream settings                  what can be set, what is set, and where it came from
  blendstream plan --epochs 30          what each way of spending people's privacy would give

a service of your own:
  blendstream keys new 2026-a           a master secret; for all processes (--file FILE)
  blendstream tokens add my-app         who may send opt-in records; for the gateways (--file FILE)
  blendstream doctor                    Kafka, Redis, topics, clock: what must be fixed, and how
  blendstream gateway | worker | jobs   the processes, any number of each
  blendstream run                       all three in one terminal, to try: docs/first-service.md

day by day:
  blendstream epochs --watch            the stage of each epoch, and what it waits for
  blendstream results --csv             the newest published estimates, as a file
  blendstream ledger                    what people's privacy was spent on
  blendstream verify                    log, Redis and topics compared
  blendstream rebuild                   count again from Kafka, when verify or an alert says so

  blendstream VERB --help               what one verb does and takes
  eval "$(blendstream completion bash)" complete verbs and options in this shell

Settings come from BLENDSTREAM_... variables and from one TOML file (--settings, or
BLENDSTREAM_SETTINGS); variables win.
"""

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
#: As a shell reports a tool whose reader has gone: 128 and the number of SIGPIPE.
UNREAD = 141


class _VerbParser(argparse.ArgumentParser):
    """Accepts --settings after the verb too; argparse makes a verb's actions of the same class."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # No default: it would undo what was given before the verb.
        _add_settings(self, default=argparse.SUPPRESS)


def _add_settings(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", default=default, help="the TOML file of settings"
    )


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The command line's grammar: whole, or whole only for the verbs among `words`."""
    parser = argparse.ArgumentParser(
        prog="blendstream",
        description=ABOUT,
        epilog=FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"blendstream {version_of('blendstream')}"
    )
    _add_settings(parser, default=None)
    subparsers = parser.add_subparsers(
        dest="verb", metavar="VERB", title="verbs", parser_class=_VerbParser
    )
    for verb in SUBCOMMANDS:
        subparser = subparsers.add_parser(
            verb.name,
            help=verb.sentence,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if words is None or verb.name in words:
            chosen = importlib.import_module(verb.module)
            subparser.description = chosen.__doc__
            if hasattr(chosen, "add_arguments"):
                chosen.add_arguments(subparser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return the process's exit code."""
    try:
        try:
            return _run(sys.argv[1:] if argv is None else list(argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # A broken connection to a server has the same name; that is an error like any other.
        if not drop_unread_output():
            raise
        return UNREAD


def _run(words: Sequence[str]) -> int:
    try:
        parser = build_parser(words)
        arguments = parser.parse_args(words)
        if arguments.verb is None:
            parser.print_help()
            return MISUSED
        module = importlib.import_module(
            next(v.module for v in SUBCOMMANDS if v.name == arguments.verb)
        )
        status: int = module.run(arguments)
    except BlenderError as error:
        print(f"blendstream: {error}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as error:
        # The image leaves the evaluation out.
        extra = "eval" if (error.name or "").startswith("blendstream.evaluation") else "server"
        print(
            f"blendstream: this verb needs the server's libraries, and {error.name} is not "
            f"installed. Run: pip install 'blendstream[{extra}]'",
            file=sys.stderr,
        )
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
