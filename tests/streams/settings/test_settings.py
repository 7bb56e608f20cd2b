"""Settings are right before anything starts, or nothing starts."""

import dataclasses
import pickle
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest

from blendstream.streams.budget.epoch_plan import plan_from
from blendstream.streams.errors import SettingsError
from blendstream.streams.settings import Settings, Url, declared_settings, load_settings
from tests.service.settings import variables_of

REPOSITORY = Path(__file__).parents[3]

#: A budget for each epoch.
EACH_EPOCH = {"budget.period_epochs": 0}


def problems_of(values: dict[str, object]) -> str:
    """Return the problems that building these settings reports."""
    with pytest.raises(SettingsError) as refused:
        Settings.from_values(values)
    return str(refused.value)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(setting_values, tmp_path):
    """An operator overrides one value of a shared file for one process."""
    file = tmp_path / "settings.toml"
    file.write_text("[epoch]\nwindow_s = 600\ngrace_s = 31\n")
    environment = variables_of(setting_values) | {"BLENDSTREAM_EPOCH_GRACE_S": "41"}

    loaded = load_settings(file, environment)

    assert (loaded.settings.epoch.window_s, loaded.settings.epoch.grace_s) == (600, 41.0)
    assert loaded.origins["epoch.window_s"] == str(file)
    assert loaded.origins["epoch.grace_s"] == "BLENDSTREAM_EPOCH_GRACE_S"
    assert loaded.origins["epoch.allowed_skew_s"] == "default"


def test_kafka_url_and_redis_url_are_taken_and_the_prefixed_names_win(setting_values):
    """Hosting platforms set the plain names."""
    environment = variables_of(setting_values)
    environment |= {"KAFKA_URL": "kafka://plain:1", "REDIS_URL": "redis://plain:2"}
    del environment["BLENDSTREAM_REDIS_URL"]

    loaded = load_settings(environment=environment)

    assert loaded.settings.kafka.bootstrap == "127.0.0.1:9092"
    assert loaded.settings.redis.url.reveal() == "redis://plain:2"
    assert loaded.origins["redis.url"] == "REDIS_URL"


def test_the_limits_of_the_budget_have_no_default(setting_values):
    """An operator must decide the total privacy budget explicitly, not by omission."""
    for name in [name for name in setting_values if name.startswith("budget.")]:
        fewer = {key: setting_values[key] for key in setting_values if key != name}
        assert f"{name} is required and has no default" in problems_of(fewer)


def test_every_problem_is_reported_at_once(setting_values, tmp_path):
    """Mending one at a time costs a restart each."""
    file = tmp_path / "settings.toml"
    file.write_text("[epoch]\nwindow_s = 'soon'\nwidth_s = 1\n[surprise]\nx = 1\n")
    environment = variables_of(setting_values) | {
        "BLENDSTREAM_GATEWAY_PORT": "70000",
        "BLENDSTREAM_GATEWAY_PROT": "1",
    }
    del environment["BLENDSTREAM_KEYS_CURRENT_ID"]

    with pytest.raises(SettingsError) as refused:
        load_settings(file, environment)

    message = str(refused.value)
    assert "6 settings must be corrected" in message
    assert "epoch.window_s must be an integer, got 'soon'" in message
    assert f"epoch.width_s in {file} is not a setting; did you mean epoch.window_s?" in message
    assert "surprise.x" in message
    assert "gateway.port must be a port, 1 to 65535, got 70000" in message
    assert "BLENDSTREAM_GATEWAY_PROT in the environment is not a setting; did you mean" in message
    assert "keys.current_id is required" in message


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"epoch.grace_s": 20.0}, "epoch.grace_s must be at least gateway.linger_s + gateway.del"),
        ({"epoch.window_s": 100}, "must be at most half of epoch.window_s = 100, got 65"),
        ({"gateway.port": 9102}, "gateway.port and worker.metrics_port must differ, got 9102"),
        ({"privacy.epsilon": 0}, "privacy.epsilon must be at least 0.001, else"),
        ({"privacy.epsilon": 10.1}, "privacy.epsilon must be at least 0.001, else"),
        ({"privacy.epsilon": 1e-11}, "privacy.epsilon must be at least 0.001, else"),
        (
            {"privacy.records_per_optin_user": 2, "privacy.delta": 1e-13} | EACH_EPOCH,
            "privacy.delta must be at least 1e-12 when records_per_optin_user is above 1",
        ),
        (
            {"privacy.head_list_cells": 100_000},
            "no epoch could be opened with these settings: head_list_cells must be at most 25407",
        ),
        (
            {"privacy.records_per_optin_user": 5, "click_graph.share": 0.1},
            "records_per_optin_user=5, got queries_per_user=1, clicks_per_user=1",
        ),
        ({"privacy.delta": 0.01}, "privacy.delta must be above 0 and at most 0.001"),
        (
            {"click_graph.epsilon": 1e9},
            "click_graph.epsilon must be at least 0.001, else the noise hides every result, and at "
            "most 10",
        ),
        ({"click_graph.delta": 0.01}, "click_graph.delta must be above 0 and at most 0.001"),
        (
            {"privacy.profile": "paper", "privacy.epsilon": 0.69},
            "privacy.epsilon must be above ln 2 = 0.6931 in the paper's profile (Theorem 1)",
        ),
        (
            {"privacy.profile": "paper", "privacy.records_per_optin_user": 2},
            "privacy.records_per_optin_user must be 1 in the paper's profile",
        ),
        (
            {"privacy.profile": "paper", "privacy.selection_share": 1},
            "privacy.selection_share must be below 1 in the paper's profile",
        ),
        (
            {"privacy.records_per_optin_user": 2, "privacy.selection_share": 1},
            "privacy.selection_share must be below 1 when records_per_optin_user is above 1",
        ),
        ({"budget.optin_epsilon_limit": 1}, "must allow at least one epoch, which spends 4, got 1"),
        ({"budget.period_s": 60}, "budget.period_s must be at least epoch.window_s = 86400"),
        (
            {"topics.allow_single_broker": True},
            "must be 1 with topics.allow_single_broker, got 3 and 2",
        ),
        ({"topics.replication": 1}, "topics.replication must be at least 2, got 1"),
        ({"topics.min_insync_replicas": 3}, "must be below topics.replication = 3, got 3"),
        ({"topics.retention_s": 3600}, "topics.retention_s must be at least 3 windows"),
        ({"topics.segment_s": 86_401}, "topics.segment_s must be at most epoch.window_s = 86400"),
        ({"keys.current_id": "other"}, "keys.current_id must be one of the ids"),
        ({"keys.master_secrets": {"test": "00" * 31}}, "at least 32 random bytes"),
        ({"keys.master_secrets": {}}, "must contain at least one id = secret"),
        ({"kafka.url": "http://broker"}, "kafka.url must look like kafka://host:port"),
        ({"redis.url": "127.0.0.1:6379"}, "redis.url must look like redis://host:port"),
        ({"kafka.sasl_mechanism": "SCRAM-SHA-512"}, "kafka.sasl_user and kafka.sasl_password must"),
        ({"kafka.sasl_user": "me"}, "kafka.sasl_mechanism must be set"),
        (
            {"kafka.url": "kafka://me:pw@broker:1", "kafka.sasl_mechanism": "PLAIN"},
            "kafka.url must begin with kafka+ssl:// when kafka.sasl_mechanism is PLAIN",
        ),
        (
            {"kafka.url": "kafka+ssl://broker:1", "kafka.tls_certificate_file": __file__},
            "kafka.tls_key_file must be given together",
        ),
        ({"kafka.tls_ca_file": "/nowhere"}, "kafka.tls_ca_file must name a file that exists"),
        ({"kafka.tls_ca_file": __file__}, "kafka.url must begin with kafka+ssl:// when"),
        ({"redis.tls_ca_file": __file__}, "redis.url must begin with rediss:// when"),
        (
            {"gateway.batch_entries": 10_001},
            "gateway.batch_entries must lie in [1, 10000], got 10001",
        ),
        (
            {"gateway.body_bytes": 2**20},
            "gateway.body_bytes must lie in [1024, 524288], got 1048576",
        ),
        ({"jobs.lease_renew_s": 16}, "jobs.lease_renew_s must be at most half of jobs.lease_s"),
        ({"jobs.transaction_timeout_s": 9}, "must be at least kafka.request_timeout_s = 10, got 9"),
        (
            {
                "click_graph.share": 0.1,
                "click_graph.epsilon": 10,
                "budget.optin_epsilon_limit": 19,
            },
            "click_graph.epsilon and delta must",
        ),
        (
            {
                "click_graph.share": 0.1,
                "click_graph.selection_share": 0.8,
                "click_graph.query_count_share": 0.3,
            },
            "must be below 1, got 1.1; leave some for the clicks",
        ),
        ({"topics.prefix": "Bad Prefix"}, "topics.prefix must have 1 to 64 of the characters"),
        ({"epoch.grace_s": float("nan")}, "epoch.grace_s must be finite and above 0, got nan"),
        ({"privacy.profile": "blunt"}, "privacy.profile must be one of sharp, paper, got 'blunt'"),
        (
            {"topics.allow_single_broker": "yes"},
            "topics.allow_single_broker must be true or false, got 'yes'",
        ),
        ({"topics.partitions": True}, "topics.partitions must be an integer, got True"),
    ],
)
def test_a_broken_rule_says_what_must_hold_what_was_found_and_what_to_do(
    setting_values, changes, complaint
):
    """The one who reads it has a service that does not start, and no time for the source."""
    message = problems_of({**setting_values, **changes})

    assert complaint in message
    assert "1 setting must be corrected" in message
    assert "; " in message.splitlines()[1], "says what to do"


def test_secrets_print_as_stars_wherever_settings_are_shown(setting_values):
    """Settings end up in bug reports, tracebacks and terminal recordings."""
    secret, master = "hunter2-the-password", "5e" * 32
    settings = Settings.from_values(
        {
            **setting_values,
            "kafka.url": f"kafka+ssl://me:{secret}@broker:9093",
            "kafka.sasl_mechanism": "SCRAM-SHA-256",
            "kafka.tls_key_password": secret,
            "redis.url": f"rediss://worker:{secret}@store:6380/0",
            "keys.master_secrets": {"test": master},
        }
    )

    shown = repr(settings) + str(settings.kafka) + f"{settings.keys.master_secrets}"
    shown += str([vars(type(settings.kafka.url)), settings.redis.url, settings.kafka.password])
    assert secret not in shown
    assert master not in shown
    assert "kafka+ssl://me:***@broker:9093" in shown
    assert settings.kafka.password.reveal() == secret
    assert settings.keys.masters() == {"test": bytes.fromhex(master)}


def test_a_refused_secret_is_not_quoted_in_the_error(setting_values):
    """The error is printed and logged."""
    secret = "too-short-and-not-hexadecimal"
    changed = {
        **setting_values,
        "keys.master_secrets": {"test": secret},
        "redis.url": f"x:{secret}@h",
    }

    with pytest.raises(SettingsError) as refused:
        Settings.from_values(changed)

    assert secret not in "".join(traceback.format_exception(refused.value))
    assert "keys.master_secrets must" in str(refused.value)


@pytest.mark.parametrize("sign", ["/", "?", "#", "["])
@pytest.mark.parametrize("name", ["kafka.url", "redis.url"])
def test_a_password_that_reads_as_something_else_is_refused_and_not_shown(
    setting_values, name, sign
):
    """Its first half would be taken for the host, and hosts are printed and logged."""
    start = f"{name.partition('.')[0]}://me:"
    address = f"{start}first{sign}second@server:1"
    encoded = Url(f"{start}first{quote(sign, safe='')}second@server:1")
    message = problems_of({**setting_values, name: address})

    assert f"{name} must have / ? # [ ] in its user or password percent-encoded" in message
    assert "first" not in message
    assert "second" not in message
    assert Url(address).hosts == ""
    assert (encoded.hosts, encoded.password.reveal()) == ("server:1", f"first{sign}second")


def test_a_secret_can_come_from_a_file_of_its_own(setting_values, tmp_path):
    """Container platforms mount secrets as files."""
    (tmp_path / "masters").write_text(f"a={'aa' * 32}\nb={'bb' * 32}\n")
    (tmp_path / "password").write_text("hunter2\n")
    for name in ("masters", "password"):
        (tmp_path / name).chmod(0o600)
    file = tmp_path / "settings.toml"
    file.write_text('[kafka]\nsasl_mechanism = "SCRAM-SHA-512"\nsasl_user = "me"\n')
    environment = variables_of(setting_values) | {
        "BLENDSTREAM_KEYS_MASTER_SECRETS_FILE": str(tmp_path / "masters"),
        "BLENDSTREAM_KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "password"),
        "BLENDSTREAM_KEYS_CURRENT_ID": "b",
    }
    del environment["BLENDSTREAM_KEYS_MASTER_SECRETS"]

    loaded = load_settings(file, environment)

    assert loaded.settings.kafka.password.reveal() == "hunter2"
    assert sorted(loaded.settings.keys.masters()) == ["a", "b"]
    assert "masters (named by BLENDSTREAM_KEYS_MASTER_SECRETS_FILE)" in str(
        loaded.origins["keys.master_secrets"]
    )


@pytest.mark.parametrize("content", [None, "not = [toml", b"\xff\xfe", '{"kafka": {}}'])
def test_an_unreadable_file_is_named_alone(setting_values, tmp_path, content):
    """The path was wrong, or the file is: the settings that it would give are no problems too."""
    file = tmp_path / "settings.toml"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    for environment in ({}, variables_of(setting_values)):
        with pytest.raises(SettingsError, match=r"settings file must be .*settings\.toml") as found:
            load_settings(None, environment | {"BLENDSTREAM_SETTINGS": str(file)})
        assert len(found.value.problems) == 1
        assert ("got JSON" in str(found.value)) == (content == '{"kafka": {}}')


def test_a_forgotten_file_is_said_first_and_only_where_something_is_missing(
    setting_values, tmp_path
):
    """`--settings` was left out: the list of nine missing settings does not say so by itself."""
    with pytest.raises(SettingsError) as found:
        load_settings(None, {})
    assert found.value.problems[0].startswith("no settings file was read: name yours with --sett")
    (tmp_path / "settings.toml").write_text("")
    wrong = variables_of(setting_values) | {"BLENDSTREAM_EPOCH_WINDOW_S": "soon"}
    for file, environment in ((tmp_path / "settings.toml", {}), (None, wrong)):
        with pytest.raises(SettingsError) as found:
            load_settings(file, environment)
        assert not any("no settings file" in problem for problem in found.value.problems)


def test_settings_cannot_be_changed_after_they_were_read(setting_values):
    """Each epoch commits its parameters when it opens; a later change would make them untrue."""
    settings = Settings.from_values(setting_values)

    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.epoch.window_s = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.keys.master_secrets["new"] = "x"  # type: ignore[index]
    with pytest.raises(TypeError):
        pickle.dumps(settings)


def test_every_setting_has_a_sentence_and_its_unit():
    """`blendstream settings` is the reference; a bare name would send the reader to the source."""
    for declared in declared_settings():
        assert declared.sentence.endswith("."), declared.name
        in_seconds = declared.name.endswith("_s") and not declared.name.endswith("_per_s")
        assert in_seconds == ("in seconds" in declared.sentence), declared.name


@pytest.mark.parametrize("sample", ["basic.toml", "advanced.toml"])
def test_the_samples_in_deploy_load(sample, tmp_path):
    """They are what people copy; they must not rot."""
    file = REPOSITORY / "deploy/settings" / sample
    masters = tmp_path / "masters"
    masters.write_text(f"2026-a={'00' * 32}")
    masters.chmod(0o600)

    load_settings(file, {"BLENDSTREAM_KEYS_MASTER_SECRETS_FILE": str(masters)})


def test_the_advanced_sample_names_every_setting_that_needs_no_file_of_its_own():
    """Whoever looks for a knob looks there."""
    text = (REPOSITORY / "deploy/settings/advanced.toml").read_text()
    missing = [d.name for d in declared_settings() if f"{d.field} =" not in text]

    assert missing == ["keys.master_secrets"], "secrets do not belong into the sample"


def test_privacy_parameters_are_what_the_algorithms_take(setting_values):
    """The algorithms see these numbers and nothing else of the settings."""
    settings = Settings.from_values({**setting_values, "privacy.head_list_cells": "500"})

    assert settings.privacy.parameters().head_list_cells == 500


@pytest.mark.parametrize(("profile", "share"), [("sharp", 0.9), ("paper", 0.95)])
def test_the_profile_decides_the_selection_share_unless_it_is_set(setting_values, profile, share):
    """One setting chooses all mechanisms with what suits them; another may overrule it."""
    chosen = {**setting_values, "privacy.profile": profile}
    own = Settings.from_values(chosen).privacy.parameters()
    set_one = Settings.from_values(
        {**chosen, "privacy.selection_share": "0.8"}
    ).privacy.parameters()

    assert (own.selection_share, set_one.selection_share) == (share, 0.8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy.profile": "paper"}, "privacy.profile must be sharp with budget.period_epochs"),
        ({"privacy.optin_cohorts": 2, "privacy.cohorts": 2}, "privacy.optin_cohorts must be 1"),
        (
            {"privacy.records_per_optin_user": 100, "budget.period_epochs": 31},
            "records_per_optin_user × budget.period_epochs must be at most 3000, got 3100",
        ),
        ({"privacy.delta": 1e-13}, "privacy.delta must be at least 1e-12 with budget.period"),
    ],
)
def test_one_budget_for_a_period_is_refused_where_it_is_not_proved(
    setting_values, changes, message
):
    """The service would stop at its first epoch, or spend more than it says."""
    assert message in problems_of(setting_values | {"budget.period_epochs": 30} | changes)


def test_with_one_budget_for_a_period_clients_take_turns_and_opt_in_users_do_not(setting_values):
    plan = plan_from(Settings.from_values(setting_values | {"budget.period_epochs": 30}))
    assert (plan.cohorts, plan.optin_cohorts, plan.period_epochs) == (30, 1, 30)

    plan = plan_from(Settings.from_values(setting_values | EACH_EPOCH))
    assert (plan.cohorts, plan.optin_cohorts, plan.period_epochs) == (1, 0, 0)


def test_thirty_epochs_share_one_budget_unless_it_is_set_otherwise(setting_values):
    """The default of `sharp`; `paper` stays what it is, and who lets opt-in users take turns has
    chosen another way."""

    def epochs(**changes: object) -> int:
        named = {name.replace("__", "."): value for name, value in changes.items()}
        return plan_from(Settings.from_values(setting_values | named)).period_epochs

    kept = [
        plan_from(Settings.from_values(setting_values | {"privacy.profile": profile})).known_records
        for profile in ("sharp", "paper")
    ]
    assert kept == [50_000, 0], "the paper forgets what it published"
    assert epochs() == 30
    assert epochs(budget__period_epochs="") == 30
    assert epochs(budget__period_epochs=7) == 7
    assert epochs(budget__period_epochs=0) == 0
    assert epochs(privacy__profile="paper") == 0
    assert epochs(privacy__optin_cohorts=2, privacy__cohorts=2, keys__cohort_id="test") == 0
