"""`localclient`: the command line of a device, for tests by hand.

Every command prints what it did and what is on the device afterwards. Only `report` uses the
network; the others send nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from blendstream.blender.values.errors import BlenderError, ParameterError
from blendstream.localclient.dry_runs import dry_run
from blendstream.localclient.exchange import ResultCode
from blendstream.localclient.limits import Limits
from blendstream.localclient.local_client import LocalClient, Status, forget
from blendstream.localclient.opting_in import OptIn
from blendstream.localclient.search import PublishedResult, RankedQuery, RankedUrl
from blendstream.localclient.sent_words import describe_log, plain

__all__ = ["main"]

_ABOUT = """\
Keep searches on this device and report them privately, as an embedding application would.

  localclient record "weather tomorrow" https://weather.example/
  localclient status
  localclient status --sent
  localclient report --server https://gateway.example --epsilon 4 --period-epsilon 4
  localclient search "weather" --result estimates.json
  localclient trends --result estimates.json
  localclient forget
"""

_REPORT_ABOUT = """\
Fetch and check the server's head list; report on this device's searches once, randomised here.

The limits are this device's own: a list that asks for more is refused. ε and δ bound what anyone
can learn about *which* searches were made here, all answers of a report together; two sets of
searches of this one person are compared (replace-one). That the device takes part is not hidden.
"""

_DEFAULT_FOLDER = "~/.local/share/blendstream-localclient"
#: The server's URL for commands that name none; they send no request.
_NOWHERE = "https://localhost"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 if it succeeded, 2 if it was refused."""
    chosen = _parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except BlenderError as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
    except OSError as error:
        print(f"refused: {error.strerror}: {error.filename}", file=sys.stderr)
    return 2


def _record(chosen: argparse.Namespace) -> int:
    client = _client(chosen)
    recorded = client.record(chosen.query, chosen.url)
    if recorded.code is ResultCode.TEXT_REFUSED:
        print(f"refused: {recorded.detail}", file=sys.stderr)
        return 2
    number = client.status().records_held
    print(f"Kept on this device: {_count(number, 'search', 'searches')} in {_folder(chosen)}.")
    print("Nothing was sent.")
    return 0


def _status(chosen: argparse.Namespace) -> int:
    if chosen.sent or chosen.json:
        return _sent(chosen)
    status = _client(chosen).status()
    print(f"Folder                 {_folder(chosen)}")
    print(f"Searches kept          {status.records_held}")
    print(f"Windows answered       {status.windows_answered}")
    print(f"Last epoch answered    {'none' if status.last_epoch is None else status.last_epoch}")
    print(f"Spent in {chosen.period_days} days{'':<8}{_spent(status)}")
    if status.waiting_until_s is not None:
        print(f"Will report at         {_local(status.waiting_until_s)}, a time drawn at random")
    if status.unsent_epoch is not None:
        print(f"Written, not yet sent  the answer to epoch {status.unsent_epoch}")
    return 0


def _sent(chosen: argparse.Namespace) -> int:
    known = None not in (chosen.epsilon, chosen.period_epsilon)
    log = _client(chosen).sent_log()
    if chosen.json:
        if not known:
            raise ParameterError(
                "--json must know the limits that this device reports with, to say what is left: "
                "add --epsilon and --period-epsilon"
            )
        print(log.to_json(), end="")
    else:
        print(describe_log(log, limits_known=known))
    return 0


def _report(chosen: argparse.Namespace) -> int:
    opt_in = None
    if chosen.opt_in_user is not None:
        # From the environment, because every user of a machine can see command lines.
        opt_in = OptIn(chosen.opt_in_user, os.environ.get("LOCALCLIENT_TOKEN", ""))
    if chosen.dry_run:
        return _dry_run(chosen, opt_in)
    client = _client(chosen, chosen.server, opt_in)
    outcome = client.report_now() if chosen.now else client.maybe_report()
    epoch = "" if outcome.epoch is None else f" (epoch {outcome.epoch})"
    print(f"{outcome.code.capitalize()}{epoch}: {outcome.detail}.")
    if not chosen.now:
        print(f"Call again at {_local(outcome.next_call_at_s)} or later, or add --now.")
    print(f"Spent in {chosen.period_days} days: {_spent(client.status())}.")
    return 0


def _dry_run(chosen: argparse.Namespace, opt_in: OptIn | None) -> int:
    run = dry_run(chosen.server, _folder(chosen), _limits(chosen), opt_in=opt_in)
    print("Dry run: nothing is sent or spent, and nothing on this device changes.")
    print(f"Asked the server for {', '.join(run.asked) or 'nothing'}.")
    epoch = "" if run.epoch is None else f" about epoch {run.epoch}"
    if run.outcome is not None:
        print(f"A report now would end with {run.outcome.code}: {run.outcome.detail}.")
        return 0
    print(f"A report now would POST {len(run.body.encode())} bytes to {run.path}{epoch}:")
    print(f"  {run.body}")
    if not run.asked:
        print("These bytes were written and paid for before; they are sent as they are.")
        return 0
    searches = _count(run.searches, "search", "searches")
    cost = f"epsilon {run.epsilon:g}, delta {run.delta:g}"
    print(f"It is about {searches} of its window, and would spend {cost}.")
    if opt_in is None:
        print(
            "Show it to nobody. A real report has other random numbers, and this one was not "
            "paid for: several of them tell more than the budget allows."
        )
    return 0


def _search(chosen: argparse.Namespace) -> int:
    result = PublishedResult.load(chosen.result, filtered=not chosen.one_epoch)
    rows = result.search(chosen.query, chosen.limit)
    if not rows:
        print("Not among the published queries.")
        return 1
    print(_which(result))
    for row in rows:
        print(f"{_figures(row)}  {plain(row.url)}{_mark(row)}")
    return 0


def _trends(chosen: argparse.Namespace) -> int:
    result = PublishedResult.load(chosen.result, filtered=not chosen.one_epoch)
    print(_which(result))
    rows = result.trends(chosen.n)
    for row in rows:
        print(f"{_figures(row)}  {plain(row.query)}{_mark(row)}")
    if any(row.at_least for row in rows):
        print("At least: results that are not known are not in a query's share.")
    return 0


def _which(result: PublishedResult) -> str:
    """Return a sentence that states which estimate the numbers printed after it are."""
    if result.read == "filtered":
        return (
            f"Epoch {result.epoch}, filtered: the best guess from all epochs that are remembered. "
            "--one-epoch shows this one by itself."
        )
    return f"Epoch {result.epoch} by itself ({result.read})."


def _figures(row: RankedUrl | RankedQuery) -> str:
    return f"{row.probability:9.5f}  [{row.low:.5f}, {row.high:.5f}]"


def _mark(row: RankedUrl | RankedQuery) -> str:
    if not row.disputed:
        return ""
    return "  (disputed: the two groups differ here far more than elsewhere; this epoch by itself)"


def _forget(chosen: argparse.Namespace) -> int:
    forget(_folder(chosen))
    print("All searches kept here are removed. What was spent stays spent.")
    return 0


def _client(
    chosen: argparse.Namespace, server: str = _NOWHERE, opt_in: OptIn | None = None
) -> LocalClient:
    return LocalClient(server, _folder(chosen), _limits(chosen), opt_in=opt_in)


def _limits(chosen: argparse.Namespace) -> Limits:
    # Commands that do not report need no limits: they only show counts.
    per_report = getattr(chosen, "epsilon", None) or 1.0
    return Limits(
        epsilon_per_report=per_report,
        delta_per_report=getattr(chosen, "delta", 0.0),
        epsilon_per_period=getattr(chosen, "period_epsilon", None) or per_report,
        delta_per_period=getattr(chosen, "period_delta", 0.0),
        period_s=chosen.period_days * 86_400,
        min_window_s=getattr(chosen, "min_window_s", 3_600),
    )


def _folder(chosen: argparse.Namespace) -> Path:
    return Path(chosen.folder).expanduser()


def _spent(status: Status) -> str:
    return f"epsilon {status.epsilon_spent:g}, delta {status.delta_spent:g}"


def _count(n: int, one: str, many: str) -> str:
    return f"1 {one}" if n == 1 else f"{n} {many}"


def _local(at_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def _add_budget(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--epsilon", type=float, required=required, help="maximum per report")
    parser.add_argument("--delta", type=float, default=0.0, help="maximum per report (default 0)")
    parser.add_argument(
        "--period-epsilon", type=float, required=required, help="maximum per period"
    )
    parser.add_argument("--period-delta", type=float, default=0.0, help="default 0")


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="localclient", description=_ABOUT, formatter_class=form)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    on_device = argparse.ArgumentParser(add_help=False)
    on_device.add_argument(
        "--folder", default=_DEFAULT_FOLDER, help=f"where it is kept (default {_DEFAULT_FOLDER})"
    )
    on_device.add_argument(
        "--period-days", type=int, default=28, help="the budget's period (default 28)"
    )
    published = argparse.ArgumentParser(add_help=False)
    published.add_argument(
        "--result", required=True, help="a saved answer of the server's /v1/estimates/latest"
    )
    published.add_argument(
        "--one-epoch",
        action="store_true",
        help="show what this epoch says by itself, also where it is known from several",
    )

    record = commands.add_parser(
        "record", parents=[on_device], help="keep a search on this device; nothing is sent"
    )
    record.add_argument("query")
    record.add_argument("url", help="the result that was clicked")
    record.set_defaults(run=_record)

    status = commands.add_parser(
        "status", parents=[on_device], help="what is kept, spent and waiting"
    )
    status.add_argument(
        "--sent", action="store_true", help="print what was sent, and what it can reveal at most"
    )
    status.add_argument("--json", action="store_true", help="print that as JSON, to keep it")
    _add_budget(status, required=False)
    status.set_defaults(run=_status)

    report = commands.add_parser(
        "report",
        parents=[on_device],
        help="report once, privately, if it is due",
        description=_REPORT_ABOUT,
        formatter_class=form,
    )
    report.add_argument("--server", required=True, help="https://… (http:// on this machine only)")
    _add_budget(report, required=True)
    report.add_argument("--min-window-s", type=int, default=3_600, help="shortest window accepted")
    report.add_argument(
        "--dry-run",
        action="store_true",
        help="show what a report now would send; send, spend and change nothing",
    )
    report.add_argument("--now", action="store_true", help="do not wait for the drawn time")
    report.add_argument(
        "--opt-in-user",
        metavar="ID",
        help="send searches as they are, under this id, to a curator you trust; "
        "the token is read from LOCALCLIENT_TOKEN",
    )
    report.set_defaults(run=_report)

    search = commands.add_parser(
        "search", parents=[published], help="what others clicked for a query; no network"
    )
    search.add_argument("query")
    search.add_argument("--limit", type=int, help="at most this many URLs")
    search.set_defaults(run=_search)

    trends = commands.add_parser(
        "trends", parents=[published], help="what is searched for most; no network"
    )
    trends.add_argument("-n", type=int, default=10, help="how many (default 10)")
    trends.set_defaults(run=_trends)

    forget = commands.add_parser(
        "forget", parents=[on_device], help="remove all searches kept here; the budget stays"
    )
    forget.set_defaults(run=_forget)
    return parser
