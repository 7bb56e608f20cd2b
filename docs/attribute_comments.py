"""For the site's reference: a comment `#:` above a field is the field's description."""

from __future__ import annotations

from typing import Any

import griffe


class AttributeComments(griffe.Extension):
    """Reads what static analysis of docstrings leaves out."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Take the lines of `#:` directly above the attribute."""
        if attr.docstring is not None or attr.lineno is None:
            return
        lines, comment = attr.lines_collection[attr.filepath], list[str]()
        for line in reversed(lines[: attr.lineno - 1]):
            if not line.strip().startswith("#:"):
                break
            comment.insert(0, line.strip().removeprefix("#:").strip())
        if comment:
            attr.docstring = griffe.Docstring("\n".join(comment), parent=attr)
