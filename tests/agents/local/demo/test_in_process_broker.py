"""The broker that stands in for Kafka reaches nobody but the demo."""

import re
import subprocess
import sys
from pathlib import Path

from blendstream.streams.settings import declared_settings

REPOSITORY = Path(__file__).parents[4]


def test_every_name_that_it_replaces_is_still_there():
    """A name that moved would leave the demo half on stand-ins; that stops its start."""
    code = (
        "from blendstream.agents.local.demo.in_process_broker import InProcessBroker\n"
        "InProcessBroker.stand_in()\n"
        "import blendstream.streams.releases.log as log\n"
        "import blendstream.agents.gateway.gateway_process as server\n"
        "print(log.Producer.__name__, server.GatewayProcess._compare_clocks.__name__)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )

    assert ended.stdout.split() == ["_PlainProducer", "_look_away"], ended.stderr


def test_only_the_demo_knows_of_it_and_no_setting_leads_to_it():
    """Without transactions nothing is released once: it must never serve real data."""
    users = [
        str(file.relative_to(REPOSITORY))
        for folder in ("agents", "blender", "localclient", "streams")
        for file in (REPOSITORY / folder).rglob("*.py")
        if re.search(r"in_process_broker|InProcessBroker", file.read_text())
    ]

    assert sorted(users) == [
        "agents/local/demo/in_process_broker.py",
        "agents/local/demo/service.py",
    ]
    assert not [d.name for d in declared_settings() if "process" in d.name or "mock" in d.name]
