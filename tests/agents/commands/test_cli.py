"""The command line explains itself and fails with one clear message."""

import json
import re
import subprocess
import sys

import pytest

from blendstream.agents import cli


def test_the_help_names_every_verb_with_what_it_does(capsys):
    """It is the first page a newcomer reads."""
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])

    shown = capsys.readouterr().out
    for verb in cli.SUBCOMMANDS:
        assert verb.name in shown
        assert verb.sentence in " ".join(shown.split())


@pytest.mark.parametrize("verb", [verb.name for verb in cli.SUBCOMMANDS])
def test_every_verb_has_help_of_its_own(verb, capsys):
    """A verb's module is only loaded when used, so a broken one would go unnoticed."""
    with pytest.raises(SystemExit, match="0"):
        cli.main([verb, "--help"])

    assert len(capsys.readouterr().out.splitlines()) > 3


def test_without_a_verb_the_help_is_shown_and_the_exit_code_tells(capsys):
    """A script that forgot the verb must not look as if it had worked."""
    assert cli.main([]) == 2
    assert "first steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--settings", "FILE", "keys", "list"],
        ["keys", "--settings", "FILE", "list"],
        ["keys", "list", "--settings", "FILE"],
        ["epochs", "abandon", "41", "--settings", "FILE", "--reason", "a drill"],
        ["worker", "--settings", "FILE"],
    ],
    ids=" ".join,
)
def test_the_settings_file_may_be_named_before_or_after_the_verb(words, tmp_path, capsys):
    """An option that is common to all verbs is typed where one thinks of it."""
    file = str(tmp_path / "none.toml")

    assert cli.main([file if word == "FILE" else word for word in words]) == 1
    assert f"No such file or directory for {file}" in capsys.readouterr().err


def test_help_needs_no_server_libraries():
    """Importing Faust takes a second; `--help` should not."""
    code = (
        "import sys; from blendstream.agents.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*{'faust', 'aiokafka', 'redis', 'opendp'} & set(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stderr.strip() == ""


def test_settings_shows_values_origins_and_sentences_and_masks_secrets(
    setting_values, monkeypatch, capsys
):
    """An operator asks: what is it set to, and who set it?"""
    secret = "5e" * 32
    monkeypatch.setenv("BLENDSTREAM_KEYS_MASTER_SECRETS", f"test={secret}")
    for name in setting_values.keys() - {"keys.master_secrets"}:
        variable = f"BLENDSTREAM_{name.replace('.', '_').upper()}"
        monkeypatch.setenv(variable, str(setting_values[name]))

    assert cli.main(["settings"]) == 0

    shown = capsys.readouterr().out
    assert "period_s = 31536000   (BLENDSTREAM_BUDGET_PERIOD_S)" in shown
    assert "window_s = 86400   (default)" in shown
    assert "Length of an epoch's window, in seconds. BLENDSTREAM_EPOCH_WINDOW_S" in shown
    assert "master_secrets = test=***   (BLENDSTREAM_KEYS_MASTER_SECRETS)" in shown
    assert secret not in shown


def test_bad_settings_end_with_the_problems_and_a_failing_exit_code(monkeypatch, capsys):
    """Nothing starts on settings that are wrong."""
    for variable in ("KAFKA_URL", "REDIS_URL"):
        monkeypatch.delenv(variable, raising=False)

    assert cli.main(["settings"]) == 1

    said = capsys.readouterr()
    assert "blendstream: 10 settings must be corrected" in said.err
    assert "budget.client_epsilon_limit is required and has no default" in said.err
    assert "optin_epsilon_limit = (must be given)   (not given)" in said.out


@pytest.fixture
def file_of_settings(tmp_path, monkeypatch):
    """Some settings that were given, one of them wrong."""
    for variable in ("KAFKA_URL", "REDIS_URL"):
        monkeypatch.delenv(variable, raising=False)
    file = tmp_path / "settings.toml"
    file.write_text(
        '[kafka]\nurl = "kafka://user:hunter2@kafka-1:9092"\nsasl_password = 7\n'
        '[epoch]\nwindow_s = "a day"\ngrace_s = 30\n'
    )
    file.chmod(0o600)
    return str(file)


def test_wrong_settings_are_shown_with_the_values_that_were_given(file_of_settings, capsys):
    """The defaults were shown instead, with which nobody finds a mistake; never a secret."""
    assert cli.main(["settings", "--settings", file_of_settings]) == 1

    said = capsys.readouterr()
    assert f"window_s = a day   ({file_of_settings})" in said.out
    assert f"grace_s = 30.0   ({file_of_settings})" in said.out
    assert f"url = kafka://user:***@kafka-1:9092   ({file_of_settings})" in said.out
    assert f"sasl_password = ***   ({file_of_settings})" in said.out
    assert "epoch.window_s must be an integer, got 'a day'" in said.err
    assert "hunter2" not in said.out + said.err


def test_settings_shows_one_section_or_only_what_was_given(file_of_settings, capsys):
    """All of them are three screens."""
    cli.main(["settings", "epoch", "--settings", file_of_settings])
    section = capsys.readouterr().out
    cli.main(["settings", "--changed", "--settings", file_of_settings])
    changed = capsys.readouterr().out

    assert "minimum_participants" in section
    assert "[kafka]" not in section
    assert len([line for line in changed.splitlines() if " = " in line]) == 4
    assert cli.main(["settings", "epochs", "--settings", file_of_settings]) == 1
    assert "a section must be one of kafka, redis, budget" in capsys.readouterr().err


def test_settings_for_programs_name_the_problems_too(file_of_settings, capsys):
    assert cli.main(["settings", "epoch", "--json", "--settings", file_of_settings]) == 1

    found = json.loads(capsys.readouterr().out)
    values = {setting["name"]: setting for setting in found["settings"]}
    assert values["epoch.window_s"]["value"] == "a day"
    assert values["epoch.window_s"]["origin"] == file_of_settings
    assert values["epoch.allowed_skew_s"]["origin"] == "default"
    assert any(problem.startswith("epoch.window_s must be") for problem in found["problems"])


def test_settings_for_programs_are_numbers_lists_truth_values_and_null(
    setting_values, monkeypatch, capsys
):
    """Every value was text: "True", "4", and a program had to guess what it meant."""
    secret = "5e" * 32
    given = {**setting_values, "keys.master_secrets": f"test={secret}"}
    given |= {"redis.url": "redis://me:hunter2@r:6379/0", "budget.client_delta_limit": "inf"}
    for name, value in given.items():
        monkeypatch.setenv(f"BLENDSTREAM_{name.replace('.', '_').upper()}", str(value))

    cli.main(["settings", "--json"])

    printed = capsys.readouterr().out
    found = json.loads(printed, parse_constant=pytest.fail)
    values = {setting["name"]: setting["value"] for setting in found["settings"]}
    assert values["topics.allow_single_broker"] is False
    assert values["epoch.window_s"] == 86_400
    assert values["privacy.epsilon"] == 4.0
    assert values["gateway.token_file"] is None
    assert values["gateway.cors_origins"] == []
    assert values["keys.master_secrets"] == {"test": "***"}
    assert values["redis.url"] == "redis://me:***@r:6379/0"
    assert values["budget.client_delta_limit"] == "inf"
    assert secret not in printed
    assert "hunter2" not in printed


def test_truth_values_are_shown_as_a_file_of_settings_takes_them(file_of_settings, capsys):
    """`True` is Python's; TOML refuses it."""
    cli.main(["settings", "topics", "--settings", file_of_settings])

    assert "allow_single_broker = false   (default)" in capsys.readouterr().out


def test_doctor_for_programs_lists_its_findings(file_of_settings, capsys):
    assert cli.main(["doctor", "--json", "--settings", file_of_settings]) == 1

    found = json.loads(capsys.readouterr().out)
    assert found["to_fix"] == len(found["findings"])
    assert {finding["what"] for finding in found["findings"]} == {"settings"}


def test_a_missing_library_is_named_with_what_to_install():
    """The base install has the command, but not the server's libraries.

    In a process of its own: modules that are imported a second time here would stay behind for
    the tests that follow, as other modules than those they had imported.
    """
    code = (
        "import sys; sys.modules['redis'] = None  # as if it were not installed\n"
        "from blendstream.agents.cli import main; sys.exit(main(['stack']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 1
    assert "pip install 'blendstream[server]'" in ended.stderr


def test_the_help_teaches_every_verb_that_operators_and_analysts_need():
    """A verb that is renamed must be renamed where people learn of it."""
    named = {verb.name for verb in cli.SUBCOMMANDS}

    assert {
        "demo", "gateway", "worker", "jobs", "stack", "epochs", "results", "ledger", "settings",
        "verify", "rebuild", "doctor", "keys", "completion",
    } <= named  # fmt: skip
    taught = re.findall(r"^  blendstream ([a-z]+)", cli.FIRST_STEPS, re.MULTILINE)
    assert set(taught) <= named
    assert len(taught) > 8
