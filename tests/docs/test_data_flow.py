"""docs/data-flow.md walks through files that exist, and the walk stays short."""

import re
import runpy
from pathlib import Path

from streams.settings import Settings
from streams.topics import Topics
from tests.counting import settings_values

REPOSITORY = Path(__file__).parents[2]
FLOW = runpy.run_path(str(REPOSITORY / "docs" / "data_flow.py"))
PAGE = FLOW["PAGE"].read_text()


def test_every_file_that_the_walk_names_exists():
    """A walk with a missing step is worse than none; a path without its folder helps no one."""
    named = FLOW["files_named"](PAGE)

    assert len(named) > 60
    assert [file for file in named if not (REPOSITORY / file).is_file()] == []


def test_every_folder_that_a_report_passes_is_on_the_walk():
    """Steps cannot drop out unnoticed: each process and each room has its part."""
    passed = {str(Path(file).parent) for file in FLOW["way_of_a_report"](PAGE)}
    rooms = {"blender", "streams/wire", "streams/stores", "streams/releases"}
    processes = {"localclient", "agents/gateway", "agents/worker", "agents/jobs"}

    assert rooms | processes <= passed


def test_a_report_passes_few_files_with_few_jumps_between_them():
    """The figure that `python docs/data_flow.py` prints; a way that grows is noticed here."""
    passed = FLOW["way_of_a_report"](PAGE)

    assert 30 < len(passed) <= 50
    assert len(FLOW["jumps"](passed)) <= 95


def test_topics_that_readme_and_walk_name_are_the_services_topics():
    """A reader who looks for a topic must find it on the broker."""
    settings = settings_values("kafka://127.0.0.1:1", "redis://host", "blender", 1)
    topics = {topic.name for topic in Topics(Settings.from_values(settings)).all()}
    for page in (PAGE, (REPOSITORY / "README.md").read_text()):
        text = re.sub(r"^```python\n.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
        named = set(re.findall(r"(?<![\w/.])blender\.[a-z][a-z_-]*(?:\.v1)?", text))
        assert named - topics == set()
        assert "blender.releases" in named
