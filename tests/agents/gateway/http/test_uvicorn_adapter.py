"""uvicorn's private parts are reached in one module, which says why."""

from __future__ import annotations

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parents[4]
ADAPTER = REPOSITORY / "agents" / "gateway" / "http" / "uvicorn_adapter.py"
#: What is private of uvicorn's protocol, cycle and server. Parser callbacks are overridden by name.
PRIVATE = {
    "_unset_keepalive_if_required", "cycle", "expect_100_continue", "flow", "parser", "pipeline",
    "response_complete", "response_started", "server_state", "servers",
}  # fmt: skip


def test_only_the_adapter_reaches_into_uvicorn():
    """Who upgrades uvicorn reads one file to see what may break."""
    for file in sorted((REPOSITORY / "agents").rglob("*.py")):
        if file == ADAPTER:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("uvicorn"), file
            elif isinstance(node, ast.Attribute) and "gateway" in file.parts:
                assert node.attr not in PRIVATE, (file, node.lineno)


def test_the_adapter_says_why_it_uses_each_part():
    """A part that is not in the table is one that nobody looks at when uvicorn changes."""
    table, code = ADAPTER.read_text().split('"""', 2)[1:]

    for name in PRIVATE:
        assert f"`{name}`" in table, name
        assert f".{name}" in code, name
