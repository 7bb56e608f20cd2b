"""Versions of installed packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["version_of"]


def version_of(package: str) -> str:
    """Return a package's version, or "(not installed)": ours also runs from the source tree."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
