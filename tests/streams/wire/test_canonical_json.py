"""There is one spelling of what is hashed, compared or sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blendstream import streams
from blendstream.streams.wire.canonical_json import canonical_json

#: Where the packages are, in a checkout and where they are installed.
PLACE = Path(streams.__file__).parents[1]


def test_equal_values_have_equal_bytes() -> None:
    assert canonical_json({"b": 1, "a": ["ε", 2.0, None]}) == '{"a":["ε",2.0,null],"b":1}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


def test_no_other_module_of_the_service_spells_it() -> None:
    """Two spellings were once alike by chance; a change to one would have made two ids of one."""
    spelling = [
        str(file.relative_to(PLACE))
        for folder in ("streams", "agents")
        for file in sorted((PLACE / folder).rglob("*.py"))
        if re.search(r"sort_keys|separators=", file.read_text())
    ]
    assert spelling == ["streams/wire/canonical_json.py"]
