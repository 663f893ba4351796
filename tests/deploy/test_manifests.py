"""The files of `deploy/` agree with each other, with the settings that a node accepts, and with schemas."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ottla.cli.app import application
from ottla.config.server import ServerConfig, SettingsFile
from ottla.drivers.metadata.broker_lifecycle import SHUTDOWN_TIMEOUT_S
from ottla.server.http.pages import ROUTES
from ottla.server.node import DRAIN_SECONDS_MAX
from tests.deploy.images import Image, settled, stages
from tests.deploy.roots import ROOT
from tests.deploy.snippets import snippets

DEPLOY = ROOT / "deploy"
VERSIONS = ("1.28", "1.31", "1.34")
"""Versions of Kubernetes: the oldest that gives a pod its ordinal as a label, and later ones."""
FILE = "/etc/ottla/server.properties"


def config_of(file: Path, env: dict[str, str]) -> ServerConfig:
    return ServerConfig.load(SettingsFile(file.name, file.read_bytes()), {}, env, lambda: "this-host")


def port(config: ServerConfig, setting: str = "ottla.http.listener") -> int:
    return int(config[setting].rpartition(":")[2])


def http_pages() -> set[str]:
    return {each.path for each in ROUTES}


# The image.


@cache
def image() -> Image:
    """As the Dockerfile describes it; nothing is built."""
    found = Image()
    for instruction, value in stages(DEPLOY / "Dockerfile")[-1][2]:
        found = settled(found, instruction, value) or found
    return found


def test_an_image_serves_without_settings() -> None:
    config = config_of(DEPLOY / "container.properties", {})
    assert str(config.listeners[0]) == "PLAINTEXT://:9092"
    assert str(config.advertised_listeners[0]) == "PLAINTEXT://localhost:9092", "for docker run -p 9092:9092"
    assert config["offsets.topic.replication.factor"] == 1
    assert config.without_effect == ()
    assert all(path.startswith(f"{image().volumes[0]}/") for path in config.log_dirs)
    assert set(image().ports) == {str(config.listeners[0].port), str(port(config))}


def test_an_image_is_not_root_and_starts_a_node() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", image().user)
    assert (*image().entrypoint, *image().command) == ("ottla", "server", "start", "--config", FILE)
    assert image().health[:3] == ("ottla", "server", "health")
    for command in (image().command, image().health[1:]):
        application().parse_args(list(command), exit_on_error=False, print_error=False)


def test_the_context_holds_what_is_copied() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source
        for _, _, steps in stages(DEPLOY / "Dockerfile")
        for instruction, value in steps
        if instruction == "COPY" and not value.startswith("--from=")
        for source in value.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / each).exists() for each in copied)


# The compose file.


@cache
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def nodes() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in compose()["services"].items() if each["image"] == "ottla"}


def node_config(name: str) -> ServerConfig:
    return config_of(DEPLOY / "container.properties", nodes()[name]["environment"])


def test_nodes_of_the_compose_file_are_a_cluster() -> None:
    configs = {name: node_config(name) for name in nodes()}
    assert len(configs) == 3
    assert len({each["ottla.cluster.id"] for each in configs.values()}) == 1
    for name, config in configs.items():
        voters = {voter: f"{address.host}:{address.port}" for voter, address in config.quorum_voters.items()}
        assert voters == {each.node_id: f"{other}:9093" for other, each in configs.items()}
        assert [each.port for each in config.controller_listeners] == [9093]
        advertised = {each.name: each for each in config.advertised_listeners}
        assert [str(each) for each in config.advertised_controller_listeners] == [f"CONTROLLER://{name}:9093"]
        assert str(advertised["PLAINTEXT"]) == f"PLAINTEXT://{name}:9092"
        opened = f"127.0.0.1:{advertised['HOST'].port}:{advertised['HOST'].port}"
        assert nodes()[name]["ports"] == [opened]
        assert advertised["HOST"].host == "localhost"
        assert config.inter_broker_listener_name == "PLAINTEXT"
        volume, _, inside = nodes()[name]["volumes"][0].partition(":")
        assert inside == image().volumes[0]
        assert volume in compose()["volumes"]
    volumes = [each["volumes"][0] for each in nodes().values()]
    assert len(set(volumes)) == len(volumes)


def test_prometheus_scrapes_every_node_of_the_compose_file() -> None:
    service = compose()["services"]["prometheus"]
    outside, inside, _ = service["volumes"][0].split(":")
    option = next(each for each in service["command"] if each.startswith("--config.file="))
    file = DEPLOY / outside / Path(option.partition("=")[2]).relative_to(inside)
    found = yaml.safe_load(file.read_text())
    (job,) = found["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"{name}:{port(node_config(name))}" for name in nodes()]
    assert all((file.parent / each).exists() for each in found["rule_files"])


def test_grafana_finds_its_dashboard_and_prometheus() -> None:
    service = compose()["services"]["grafana"]
    places = {inside: DEPLOY / outside for outside, inside, _ in (each.split(":") for each in service["volumes"])}
    provisioning = places["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"], "the dashboard's variable takes the default one"
    (provider,) = yaml.safe_load((provisioning / "dashboards/ottla.yml").read_text())["providers"]
    home = Path(service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert places[str(home)] == DEPLOY / "grafana/ottla.json"


def docker_commands() -> list[tuple[dict[str, str], list[str]]]:
    """(variables, arguments) of each container that the page starts or enters."""
    text = (ROOT / "docs/production/containers.md").read_text(encoding="utf-8").replace("\\\n", " ")
    found = []
    for line in re.findall(r"^(?:.*\| )?docker (?:run|exec) (.*)$", text, re.MULTILINE):
        words, env = shlex.split(line), {}
        while words[0].startswith("-"):
            option = words.pop(0)
            if option not in ("-d", "-i", "--rm"):
                value = words.pop(0)
                if option == "-e":
                    name, _, env[name] = value.partition("=")
        found.append((env, words[1:]))
    return found


def test_what_the_page_gives_to_docker_is_understood() -> None:
    given = docker_commands()
    assert len(given) == 6
    for env, arguments in given:
        config_of(DEPLOY / "container.properties", env)
        arguments = arguments[1:] if arguments[:1] == ["ottla"] else arguments
        application().parse_args(arguments or list(image().command), exit_on_error=False, print_error=False)
    assert max(len(env) for env, _ in given) == 3


# Kubernetes.


@cache
def rendered(name: str) -> list[dict[str, Any]]:
    """The manifests of a folder of `deploy/kubernetes`, or of one that an absolute path names."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    command = ["kubectl", "kustomize", str(DEPLOY / "kubernetes" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def of_kind(name: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in rendered(name) if each["kind"] == kind]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["base", "one-node"])
def test_manifests_are_of_kubernetes_schema(name: str, version: str) -> None:
    for manifest in rendered(name):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_an_overlay_as_the_page_makes_it(tmp_path: Path) -> None:
    (text,) = (text for name, text in snippets("docs/production/kubernetes.md") if name == "overlay")
    (tmp_path / "ottla").mkdir()
    shutil.copytree(DEPLOY / "kubernetes", tmp_path / "ottla/deploy/kubernetes")
    subprocess.run(["sh", "-euc", text], cwd=tmp_path, check=True)
    made = rendered(str(tmp_path / "my-ottla"))
    (workload,) = (each for each in made if each["kind"] == "StatefulSet")
    assert workload["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.org/ottla:0.1.0"
    assert {each["metadata"]["namespace"] for each in made} == {"streams"}
    for manifest in made:
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


def test_the_schema_finds_mistakes() -> None:
    wrong = {**of_kind("base", "StatefulSet")[0]}
    wrong["spec"] = {**wrong["spec"], "podManagmentPolicy": "Parallel"}
    with pytest.raises(kubernetes_validate.ValidationError, match="podManagmentPolicy"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def pod_env(name: str, ordinal: int) -> dict[str, str]:
    """The variables of a pod, as the kubelet makes them."""
    (workload,) = of_kind(name, "StatefulSet")
    fields = {
        "metadata.name": f"ottla-{ordinal}",
        "metadata.namespace": "streams",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
    }
    env: dict[str, str] = {}
    for each in workload["spec"]["template"]["spec"]["containers"][0]["env"]:
        if "value" in each:
            env[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], each["value"])
        else:
            env[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
    return env


def pod_config(name: str, ordinal: int, tmp_path: Path) -> ServerConfig:
    """What the node of a pod runs with."""
    (settings,) = of_kind(name, "ConfigMap")
    file = tmp_path / "server.properties"
    file.write_text(settings["data"]["server.properties"])
    return config_of(file, pod_env(name, ordinal))


def test_pods_are_a_cluster(tmp_path: Path) -> None:
    (workload,) = of_kind("base", "StatefulSet")
    service = workload["spec"]["serviceName"]
    replicas = workload["spec"]["replicas"]
    for ordinal in range(replicas):
        config = pod_config("base", ordinal, tmp_path)
        assert config.node_id == ordinal
        assert {voter: f"{address.host}:{address.port}" for voter, address in config.quorum_voters.items()} == {
            each: f"ottla-{each}.{service}:9093" for each in range(replicas)
        }
        advertised = str(config.advertised_listeners[0])
        assert advertised == f"PLAINTEXT://ottla-{ordinal}.{service}.streams.svc:9092"
        (controller,) = config.advertised_controller_listeners
        assert str(controller) == f"CONTROLLER://ottla-{ordinal}.{service}.streams.svc:9093"
        assert config.without_effect == ()
    (headless,) = (each for each in of_kind("base", "Service") if each["spec"].get("clusterIP") == "None")
    assert headless["metadata"]["name"] == service
    assert headless["spec"]["publishNotReadyAddresses"]


def test_a_pod_alone(tmp_path: Path) -> None:
    config = pod_config("one-node", 0, tmp_path)
    assert config.roles == ("broker", "controller")
    assert config["offsets.topic.replication.factor"] == 1
    assert not of_kind("one-node", "PodDisruptionBudget")
    assert of_kind("one-node", "StatefulSet")[0]["spec"]["replicas"] == 1


@pytest.mark.parametrize("name", ["base", "one-node"])
def test_parts_of_the_manifests_meet(name: str, tmp_path: Path) -> None:
    (workload,) = of_kind(name, "StatefulSet")
    template = workload["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    for each in of_kind(name, "Service"):
        assert each["spec"]["selector"].items() <= labels
    for each in of_kind(name, "PodDisruptionBudget"):
        assert each["spec"]["maxUnavailable"] == 1
        assert each["spec"]["selector"]["matchLabels"].items() <= labels
    (container,) = template["spec"]["containers"]
    config = pod_config(name, 0, tmp_path)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"kafka": config.listeners[0].port, "controller": 9093, "http": port(config)}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == "http"
        assert asked["path"] in http_pages()
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health", "a fenced node is not to be killed"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts["data"] == image().volumes[0]
    assert f"{mounts['settings']}/server.properties" == container["args"][-1] == FILE
    assert template["spec"]["terminationGracePeriodSeconds"] > SHUTDOWN_TIMEOUT_S + DRAIN_SECONDS_MAX
    assert f"{template['spec']['securityContext']['runAsUser']}:1000" == image().user
    assert container["securityContext"]["readOnlyRootFilesystem"]
