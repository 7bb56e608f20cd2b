"""Print a completion script for a shell.

bash    eval "$(blendstream completion bash)"       in ~/.bashrc
zsh     blendstream completion zsh > ~/.zfunc/_blendstream
"""

from __future__ import annotations

import argparse

import shtab

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from blendstream.agents.cli import build_parser  # noqa: PLC0415 - which imports this module by name

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return 0
