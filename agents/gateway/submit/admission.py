"""Who may report: everyone, unless the operator plugs in something stricter.

Reports carry no account and no token, because a device that had to name itself would not be a
private one. That leaves the door open to forged reports (docs/privacy-forged-reports.md says what
they can do). A deployment that can tell real devices from invented ones, by platform attestation
or by anonymous tokens, does it here: the setting `gateway.admission` names a factory
`package.module:function` that takes nothing and returns an `Admission`.

Assumes: an implementation keeps no address and nothing that links two reports of one device.
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
    """Judges a request with reports before anything in it is read."""

    async def refusal(self, headers: Mapping[bytes, bytes], body: bytes) -> str | None:
        """`None` to admit the request, or one sentence for its sender: what to do instead.

        Header names are lower-case. The sentence must not quote the headers or the body.
        """
        ...


def load_admission(name: str | None) -> Admission | None:
    """The hook that the settings name; `None` admits everyone."""
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
        raise AdmissionError(f"what gateway.admission={name!r} returns must have `refusal`")
    return cast(Admission, admission)
