"""Run benchmarks and write their sections of docs/benchmarks.md.

python -m bench                          all of them: the whole page from one run
python -m bench NAME [NAME ...]          some, and only their sections
python -m bench NAME --option ...        one, with its options
python -m bench --page                   none: write the page again from the stored results
"""

import importlib
import shlex
import sys
import time
from dataclasses import replace

from bench._page import GROUPS, PAGE, Result, page, store


def main(words: list[str]) -> int:
    """Run the benchmarks named, or all."""
    if words == ["--page"]:
        PAGE.write_text(page())
        return 0
    found = [name for names in GROUPS.values() for name in names]
    options = next((words[i:] for i, word in enumerate(words) if word.startswith("-")), [])
    wanted = words[: len(words) - len(options)]
    if unknown := sorted(set(wanted) - set(found)):
        print(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(found)}")
        return 2
    if options and len(wanted) != 1:
        print("options belong to one benchmark: python -m bench NAME --option ...")
        return 2
    for name in wanted or found:
        module = importlib.import_module(f"bench.{name}")
        result = Result.begin(shlex.join(["python", "-m", "bench", name, *options]))
        began = time.perf_counter()
        print(f"\n== {name}: {module.TITLE} ({result.machine})", flush=True)
        tables = module.main(options) if options else module.main()
        if tables and not hasattr(module, "SHOWN_IN"):
            store(name, replace(result, tables=tables))
        print(f"   ({time.perf_counter() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
