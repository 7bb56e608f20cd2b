"""Every command that a page shows runs in CI: here, or in the test that `SHOWN_BY` names."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agents.cli import build_parser
from tests.docs.pages import REPOSITORY, defined_tests

#: The changelog tells about commands, decisions about why; neither is read to type them.
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
MAKEFILE = (REPOSITORY / "Makefile").read_text()
TOOLS = (
    r"blendstream|make|pip|curl|python|spin|gcc|mkdocs|kafka-[a-z-]+\.sh"
    r"|(?:\.venv/bin/)?localclient"
)
FIRST_SERVICE = (
    "test_the_pages_commands_lead_to_a_published_epoch_and_an_accepted_record_and_report"
)
MODEL = "test_the_order_of_steps_releases_once_and_never_waits_for_ever"
VERBS = "test_operators_see_states_and_ledger_can_abandon_verify_and_rebuild"
WHOLE_SERVICE = "test_records_go_all_the_way_over_tls"

#: For each page: how a command begins, and the test that runs it.
SHOWN_BY = {
    "first-service.md": {"": FIRST_SERVICE},
    "api.md": {"": FIRST_SERVICE},
    "localclient.md": {"": "test_the_guide_of_the_client_works_as_printed_against_the_demo"},
    "demo.md": {"": "test_the_local_install_runs_the_demo"},
    "install.md": {"blendstream": "test_the_settings_commands_run"},
    "reading-results.md": {"pip": "test_the_server_install_imports_every_module"},
    "evaluation.md": {
        "pip": "test_the_evaluation_brings_the_server_it_evaluates",
        "blendstream evaluate": "test_the_smoke_run_measures_every_experiment",
        # The whole grid takes hours: a test holds the page to what it wrote.
        "python -m bench.blend_grid": "test_the_pages_tables_are_the_csv_files",
    },
    "fail-over.md": {
        # The servers that this command starts; the test starts them by the same classes.
        "blendstream stack": "test_a_primary_replaced_by_sentinel",
        "blendstream doctor": FIRST_SERVICE,
        "blendstream epochs --watch": VERBS,
    },
    "released-once.md": {"spin": MODEL, "gcc": MODEL},
    "runbook.md": {
        "curl -s http://GATEWAY/v1/epochs": WHOLE_SERVICE,
        "curl -s http://GATEWAY/readyz": WHOLE_SERVICE,
        "blendstream doctor": FIRST_SERVICE,
        "blendstream epochs --watch": VERBS,
        "blendstream ledger": VERBS,
        "blendstream epochs unblock": "test_unblocking_keeps_a_release_that_hangs_under_its_own_id",
        # By the same request to the broker; the script is Kafka's own.
        "kafka-delete-records.sh": (
            "test_a_newer_frame_stops_the_partition_and_counts_what_lies_before"
        ),
    },
}


#: For each page with code in another language: the test that runs it.
CODE_RUN_BY = {
    "api.md": {
        "python": "test_the_apis_python_mints_a_token_that_gateways_take",
        "js": "test_the_documented_code_mints_the_tokens_that_gateways_take",
    },
    "change-and-restore.md": {
        "python": "test_the_operators_python_says_how_many_records_to_ask_for"
    },
    "localclient.md": {"python": "test_every_code_block_of_the_guide_runs"},
    "paper.md": {"python": "test_the_librarys_example_runs_and_says_what_it_should"},
    "reading-results.md": {"python": "test_the_pages_code_and_every_call_in_its_table_run"},
    "webclient.md": {"js": "test_the_guides_code_runs_and_each_call_returns_a_value"},
}


def shell_commands(page: Path) -> list[str]:
    """The commands in blocks of code: fenced as `sh` or without a language, or indented."""
    text = page.read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [
        line for language, code in fenced if language in ("", "sh") for line in code.splitlines()
    ]
    lines += re.findall(r"^ {4}(\S.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.M)
    return [line.partition("  #")[0].strip() for line in lines if re.match(rf"({TOOLS}) ", line)]


def inline_commands(page: Path) -> list[str]:
    """Commands of ours within sentences, without a line's end."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`(blendstream [^`]+)`", text)
    return [re.sub(r"\s+", " ", command) for command in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_block_of_code_is_run_by_a_test(page):
    """A reader copies it; a command that no test runs is wrong sooner or later."""
    shown = SHOWN_BY.get(page.name, {})
    commands = [line for line in shell_commands(page) if not line.startswith("make ")]
    unrun = [line for line in commands if not any(map(line.startswith, shown))]

    assert unrun == [], "add the test that runs it to SHOWN_BY"
    assert set(shown.values()) <= defined_tests()
    idle = [start for start in shown if not any(line.startswith(start) for line in commands)]
    assert idle == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_code_is_run_by_a_test(page):
    languages = set(re.findall(r"^```(\w+)$", page.read_text(), re.MULTILINE)) - {"sh", "json"}
    run_by = CODE_RUN_BY.get(page.name, {})

    assert languages == set(run_by), "add the test that runs it to CODE_RUN_BY"
    assert set(run_by.values()) <= defined_tests()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_is_named_exists(page):
    """`.ci/run` runs `make check` and `make test`, others are parts of it or longer."""
    named = set(re.findall(r"`make ([a-z][a-z-]*)", page.read_text()))
    named |= {line.split()[1] for line in shell_commands(page) if line.startswith("make ")}
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))

    assert named - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_sentence_is_one_that_the_command_line_takes(page, capsys):
    """Verbs and options that were renamed stay behind in sentences."""
    parser = build_parser()
    for command in inline_commands(page):
        filled = re.sub(r"\bE\b", "41", command.partition(" <")[0])
        words = shlex.split(filled.replace("TIME", "2026-11-16T19:00"))[1:]
        with suppress(SystemExit):
            parser.parse_args(words)
        complaint = capsys.readouterr().err
        # A verb may be named without what it needs; an option may not be wrong.
        if "arguments are required" not in complaint or any("-" in word for word in words):
            assert complaint == "", command


@pytest.mark.parametrize("command", shell_commands(REPOSITORY / "docs" / "install.md"))
def test_the_settings_commands_run(command, tmp_path):
    """With the settings that the samples give."""
    words = command.split()
    assert words[0] == "blendstream"
    secrets = tmp_path / "secrets"
    secrets.write_text(f"2026-a={'00' * 32}\n")
    secrets.chmod(0o600)
    ended = subprocess.run(
        [sys.executable, "-m", "agents.cli", *words[1:]],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "BLENDSTREAM_SETTINGS": str(REPOSITORY / "deploy/settings/basic.toml"),
            "BLENDSTREAM_KEYS_MASTER_SECRETS_FILE": str(secrets),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()
