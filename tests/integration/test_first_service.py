"""A newcomer's own service, by the commands of docs/first-service.md and docs/api.md as they stand.

Only the ports, the length of a window and the number of people differ, so that it is quick and can
run beside other services.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agents.local.ports import free_port

ROOT = Path(__file__).parents[2]
#: From an installed checkout to the first results, counted in lines that one types.
MOST_COMMANDS = 10
#: Redis and Kafka are given time to start where a person would wait for "ready".
STACK_IS_READY = 'while ! grep -q "ready after" stack.txt; do sleep 0.2; done'
#: Variables win over the file of settings.
SHORTER = {"EPOCH_WINDOW_S": "9", "EPOCH_GRACE_S": "4", "EPOCH_ALLOWED_SKEW_S": "0.4"}
METRICS = ("GATEWAY_METRICS_PORT", "WORKER_METRICS_PORT", "JOBS_METRICS_PORT")


def shell_blocks(page: str, heading: str = "") -> list[str]:
    """The shell commands of a page, or of one of its sections."""
    text = (ROOT / "docs" / page).read_text()
    if heading:
        text = re.split(r"^#+ ", text.partition(f"{heading}\n")[2], flags=re.MULTILINE)[0]
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_it_takes_no_more_than_ten_commands():
    """Four rounds of editing settings came before the first epoch."""
    lines = [line for block in shell_blocks("first-service.md") for line in block.splitlines()]

    assert len(lines) <= MOST_COMMANDS


@pytest.mark.integration
@pytest.mark.timeout(280)
def test_the_pages_commands_lead_to_a_published_epoch_and_an_accepted_record_and_report(tmp_path):
    """Every command is run; none may fail, and what they leave running ends with them."""
    blocks = shell_blocks("first-service.md")
    looking = blocks.pop()
    own = shell_blocks("api.md", "### Try it")
    assert len(own) == 2
    script = "\n".join([*blocks, *own, "echo", looking])
    script = script.replace(
        ". .venv/bin/activate", f"export PATH={Path(sys.executable).parent}:$PATH"
    )
    script = script.replace("16379 &", f"16379 2> stack.txt &\n{STACK_IS_READY}")
    script = script.replace("--epochs 1", "--epochs 1 --people 3000")
    script = re.sub(
        r"blendstream (simulate|results)", r"\g<0> --server http://127.0.0.1:8080", script
    )
    ports = {usual: str(free_port()) for usual in ("19092", "16379", "8080")}
    for usual, free in ports.items():
        script = script.replace(usual, free)
    given = {
        "KAFKA_URL": f"kafka://127.0.0.1:{ports['19092']}",
        "REDIS_URL": f"redis://127.0.0.1:{ports['16379']}/0",
        "GATEWAY_PORT": ports["8080"],
        **{name: str(free_port()) for name in METRICS},
        **SHORTER,
    }
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_URL")}
    environment |= {f"BLENDSTREAM_{name}": value for name, value in given.items()}
    ending = "trap 'kill %2; wait %2; kill %1; wait' EXIT\nset -e\n"

    ended = subprocess.run(
        ["bash", "-c", ending + script],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=270,
    )  # fmt: skip

    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-6000:]}"
    assert "nothing to fix." in ended.stdout
    assert re.search(r"^epoch \d+ published, complete: ", ended.stdout, re.MULTILINE)
    assert ended.stdout.count('{"status":"accepted"}') == 2, ended.stdout
    assert re.search(r"% +weather tomorrow → https://weather-tomorrow.example/1", ended.stdout)
    assert re.search(r"budget: .* epochs of this period spent", ended.stdout)
    assert f"address=http://127.0.0.1:{ports['8080']}/" in ended.stderr.replace('": "', "=")
