"""What a device carries: no NumPy, no HTTP library before the first request, errors by name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from blendstream import localclient
from blendstream.localclient import LocalClient, PublishedResult, ResultCode, forget
from tests.localclient.support import LISTED, START, Gateway, ManualClock, device, head_list, limits

ROOT = Path(__file__).parents[2]

#: Imports the client where NumPy is not installed, and says what that loaded and took.
IMPORT = """
import json, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"numpy", "scipy", "msgspec"}:
            raise ImportError(f"{name} is not on devices")
sys.meta_path.insert(0, Missing())
import blendstream.localclient
loaded = sorted(sys.modules)
kilobytes = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([loaded, int(kilobytes[0])]))
"""

#: One whole report there, on the system's own dice.
REPORT = """
import sys, time
exec(sys.argv[3])
from blendstream.localclient import Limits, LocalClient
limits = Limits(epsilon_per_report=4.0, delta_per_report=1e-5, epsilon_per_period=4.0,
                delta_per_period=1e-5, period_s=28 * 86_400)
client = LocalClient(sys.argv[1], sys.argv[2], limits)
print(client.record("weather", "https://weather.example/").code, client.report_now().code)
assert not any(name.split(".")[0] == "numpy" for name in sys.modules)
"""


def test_importing_loads_no_numpy_and_no_network_and_stays_small() -> None:
    """An application pays for the import at every start, also of people who never take part."""
    import json

    ended = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded, kilobytes = json.loads(ended.stdout)

    assert not {name.partition(".")[0] for name in loaded} & {"numpy", "httpx", "asyncio", "ssl"}
    # 17 MB where Python alone takes 9; the bound leaves room for other builds of Python.
    assert kilobytes < 25_000


def test_a_whole_report_needs_no_numpy(gateway: Gateway, tmp_path: Path) -> None:
    import time

    now_s = int(time.time())
    gateway.show(
        head_list(window_start_s=now_s - 7_200, window_end_s=now_s, reports_until_s=now_s + 7_200)
    )
    block = IMPORT.partition("import blendstream.localclient")[0]
    ended = subprocess.run(
        [sys.executable, "-c", REPORT, gateway.url, str(tmp_path / "device"), block],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip

    assert ended.stdout == "kept sent\n", ended.stderr
    assert len(gateway.bodies) == 1


TYPED = [
    *("", " ", "\x00", "a\x07b", "\ud800", "x" * 5_000, "\u0315" * 1_000, "\u1e9e" * 200),
    *("weather", "\U0001f600", "\u3000", "' OR 1=1 --", "\u202e"),
]


def test_nothing_that_a_person_typed_makes_a_call_raise(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """An embedder calls `record` after every search, and will not guard it."""
    client = device(gateway, tmp_path, clock)
    result = PublishedResult(1, "blend", {}, ())
    kept = 0
    for text in TYPED:
        for query, url in ((text, "https://x.example/"), ("weather", text)):
            recorded = client.record(query, url)
            assert recorded.code in (ResultCode.KEPT, ResultCode.TEXT_REFUSED)
            kept += recorded.code is ResultCode.KEPT
        assert result.search(text) == result.complete(text) == []
    assert 0 < kept == client.status().records_held < 2 * len(TYPED)


def test_every_exception_that_an_embedder_may_meet_is_exported_and_in_the_guide() -> None:
    """What cannot be named cannot be caught."""
    raised = set()
    for path in (ROOT / "localclient").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                raised |= {node.exc.func.id} if isinstance(node.exc.func, ast.Name) else set()
    # A case that cannot be, as `localclient.budget` shows; and the guard of the package's name.
    raised -= {"AssertionError", "ImportError"}
    # A private one is caught in its own module.
    raised = {name for name in raised if not name.startswith("_")}
    guide = (ROOT / "docs/localclient.md").read_text()

    assert raised > {"ParameterError", "StorageRefused"}
    assert raised <= set(localclient.__all__)
    listed = set(re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE))
    errors = {
        name for name in localclient.__all__
        if isinstance(getattr(localclient, name), type)
        and issubclass(getattr(localclient, name), Exception)
    }  # fmt: skip
    assert errors - {"ClientRefused"} <= listed


def test_a_folder_whose_state_cannot_be_read_is_forgotten_and_still_refused(
    gateway: Gateway, tmp_path: Path, clock: ManualClock
) -> None:
    """Searches were to stay for ever where only the budget was lost."""
    for damage in (b"", b'damaged {"body": "a secret search"}', None):
        folder = tmp_path / str(damage and len(damage))
        clock.now_s = START
        device(gateway, folder, clock).record("a secret search", LISTED[0].url)
        if damage is None:
            (folder / "state").unlink()
        else:
            (folder / "state").write_bytes(damage)

        forget(folder)

        left = b"".join(path.read_bytes() for path in folder.iterdir())
        assert b"secret" not in left
        try:
            LocalClient(gateway.url, folder, limits())
        except localclient.StateUnreadable:
            continue
        raise AssertionError("a damaged folder was opened")
