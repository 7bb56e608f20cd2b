"""Run benchmarks by name, or all of them: `python -m bench [NAME ...]`."""

import importlib
import os
import pkgutil
import platform
import sys
import time

import bench


def main(wanted: list[str]) -> int:
    """Run the benchmarks named, or all; say first what machine this is."""
    names = [module.name for module in pkgutil.iter_modules(bench.__path__)]
    found = [
        name
        for name in names
        if not name.startswith("_") and hasattr(importlib.import_module(f"bench.{name}"), "main")
    ]
    if unknown := sorted(set(wanted) - set(found)):
        print(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(found)}")
        return 2
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    for name in wanted or found:
        module = importlib.import_module(f"bench.{name}")
        print(f"\n== {name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        began = time.perf_counter()
        module.main()
        print(f"   ({time.perf_counter() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
