"""What an operator copies gives secrets to as few as possible, and lets nothing out."""

import re

import pytest

from tests.deploy.deploy_folder import CONTAINER, DEPLOY, REPOSITORY, deployments, kubernetes

pytestmark = pytest.mark.long

#: Where instructions are: files to copy, pages, and the verbs' own help.
INSTRUCTIONS = [
    *(file for file in DEPLOY.rglob("*") if file.suffix in {".yaml", ".yml", ".toml", ".service"}),
    CONTAINER / "Dockerfile",
    *REPOSITORY.glob("*.md"),
    *(REPOSITORY / "docs").rglob("*.md"),
    *(REPOSITORY / "agents").rglob("*.py"),
]


def opens_to_others(mode: str) -> bool:
    """Whether `chmod MODE` lets others read or write, or the group write."""
    if mode.isdigit():
        return bool(int(mode, 8) & 0o026)
    changes = [re.fullmatch(r"([ugoa]*)([+=-])([rwxX]*)", part) for part in mode.split(",")]
    assert all(changes), mode
    return any(
        change[2] != "-"
        and (
            (set(change[1] or "a") & set("oa") and set(change[3]) & set("rw"))
            or ("g" in change[1] and "w" in change[3])
        )
        for change in changes
        if change
    )


def test_the_reading_of_modes_tells_those_that_open_a_file_to_all():
    for mode in ("644", "0644", "666", "660", "o+r", "a+r", "+r", "go+r", "g+w", "a=r"):
        assert opens_to_others(mode), mode
    for mode in ("600", "0440", "640", "g-w,o=", "o-rwx", "u+x", "g+r", "700"):
        assert not opens_to_others(mode), mode


def test_no_instruction_makes_a_file_readable_by_everybody():
    """The compose file once had people let everybody on the machine read the master secrets."""
    modes = re.compile(r"chmod (?:-\w+ )*([0-7]{3,4}|[ugoa]*[+=-][\w,=+-]*)(?=[\s`]|$)")
    found = [
        (file.name, mode)
        for file in INSTRUCTIONS
        for mode in modes.findall(file.read_text())
        if opens_to_others(mode)
    ]

    assert found == []


def test_kubernetes_hands_secrets_to_the_services_group_and_nobody_else():
    """Mounted with the default mode, 0644, they stop the start."""
    for verb, document in deployments().items():
        pod = document["spec"]["template"]["spec"]
        who = pod["securityContext"]
        assert who["fsGroup"] == who["runAsGroup"] == who["runAsUser"] == 10001
        secrets = {v["name"]: v["secret"] for v in pod["volumes"] if "secret" in v}
        assert set(secrets) == ({"keys", "tokens", "tls"} if verb == "gateway" else {"keys"})
        assert {secret["defaultMode"] for secret in secrets.values()} == {0o440}


def test_compose_gives_the_files_of_secrets_to_the_containers_user():
    """Compose hands them over as they are, whoever owns them."""
    text = (CONTAINER / "compose.yaml").read_text()
    user = re.findall(r"^USER (\d+):", (CONTAINER / "Dockerfile").read_text(), re.MULTILINE)[-1]

    assert f"chown blendstream:0.2.0 {user} /out/master-secrets.txt /out/tokens.txt" in text


def test_pods_reach_dns_kafka_and_redis_and_nothing_else():
    """What breaks into a gateway sees opt-in records pass; it must not be able to send them off."""
    (policy,) = [d["spec"] for d in kubernetes() if d["kind"] == "NetworkPolicy"]

    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "blendstream"}
    allowed = {}
    for rule in policy["egress"]:
        (to,) = rule["to"]
        assert "ipBlock" not in to
        namespace = to["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        allowed[namespace] = {(port["port"], port["protocol"]) for port in rule["ports"]}
    assert allowed == {
        "kube-system": {(53, "UDP"), (53, "TCP")},
        "kafka": {(9092, "TCP"), (9093, "TCP")},
        "redis": {(6379, "TCP"), (26379, "TCP")},
    }


def test_the_samples_ports_are_those_that_pods_may_reach():
    (policy,) = [d["spec"] for d in kubernetes() if d["kind"] == "NetworkPolicy"]
    open_ports = {str(port["port"]) for rule in policy["egress"] for port in rule["ports"]}
    for name, ports in (("basic", {"9092", "6379"}), ("replicated", {"9092", "6379", "26379"})):
        text = (DEPLOY / "settings" / f"{name}.toml").read_text()

        used = set(re.findall(r"[\w-]+:(\d{4,5})\b", text))
        assert used == ports
        assert used <= open_ports
