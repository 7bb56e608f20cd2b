"""The guide for embedding teams: every code block runs, in order, against a real HTTP server."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from tests.localclient.publications import publication
from tests.localclient.support import Gateway, head_list

GUIDE = Path(__file__).parents[2] / "docs" / "localclient.md"


def test_every_code_block_of_the_guide_runs(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = int(time.time())
    gateway.show(
        head_list(window_start_s=now_s - 7_200, window_end_s=now_s, reports_until_s=now_s + 7_200)
    )
    (tmp_path / "estimates.json").write_bytes(publication().to_bytes())
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, object] = {}
    for block in blocks:
        code = block.replace("https://gateway.example", gateway.url)
        code = code.replace("/var/lib/your-app", str(tmp_path))
        exec(compile(code, str(GUIDE), "exec"), names)

    said = capsys.readouterr().out
    assert "waiting this device reports at a random time" in said
    assert "0.250 [0.240, 0.260] https://sun.example/" in said
    assert "weather" in said
    background = names["report_in_the_background"]
    with pytest.raises(TimeoutError):
        asyncio.run(background())  # type: ignore[operator]
    assert gateway.posted == []
