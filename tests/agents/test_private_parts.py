"""Private parts of other people's libraries are reached from one room for each library.

They change without notice. When a bound in pyproject.toml is raised, the adapter's docstring says
what to look at, and a test fails until it names the new range.
"""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Of each library: who may reach its private parts; those of uvicorn nobody may. Whoever adds a
#: module here says so in its docstring, with the version range.
ADAPTERS = {
    "faust-streaming": ("agents/worker/faust_app.py",),
    "aiokafka": ("streams/kafka/aiokafka_internals.py",),
    "confluent-kafka": ("agents/local/demo/in_process_broker.py",),
}
IMPORTED_AS = {"faust": "faust-streaming", "mode": "faust-streaming", "uvicorn": "uvicorn"} | {
    name.replace("-", "_"): name for name in ADAPTERS if name != "faust-streaming"
}
#: What the libraries document, and every module may import.
PUBLIC = {
    "faust", "faust.auth", "faust.exceptions", "faust.types",
    "aiokafka", "aiokafka.admin", "aiokafka.errors", "aiokafka.structs",
    "uvicorn",
    "confluent_kafka", "confluent_kafka.admin",
}  # fmt: skip
#: Of the standard library, by whose documentation they are public.
DOCUMENTED = {"os._exit", "sys._getframe", "_replace"}


@functools.cache
def modules() -> dict[str, ast.Module]:
    return {
        str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8"))
        for room in ("agents", "streams", "blender", "localclient", "evaluation")
        for file in sorted((ROOT / room).rglob("*.py"))
    }


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of everything imported from these libraries."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in IMPORTED_AS:
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from ((name, "") for name in names if name.split(".")[0] in IMPORTED_AS)


def defined(trees: dict[str, ast.Module]) -> set[str]:
    """Every name that our own code defines or assigns on itself."""
    own: set[str] = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
    return own


def reached(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, name and text of every access to an attribute that begins with one underscore."""
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr"):
            given = node.args[1]
            name = given.value if isinstance(given, ast.Constant) else ""
        if name.startswith("_") and not name.startswith("__"):
            yield node.lineno, name, ast.unparse(node)


def test_nobody_else_imports_what_a_library_does_not_document():
    for path, tree in modules().items():
        for module, name in imported(tree):
            library = IMPORTED_AS[module.split(".")[0]]
            private = module not in PUBLIC or name.startswith("_")
            assert not private or path in ADAPTERS.get(library, ()), (
                f"{path} imports {module} {name}"
            )


def test_nobody_else_reaches_an_attribute_that_is_not_our_own():
    """`KafkaError._TIMED_OUT` and its like are librdkafka's own error codes, and documented."""
    trees = modules()
    own = defined(trees)
    adapters = {path for paths in ADAPTERS.values() for path in paths}
    for path, tree in trees.items():
        if path in adapters:
            continue
        for line, name, text in reached(tree):
            documented = text in DOCUMENTED or name in DOCUMENTED or text == f"KafkaError.{name}"
            assert documented or name in own, f"{path}:{line} reaches {text}"


def test_nobody_else_makes_a_class_of_a_library_its_own():
    """A subclass can override what is private by a name that looks like ours."""
    for path, tree in modules().items():
        names = {name or module: module for module, name in imported(tree)}
        for node in ast.walk(tree):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                module = names.get(ast.unparse(base).split(".")[0])
                if module is not None:
                    library = IMPORTED_AS[module.split(".")[0]]
                    assert path in ADAPTERS.get(library, ()), (
                        f"{path} subclasses {ast.unparse(base)}"
                    )


@pytest.mark.parametrize("library", ADAPTERS)
def test_an_adapter_names_the_versions_it_was_tested_with(library: str):
    """The very words of pyproject.toml: a raised bound leads here, and from here to the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    [requirement] = {w for w in wanted if w.startswith((f"{library}>", f"{library}="))}
    for path in ADAPTERS[library]:
        told = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) or ""
        assert f"Tested with {requirement}" in " ".join(told.split()), path


def test_the_rules_find_what_they_forbid():
    """Or a rule that fits nothing would pass for ever."""
    tree = ast.parse(
        "from aiokafka.client import AIOKafkaClient\n"
        "import faust\n"
        "class App(faust.App): ...\n"
        "def f(x): return x._sender, getattr(x, '_thread')\n"
    )
    assert ("aiokafka.client", "AIOKafkaClient") in set(imported(tree))
    assert {name for _, name, _ in reached(tree)} == {"_sender", "_thread"}
