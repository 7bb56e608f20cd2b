"""Load the hook that admits reports; without one, everyone may report.

Reports have no account and no token, because a device that had to identify itself would not be
private. So forged reports are possible (docs/privacy-forged-reports.md states their effect). A
deployment that can distinguish real devices from invented ones, by platform attestation or
anonymous tokens, provides a hook: the setting `gateway.admission` names a factory
`package.module:function` without parameters that returns an `Admission`.

Assumes: an implementation stores no address and nothing that links two reports of one device.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

from blendstream.blender.values.errors import BlenderError

__all__ = ["Admission", "AdmissionError", "load_admission"]


class AdmissionError(BlenderError):
    """The admission hook in the settings cannot be loaded."""


class Admission(Protocol):
    """Admits or refuses a request with reports, before its entries are decoded."""

    async def refusal(self, headers: Mapping[bytes, bytes], body: bytes) -> str | None:
        """Return `None` to admit the request, or a sentence that advises its sender.

        Header names are lower-case. The sentence must not quote the headers or the body.
        """
        ...


def load_admission(name: str | None) -> Admission | None:
    """Load the hook that the settings name; without a name return `None`, which admits everyone."""
    if not name:
        return None
    module_name, _, factory_name = name.partition(":")
    try:
        admission = getattr(importlib.import_module(module_name), factory_name)()
    except Exception as error:
        raise AdmissionError(
            "gateway.admission must name a factory as package.module:function, "
            f"got {name!r}, which failed with {type(error).__name__}: {error}"
        ) from error
    if not callable(getattr(admission, "refusal", None)):
        raise AdmissionError(
            f"the object that gateway.admission={name!r} returns must have `refusal`"
        )
    return cast(Admission, admission)
