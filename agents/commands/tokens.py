"""Add, remove and list the applications' tokens for opt-in records.

    blendstream tokens add news-app        print a new token, once; the file stores a salted hash
    blendstream tokens remove news-app     remove all tokens of that application
    blendstream tokens list                list the applications, and how many tokens each has
    blendstream tokens add maps-app --user-ids news-app
                                           share the accounts of news-app: a user id that both send
                                           is one person
    blendstream tokens add news-app --for-users
                                           print a key, once, for the application's backend, which
                                           signs tokens of single users with it, for devices that
                                           hold no secret; the file stores the public key
    blendstream tokens mint --key-file KEY --minutes 60 < user-id
                                           sign a token for one user, as a backend does

Without --user-ids an application's user ids are separate: an equal id from another application
is another person. An application whose tokens are replaced keeps its user ids as long as it keeps
its name; under a new name it keeps them with --user-ids OLD-NAME.

Running gateways apply a change within a second. Restart those that received the file at their
start (systemd's credentials, compose's secrets), or a removed token still works there.

An application may have several tokens while one replaces another. The file has a line per token,
oldest first; a line may be deleted by hand. The command preserves the file's owner and mode.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from blendstream.agents.plurals import counted
from blendstream.agents.tokens import (
    TokenFileError,
    add_token,
    read_token_file,
    read_tokens,
    remove_tokens,
)
from blendstream.streams.settings import load_settings
from blendstream.streams.settings.private_files import exposed
from blendstream.streams.user_tokens import mint_user_token

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("add", "remove", "list", "mint"))
    parser.add_argument("name", nargs="?", metavar="NAME", help="the application")
    parser.add_argument(
        "--user-ids",
        metavar="SPACE",
        help="with add: the application, or group of applications, whose accounts it shares; "
        "default: none, its accounts are separate",
    )
    parser.add_argument(
        "--for-users",
        action="store_true",
        help="with add: create a key with which the application's backend signs tokens of users",
    )
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE", help="with mint: the key that add printed"
    )
    parser.add_argument(
        "--minutes", type=int, default=60, help="with mint: how long the token lasts (default 60)"
    )
    parser.add_argument(
        "--file", type=Path, metavar="FILE", help="the token file; default: gateway.token_file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Change or list the token file, or mint a token."""
    if arguments.action == "mint":
        return _mint(arguments)
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


def _mint(arguments: argparse.Namespace) -> int:
    if arguments.key_file is None:
        raise TokenFileError("`blendstream tokens mint` needs --key-file FILE")
    if problem := exposed(arguments.key_file, "the key file"):
        raise TokenFileError(problem)
    # From stdin: command lines are visible to all users of a machine.
    user_id = sys.stdin.read().rstrip("\n")
    expires_s = int(time.time()) + 60 * arguments.minutes
    print(mint_user_token(arguments.key_file.read_text(), user_id, expires_s=expires_s))
    return 0


def _do(arguments: argparse.Namespace, path: Path) -> int:
    for option, given in (("--user-ids", arguments.user_ids), ("--for-users", arguments.for_users)):
        if given and arguments.action != "add":
            raise TokenFileError(f"{option} must be given to `blendstream tokens add` only")
    if arguments.action == "list":
        for name, found in sorted(read_tokens(read_token_file(path)).items()):
            shared = "" if found.user_ids == name else f"  user ids of {found.user_ids}"
            signs = ", signs for users" if found.signers else ""
            print(f"{name}  {len(found.tokens)}{signs}{shared}")
        return 0
    if arguments.name is None:
        raise TokenFileError(f"`blendstream tokens {arguments.action}` needs an application's NAME")
    if arguments.action == "add":
        key = add_token(path, arguments.name, arguments.user_ids, for_users=arguments.for_users)
        print(key)
        return 0
    removed = remove_tokens(path, arguments.name)
    print(f"removed {counted(removed, 'token')}")
    return 0 if removed else 1
