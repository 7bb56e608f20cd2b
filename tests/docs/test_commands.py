"""Every command that a page shows runs in CI: here, or in the test that `SHOWN_BY` names."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import suppress
from itertools import repeat, takewhile
from pathlib import Path

import pytest

from blendstream.agents.cli import build_parser
from tests.docs.pages import REPOSITORY, defined_tests

#: The changelog tells about commands, decisions about why; neither is read to type them.
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
MAKEFILE = (REPOSITORY / "Makefile").read_text()
#: What a command begins with in a block that is not marked as `sh`; there every line is one.
TOOLS = (
    r"blendstream|make|pip|curl|python|spin|gcc|mkdocs|npm|docker|kubectl|kafka-[a-z-]+\.sh"
    r"|(?:\.venv/bin/)?localclient"
)
FIRST_SERVICE = (
    "test_the_pages_commands_lead_to_a_published_epoch_and_an_accepted_record_and_report"
)
DRY_RUN = "test_the_pages_command_and_code_show_what_would_be_sent"
GUIDE = "test_the_guide_of_the_client_works_as_printed_against_the_demo"
PRACTICE = "test_on_three_brokers_and_sentinel_the_doctor_has_nothing_to_fix_and_a_node_may_go"
HANGING = "test_the_runbooks_commands_end_a_hanging_transaction_and_abandon_the_lost_draw"
MODEL = "test_the_order_of_steps_releases_once_and_never_waits_for_ever"
SUBCOMMANDS = "test_operators_see_states_and_ledger_can_abandon_verify_and_rebuild"
WHOLE_SERVICE = "test_records_go_all_the_way_over_tls"

#: For each page: how a command begins, and the test that runs it. One that no entry covers fails.
SHOWN_BY = {
    "device-protocol.md": {
        "python tests/vectors/device/play.py": "test_every_client_passes_every_vector"
    },
    "first-service.md": dict.fromkeys(
        (
            "mkdir trial",
            "cd trial",
            "blendstream settings --sample trial",
            "blendstream stack --folder data",
            "blendstream keys new trial",
            "export TOKEN=$(blendstream tokens add trial-app",
            "blendstream doctor --wait-s",
            "blendstream run --settings",
            "blendstream simulate --epochs",
            "blendstream results",
            "blendstream epochs --settings",
        ),
        FIRST_SERVICE,
    ),
    "api.md": dict.fromkeys(
        (
            "curl -sS http://127.0.0.1:8080/v1/optin-records",
            "curl -sS http://127.0.0.1:8080/v1/head-lists/current",
            'python -c "',
            "curl -sS http://127.0.0.1:8080/v1/reports",
        ),
        FIRST_SERVICE,
    ),
    "integrating.md": {
        "localclient report --dry-run": DRY_RUN,
        "python tests/vectors/device/play.py": "test_every_client_passes_every_vector",
    },
    "localclient.md": dict.fromkeys(
        (
            "export GATEWAY=",
            "export LOCALCLIENT_TOKEN=",
            'trial="',
            ".venv/bin/localclient record",
            ".venv/bin/localclient report",
            ".venv/bin/localclient search",
            "curl -s $GATEWAY/v1/estimates/latest",
        ),
        GUIDE,
    ),
    # The test builds the wheel by the same backend, without pip.
    "demo.md": dict.fromkeys(
        (
            ".venv/bin/python -m pip wheel --no-deps",
            "pip install './blendstream-",
            "blendstream demo",
        ),
        "test_the_local_install_runs_the_demo",
    ),
    "install.md": dict.fromkeys(
        ("blendstream settings", "blendstream --help"), "test_the_settings_commands_run"
    ),
    "reading-results.md": {
        "pip install 'blendstream[pandas]'": "test_the_server_install_imports_every_module"
    },
    "evaluation.md": {
        "pip": "test_the_evaluation_brings_the_server_it_evaluates",
        "blendstream evaluate --log": "test_a_log_may_have_columns_and_parameters_of_its_own",
        "blendstream evaluate": "test_the_smoke_run_measures_every_experiment",
        "blendstream simulate --log": (
            "test_a_log_is_replayed_through_a_service_and_compared_with_its_truth"
        ),
        # The whole grid takes hours: a test holds the page to what it wrote.
        "python -m bench.blend_grid": "test_the_pages_tables_are_the_csv_files",
    },
    "fail-over.md": {
        "blendstream stack --brokers 3 --redis sentinel": PRACTICE,
        "export BLENDSTREAM_TOPICS_": PRACTICE,
        "blendstream doctor --settings": PRACTICE,
        "kill -9 PROCESS": PRACTICE,
        "blendstream run --settings": FIRST_SERVICE,
        "blendstream simulate >": FIRST_SERVICE,
        "blendstream epochs --settings settings.toml --watch": SUBCOMMANDS,
    },
    "released-once.md": {"spin": MODEL, "gcc": MODEL},
    "runbook.md": {
        "curl -s http://GATEWAY/v1/epochs": WHOLE_SERVICE,
        "curl -s http://GATEWAY/readyz": WHOLE_SERVICE,
        "blendstream doctor": FIRST_SERVICE,
        "blendstream epochs --watch": SUBCOMMANDS,
        "blendstream ledger": SUBCOMMANDS,
        "kafka-transactions.sh": HANGING,
        "blendstream epochs aborted": HANGING,
        # By the same request to the broker; the script is Kafka's own.
        "kafka-delete-records.sh": (
            "test_a_newer_frame_stops_the_partition_and_counts_what_lies_before"
        ),
    },
}

#: For each page: how a line begins that no test runs, and why.
NOT_RUN = {
    "first-service.md": dict.fromkeys(
        (". .venv/bin/activate", ". ../.venv/bin/activate"),
        "the test puts the environment that runs it in its place",
    ),
    "runbook.md": {"echo '{": "writes the file that the next line reads, with names to fill in"},
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
    "integrating.md": {"python": DRY_RUN},
    "localclient.md": {"python": "test_every_code_block_of_the_guide_runs"},
    "paper.md": {"python": "test_the_librarys_example_runs_and_says_what_it_should"},
    "reading-results.md": {"python": "test_the_pages_code_and_every_call_in_its_table_run"},
    "webclient.md": {"js": "test_the_guides_code_runs_and_each_call_returns_a_value"},
}


def shell_commands(page: Path) -> list[str]:
    """The commands in blocks of code: fenced as `sh` or without a language, or indented."""
    text = page.read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    typed = [line for language, code in fenced if language == "sh" for line in whole_lines(code)]
    lines = [line for language, code in fenced if language == "" for line in code.splitlines()]
    lines += re.findall(r"^ {4}(\S.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.M)
    typed += [line for line in lines if re.match(rf"({TOOLS}) ", line)]
    return [line.partition("  #")[0].strip() for line in typed]


def whole_lines(code: str) -> list[str]:
    """The lines of a shell script; what goes on after a backslash or within quotes is one."""
    lines: list[str] = []
    begun = ""
    for line in code.splitlines():
        begun += f"{line}\n"
        try:
            shlex.split(begun, comments=True)
        except ValueError:  # a quotation that is still open
            continue
        if line.endswith("\\"):
            continue
        if begun.strip():
            lines.append(begun.strip())
        begun = ""
    assert begun == "", f"a quotation must be closed: {begun}"
    return lines


def inline_commands(page: Path) -> list[str]:
    """Commands of ours within sentences, without a line's end."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`(blendstream [^`]+)`", text)
    return [re.sub(r"\s+", " ", command) for command in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_in_a_block_of_code_is_run_by_a_test(page):
    """A reader copies it; a command that no test runs is wrong sooner or later."""
    shown, not_run = SHOWN_BY.get(page.name, {}), NOT_RUN.get(page.name, {})
    commands = [line for line in shell_commands(page) if not line.startswith("make ")]
    unrun = [line for line in commands if not any(map(line.startswith, {**shown, **not_run}))]

    assert unrun == [], "add the test that runs it to SHOWN_BY"
    assert set(shown.values()) <= defined_tests()
    assert all({**shown, **not_run}), "an empty beginning would cover every command"
    known = [*shown, *not_run]
    assert [start for start in known if not any(map(str.startswith, commands, repeat(start)))] == []


def test_every_line_of_a_shell_block_is_a_command_and_only_its_end_begins_another():
    """`echo`, `TOKEN=$(…)`, `npm` and `docker` were passed over, so no test had to run them."""
    code = "T=$(date)  # it's now\n\ncurl a \\\n  -d '{\n}'\npython -c \"\nimport x\"\ndocker run\n"

    assert [line.split()[0] for line in whole_lines(code)] == [
        "T=$(date)", "curl", "python", "docker"
    ]  # fmt: skip


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_file_extra_and_script_that_a_sentence_runs_exists(page):
    """`python -m bench.growth` in a sentence is typed as well, and its module may be renamed."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    missing = [
        command
        for command in re.findall(r"`((?:python|pip|npm) [^`]+)`", text)
        if not runnable(shlex.split(command))
    ]

    assert missing == []


def runnable(words: list[str]) -> bool:
    """Whether what these words name is there."""
    if "&&" in words:
        end = words.index("&&")
        return runnable(words[:end]) and runnable(words[end + 1 :])
    modules, files, known = [], [], False
    match words:
        case ["python", "-m", "bench", *names]:
            modules = [f"bench.{name}" for name in takewhile(str.isidentifier, names)]
        case ["python", "-m", module, *_]:
            modules = [module]
        case ["python", file, *_] | ["pip", "install", "-r", file]:
            files = [file]
        case ["pip", "install", what]:
            project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
            named = re.fullmatch(r"blendstream(?:\[([a-z]+)\])?", what)
            known = bool(named and named[1] in (None, *project["optional-dependencies"]))
        case ["npm", "install"]:
            known = True
        case ["npm", "run", script]:
            package = json.loads((REPOSITORY / "webclient" / "package.json").read_text())
            known = script in package["scripts"]
    there = [importlib.util.find_spec(module) is not None for module in modules]
    there += [(REPOSITORY / file).is_file() for file in files]
    return all(there) if there else known


@pytest.mark.parametrize(
    "command",
    [
        "python -m bench no_such_benchmark", "python -m bench.gone", "python docs/gone.py",
        "pip install 'blendstream[gone]'", "pip install -r gone.txt", "npm run gone",
        "npm install && npm run gone",
    ],
)  # fmt: skip
def test_what_is_not_there_is_noticed(command):
    assert not runnable(shlex.split(command))


@pytest.mark.parametrize("command", shell_commands(REPOSITORY / "docs" / "install.md"))
def test_the_settings_commands_run(command, tmp_path):
    """With the settings that the samples give."""
    words = command.split()
    assert words[0] == "blendstream"
    secrets = tmp_path / "secrets"
    secrets.write_text(f"2026-a={'00' * 32}\n")
    secrets.chmod(0o600)
    ended = subprocess.run(
        [sys.executable, "-m", "blendstream.agents.cli", *words[1:]],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}",
            "BLENDSTREAM_SETTINGS": str(REPOSITORY / "deploy/settings/basic.toml"),
            "BLENDSTREAM_KEYS_MASTER_SECRETS_FILE": str(secrets),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip()
