"""Who may import what, where a linter cannot see it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

BLOCKED = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name + " is not installed on a device")

sys.meta_path.insert(0, Absent())
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, {package!r} + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
SERVER_ONLY = [
    *("aiokafka", "confluent_kafka", "cryptography", "dp_accounting", "faust", "matplotlib"),
    *("mode", "msgspec", "opendp", "prometheus_client", "redis", "scipy", "starlette", "uvicorn"),
]


@pytest.mark.parametrize(
    "package", ["blendstream.blender", "blendstream.localclient", "blendstream.streams.wire"]
)
def test_what_a_device_needs_imports_without_the_servers_libraries(package):
    """Base install is httpx; one import too many would break every device."""
    blocked = [*SERVER_ONLY, "numpy"] if package == "blendstream.localclient" else SERVER_ONLY
    code = BLOCKED.format(blocked=blocked, package=package)

    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr


def test_importing_streams_imports_nothing_else():
    """A device imports `streams.wire`, and with it `streams/__init__.py`."""
    tree = ast.parse((REPOSITORY / "streams/__init__.py").read_text())

    assert [type(node) for node in tree.body] == [ast.Expr, ast.If], "a docstring and its guard"
