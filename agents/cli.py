"""The command line: `blendstream SUBCOMMAND`.

A subcommand is a module with `run(arguments) -> int`, `add_arguments(parser)` if it has options,
and one line in `SUBCOMMANDS`. Only the module of the chosen subcommand is imported, so that no
subcommand waits for another's libraries.
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
    """A subcommand's name, its module and its line of help."""

    name: str
    module: str
    sentence: str


#: In the order in which a newcomer needs them.
SUBCOMMANDS = (
    Subcommand(
        "demo", "blendstream.agents.commands.demo", "run the whole service on simulated people"
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
        "run", "blendstream.agents.commands.run", "run gateway, worker and jobs in one terminal"
    ),
    Subcommand(
        "simulate",
        "blendstream.agents.commands.simulate",
        "send submissions of simulated people to a trial service",
    ),
    Subcommand(
        "epochs", "blendstream.agents.commands.epochs", "show the epochs' states; abandon one"
    ),
    Subcommand("results", "blendstream.agents.commands.results", "show published estimates"),
    Subcommand(
        "ledger", "blendstream.agents.commands.ledger", "show the privacy budget spent and left"
    ),
    Subcommand(
        "verify", "blendstream.agents.commands.verify", "check that log, Redis and topics agree"
    ),
    Subcommand(
        "rebuild", "blendstream.agents.commands.rebuild", "rebuild the counts in Redis from Kafka"
    ),
    Subcommand(
        "doctor",
        "blendstream.agents.commands.doctor",
        "check the installation and print how to fix each problem",
    ),
    Subcommand(
        "keys", "blendstream.agents.commands.keys", "create a master secret, or list the ids set"
    ),
    Subcommand(
        "tokens",
        "blendstream.agents.commands.tokens",
        "manage the applications' tokens for opt-in records",
    ),
    Subcommand(
        "settings",
        "blendstream.agents.commands.settings",
        "show every setting, its value and its origin",
    ),
    Subcommand(
        "plan",
        "blendstream.agents.commands.plan",
        "compare the expected accuracy of ways to spend privacy budget",
    ),
    Subcommand(
        "evaluate",
        "blendstream.agents.commands.evaluate",
        "measure accuracy; draw the paper's figures",
    ),
    Subcommand(
        "completion",
        "blendstream.agents.commands.completion",
        "print a script that completes subcommands and options",
    ),
)

ABOUT = """\
Learn which queries people search for and which results they click, under hybrid differential
privacy: opt-in users trust the curator, everyone else randomises on their own device.
"""

FIRST_STEPS = """\
first steps:
  blendstream demo --epochs 3           the whole service on this machine; leaves no files
  blendstream settings                  every setting, its value and its origin
  blendstream plan --epochs 30          expected accuracy of ways to spend privacy budget

a service of your own:
  blendstream keys new 2026-a           a master secret, for all processes (--file FILE)
  blendstream tokens add my-app         a token to send opt-in records, for gateways (--file FILE)
  blendstream doctor                    check Kafka, Redis, topics, clock; how to fix problems
  blendstream gateway | worker | jobs   the processes, any number of each
  blendstream run                       all three in one terminal, to try: docs/first-service.md

in operation:
  blendstream epochs --watch            the state of each epoch, and what it waits for
  blendstream results --csv             the newest published estimates, as a file
  blendstream ledger                    the privacy budget spent and left
  blendstream verify                    compare log, Redis and topics
  blendstream rebuild                   count again from Kafka, if verify or an alert asks for it

  blendstream SUBCOMMAND --help         description and options of a subcommand
  eval "$(blendstream completion bash)" complete subcommands and options in this shell

Settings come from BLENDSTREAM_... variables and from one TOML file (--settings, or
BLENDSTREAM_SETTINGS); variables override the file.
"""

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
#: The status that a shell reports for a process killed by SIGPIPE: 128 + 13.
UNREAD = 141


class _SubcommandParser(argparse.ArgumentParser):
    """Parser of a subcommand and of its actions; accepts --settings there too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # No default: it would override a --settings given before the subcommand.
        _add_settings(self, default=argparse.SUPPRESS)


def _add_settings(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", default=default, help="the TOML file of settings"
    )


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser; with `words`, only subcommands among them get their options."""
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
        dest="subcommand", metavar="SUBCOMMAND", title="subcommands", parser_class=_SubcommandParser
    )
    for subcommand in SUBCOMMANDS:
        subparser = subparsers.add_parser(
            subcommand.name,
            help=subcommand.sentence,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if words is None or subcommand.name in words:
            chosen = importlib.import_module(subcommand.module)
            subparser.description = chosen.__doc__
            if hasattr(chosen, "add_arguments"):
                chosen.add_arguments(subparser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the process's exit code."""
    try:
        try:
            return _run(sys.argv[1:] if argv is None else list(argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # A broken connection to a server raises this error too, and that must not be silenced.
        if not drop_unread_output():
            raise
        return UNREAD


def _run(words: Sequence[str]) -> int:
    try:
        parser = build_parser(words)
        arguments = parser.parse_args(words)
        if arguments.subcommand is None:
            parser.print_help()
            return MISUSED
        module = importlib.import_module(
            next(s.module for s in SUBCOMMANDS if s.name == arguments.subcommand)
        )
        status: int = module.run(arguments)
    except BlenderError as error:
        print(f"blendstream: {error}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as error:
        # The container image does not contain the evaluation.
        extra = "eval" if (error.name or "").startswith("blendstream.evaluation") else "server"
        print(
            f"blendstream: this subcommand needs the server's libraries, and {error.name} is not "
            f"installed. Run: pip install 'blendstream[{extra}]'",
            file=sys.stderr,
        )
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
