"""docs/data-flow.md walks through files that exist, and the walk stays short."""

import re
import runpy
from pathlib import Path

from blendstream.streams.kafka.topics import Topics
from blendstream.streams.names import InputStream
from blendstream.streams.settings import Settings
from tests.service.settings import service_values

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
    rooms = {
        "blender/randomizers",
        "blender/over_time",
        "streams/wire",
        "streams/tables",
        "streams/releases",
    }
    processes = {"localclient", "agents/gateway", "agents/worker", "agents/jobs"}

    assert rooms | processes <= passed


def test_the_page_says_how_many_files_a_report_passes_and_the_way_does_not_grow():
    """The figures that `python docs/data_flow.py` prints."""
    passed = FLOW["way_of_a_report"](PAGE)
    files, jumps = len(passed), len(FLOW["jumps"](passed))

    assert f"{files} files, with {jumps} imports between them" in " ".join(PAGE.split())
    assert 30 < files <= 50
    assert jumps <= 99


def test_the_way_has_every_file_that_judges_counts_or_estimates_a_report():
    """Story: the filtered estimate was not on the page and the count looked shorter than the
    way."""
    passed = set(FLOW["way_of_a_report"](PAGE))

    assert {
        "agents/gateway/submit/report_submissions.py",
        "blender/values/answer_shape.py",
        "blender/randomizers/subset_or_none_estimates.py",
        "agents/jobs/filter_memory.py",
        "streams/releases/filtered_estimates.py",
        "blender/over_time/publication_filter.py",
        "blender/over_time/filter/epoch_filter.py",
    } <= passed


def test_the_input_streams_of_the_page_are_those_of_the_code():
    """A search for the name of an input stream finds its topic, agent, metrics and tests."""
    sentence = PAGE.partition("input streams has one name")[2].partition(")")[0]

    assert re.findall(r"`([a-z_]+)`", sentence) == [stream.value for stream in InputStream]


def test_topics_that_readme_and_walk_name_are_the_services_topics():
    """A reader who looks for a topic must find it on the broker."""
    settings = service_values(prefix="blender")
    topics = {topic.name for topic in Topics(Settings.from_values(settings)).all()}
    for page in (PAGE, (REPOSITORY / "README.md").read_text()):
        text = re.sub(r"^```python\n.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
        named = set(re.findall(r"(?<![\w/.])blender\.[a-z][a-z_-]*(?:\.v1)?", text))
        assert named - topics == set()
        assert "blender.releases" in named
