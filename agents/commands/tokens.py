"""Give an application a token for opt-in records, or take it away.

    blendstream tokens add news-app        prints the token, once; the file keeps a salted hash
    blendstream tokens remove news-app     every token of that application
    blendstream tokens list                the applications, and how many tokens each has
    blendstream tokens add maps-app --user-ids news-app
                                           the same accounts as news-app: a user id that both send
                                           is one person

Without --user-ids an application's user ids are its own: the same id sent by another application
is another person. A name keeps its user ids when its tokens are replaced; an application that gets
a new name keeps its users with --user-ids OLD-NAME.
Running gateways notice either within a second; restart those that were handed the file when they
started (systemd's credentials, compose's secrets), or a token taken away still works there.
An application may hold several tokens while one replaces another; the file has a line for each,
oldest first, and a line may be deleted by hand. The file keeps its owner and mode.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from agents.gateway.submit.token_file import (
    TokenFileError,
    add_token,
    read_token_file,
    read_tokens,
    remove_tokens,
)
from streams.settings import load_settings

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("add", "remove", "list"))
    parser.add_argument("name", nargs="?", metavar="NAME", help="the application")
    parser.add_argument(
        "--user-ids",
        metavar="SPACE",
        help="with add: the application or group of applications whose accounts it shares; "
        "default: its own",
    )
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="the token file; default: gateway.token_file"
    )


def run(arguments: argparse.Namespace) -> int:
    path = arguments.file or load_settings(arguments.settings).settings.gateway.token_file
    if path is None:
        raise TokenFileError(
            "the token file must be named, by --file or by the setting gateway.token_file"
        )
    try:
        return _do(arguments, path)
    except (OSError, UnicodeDecodeError) as error:
        raise TokenFileError(
            f"the token file must be a text file that can be read and written, got "
            f"{type(error).__name__} for {path}; correct the path, or let this user write there"
        ) from None


def _do(arguments: argparse.Namespace, path: Path) -> int:
    if arguments.user_ids is not None and arguments.what != "add":
        raise TokenFileError("--user-ids must be given to `blendstream tokens add` only")
    if arguments.what == "list":
        for name, found in sorted(read_tokens(read_token_file(path)).items()):
            shared = "" if found.user_ids == name else f"  user ids of {found.user_ids}"
            print(f"{name}  {len(found.tokens)}{shared}")
        return 0
    if arguments.name is None:
        raise TokenFileError(f"`blendstream tokens {arguments.what}` needs an application's NAME")
    if arguments.what == "add":
        print(add_token(path, arguments.name, arguments.user_ids))
        return 0
    removed = remove_tokens(path, arguments.name)
    print(f"removed {removed} token(s)")
    return 0 if removed else 1
