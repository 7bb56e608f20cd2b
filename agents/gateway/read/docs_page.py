"""The API's description as one page of plain HTML, written from the OpenAPI document.

No script, no network, no build step: it can be read on a server without internet, printed and
read aloud.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from agents.gateway.read.openapi import openapi_document

__all__ = ["docs_page"]

_CSS = """\
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 25%, transparent);
  --paper: #ffffff; --ink: #1b1f24; --accent: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #11151a; --ink: #e6edf3; --accent: #6cb6ff; }
}
a { color: var(--accent); }
body { background: var(--paper); color: var(--ink); }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
nav ul { columns: 2 20rem; padding-left: 1.2rem; }
section { border-top: 1px solid var(--line); margin-top: 2rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.92em; }
h3 code { font-size: 1em; }
.method { border: 1px solid currentColor; border-radius: 0.3em; padding: 0 0.4em; }
h3 code { margin-left: 0.5em; }
table { border-collapse: collapse; display: block; max-width: 100%; overflow-x: auto; }
caption { font-weight: 600; padding: 0.4rem 0; text-align: left; }
th, td { border: 1px solid var(--line); padding: 0.25rem 0.6rem; }
th, td { text-align: left; vertical-align: top; }
"""


def docs_page() -> tuple[bytes, bytes]:
    """HTML and style sheet."""
    api = openapi_document()
    info = api["info"]
    operations = [
        (method.upper(), path, operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    listed = "".join(
        f'<li><a href="#{o["operationId"]}"><code>{m} {escape(p)}</code></a></li>'
        for m, p, o in operations
    )
    body = "".join(_operation(m, p, o) for m, p, o in operations)
    schemas = "".join(_schema(name, s) for name, s in api["components"]["schemas"].items())
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(info["title"])} API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs.css">
</head>
<body>
<header>
<h1>{escape(info["title"])} API</h1>
<p>{escape(info["summary"])} Version {escape(info["version"])}.</p>
<p>{_marked(info["description"])} For programs: <a href="/openapi.json">openapi.json</a>.</p>
</header>
<nav aria-label="Addresses"><ul>{listed}</ul></nav>
<main>
<h2>Addresses</h2>
{body}
<h2>Bodies</h2>
{schemas}
</main>
</body>
</html>
"""
    return html.encode(), _CSS.encode()


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f'<section id="{operation["operationId"]}">',
        f'<h3><span class="method">{method}</span><code>{escape(path)}</code></h3>',
        f"<p>{_marked(operation['description'])}</p>",
    ]
    if operation.get("security"):
        parts.append("<p>Needs the header <code>Authorization: Bearer NAME.SECRET</code>.</p>")
    if parameters := operation.get("parameters"):
        rows = [
            (
                f"<code>{escape(p['name'])}</code>",
                p["in"],
                _kind(p["schema"]),
                _marked(p["description"]),
            )
            for p in parameters
        ]
        parts.append(_table("Parameters", ("name", "where", "type", "meaning"), rows))
    if body := operation.get("requestBody"):
        entry = body["content"]["application/json"]["schema"]["oneOf"][0]
        parts.append(f"<p>Body: one {_kind(entry)}, or an array of them.</p>")
    answers = [
        (status, escape(response["description"]), _content(response))
        for status, response in operation["responses"].items()
    ]
    parts.append(_table("Answers", ("status", "meaning", "body"), answers))
    return "\n".join([*parts, "</section>", ""])


def _content(response: dict[str, Any]) -> str:
    return "<br>".join(
        f"<code>{escape(media)}</code> {_kind(content['schema'])}"
        for media, content in response.get("content", {}).items()
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    parts = [f'<section id="{name}">', f"<h3>{name}</h3>"]
    if description := schema.get("description"):
        parts.append(f"<p>{_marked(description)}</p>")
    if values := schema.get("enum"):
        codes = ", ".join(f"<code>{escape(str(value))}</code>" for value in values)
        parts.append(f"<p>One of {codes}.</p>")
    if fields := schema.get("properties"):
        required = schema.get("required", [])
        rows = [
            (
                f"<code>{escape(field)}</code>",
                _kind(shape),
                "yes" if field in required else "no",
                _marked(shape.get("description", "")),
            )
            for field, shape in fields.items()
        ]
        parts.append(_table("Fields", ("name", "type", "required", "meaning"), rows))
    return "\n".join([*parts, "</section>", ""])


def _kind(schema: dict[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", 1)[1]
        return f'<a href="#{name}">{name}</a>'
    if choices := schema.get("anyOf"):
        return " or ".join(_kind(choice) for choice in choices)
    if schema.get("type") == "array":
        return f"array of {_kind(schema.get('items') or {})}"
    limits = [
        f"{words} {schema[key]}"
        for key, words in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("minLength", "at least"),
            ("maxLength", "at most"),
            ("pattern", "like"),
        )
        if key in schema
    ]
    return escape(" ".join([str(schema.get("type", "any")), *limits]))


def _table(caption: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    heads = "".join(f'<th scope="col">{name}</th>' for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return (
        f'<table tabindex="0"><caption>{caption}</caption><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table>"
    )


def _marked(text: str) -> str:
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
