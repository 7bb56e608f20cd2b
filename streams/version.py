"""Which version of a package is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["version_of"]


def version_of(package: str) -> str:
    """Its version, or that it is not installed: ours also runs from the source tree."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"
