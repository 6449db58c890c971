"""The Dockerfile, the compose file and the Kubernetes example: they have the forms that these
programs know, and their own commands run a cluster."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from tests.deploy.host import DEPLOY, Host, free_addresses, host
from tests.kit.cluster import eventually

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(
        "CI" not in os.environ and find_spec("kubernetes_validate") is None,
        reason="without the packages of requirements/dist.txt: `make .venv/.dist`",
    ),
]

_IMAGE: Final = (DEPLOY / "Dockerfile").read_text()


def documents(name: str) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    from ruamel.yaml import YAML

    return [dict(one) for one in YAML(typ="safe", pure=True).load_all(DEPLOY / name)]


def of_image(instruction: str) -> list[str]:
    """The command of this instruction of the Dockerfile, in its exec form."""
    (found,) = re.findall(rf"^{instruction}.*?(\[.*\])$", _IMAGE, re.MULTILINE)
    command: list[str] = json.loads(found)
    return command


def check(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_is_one() -> None:
    check("check_jsonschema", "--builtin-schema", "vendor.compose-spec", f"{DEPLOY}/compose.yaml")


def test_the_kubernetes_example_is_valid_for_kubernetes() -> None:
    check("kubernetes_validate", "--strict", "--no-warn", f"{DEPLOY}/kubernetes.yaml")


def test_what_the_image_is_made_of_is_there() -> None:
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for line in kept:
        if line.startswith("!"):
            assert list(DEPLOY.parent.glob(line[1:])), line
    makefile = (DEPLOY.parent / "Makefile").read_text()
    (target,) = re.findall(r"RUN make (\w+)", _IMAGE)
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_the_compose_file_runs_a_cluster(tmp_path: Path) -> None:
    (file,) = documents("compose.yaml")
    services = file["services"]
    nodes = [name for name in services if name != "secret"]
    assert nodes == ["register", "broker-1", "broker-2", "broker-3"]
    free = free_addresses(8)
    addresses = dict(zip(nodes, free[:4], strict=True))
    health = dict(zip(nodes, free[4:], strict=True))
    places = {f"{name}:{7000 + n}": addresses[name] for n, name in enumerate(nodes)}
    places |= {f"0.0.0.0:{7000 + n}": addresses[name] for n, name in enumerate(nodes)}
    with host(tmp_path / "host") as on:
        for _ in range(2):  # the second time changes nothing
            on.run([on.here(one, {}) for one in services["secret"]["entrypoint"]], {})
            secrets = on.path("/etc/octopi/join-secret").read_text()
        assert len(re.findall(r"^[0-9a-f]{64}$", secrets, re.MULTILINE)) == 1
        for name in nodes:
            service = services[name]
            assert f"{name}:/var/lib/octopi" in service["volumes"]
            assert all(port.startswith("127.0.0.1:") for port in service["ports"])
            variables = {
                key: on.here(value, places) for key, value in service["environment"].items()
            }
            variables |= {"OCTOPI_METRICS_LISTEN": health[name]}
            command = [on.here(one, places) for one in service["command"]]
            assert not is_healthy(on, variables)
            on.launch(name, [*of_image("ENTRYPOINT"), *command], variables)
        for name in nodes:
            assert on.url(name) == f"ws://{addresses[name]}"
            own = variables | {"OCTOPI_METRICS_LISTEN": health[name]}
            trio.run(eventually, partial(is_healthy, on, own))
        assert "3 of 3 brokers up" in on.run(["octopi-node", "status"], variables)
        for name in reversed(nodes):
            on.signal(name)
            assert on.wait(name) == 0


def is_healthy(on: Host, variables: dict[str, str]) -> bool:
    """Whether the image's health check succeeds in a container with these variables."""
    (check,) = of_image("HEALTHCHECK")
    done = subprocess.run([DEPLOY / check], env=on.environment(variables), capture_output=True)
    return done.returncode == 0


def test_the_kubernetes_example_runs_a_cluster(tmp_path: Path) -> None:
    found = documents("kubernetes.yaml")
    sets = {one["metadata"]["name"]: one for one in found if one["kind"] == "StatefulSet"}
    services = {one["metadata"]["name"] for one in found if one["kind"] == "Service"}
    assert {one["spec"]["serviceName"] for one in sets.values()} < services
    for one in found:
        if one["kind"] in {"Service", "PodDisruptionBudget"}:
            selector = one["spec"]["selector"].get("matchLabels", one["spec"]["selector"])
            assert selector["role"] in {"register", "broker"}
    pods = ["octopi-register-0", "octopi-broker-0", "octopi-broker-1", "octopi-broker-2"]
    assert sum(one["spec"]["replicas"] for one in sets.values()) == len(pods)
    free = free_addresses(8)
    addresses = dict(zip(pods, free[:4], strict=True))
    health = dict(zip(pods, free[4:], strict=True))
    with host(tmp_path / "host") as on:
        make_secrets(on)
        for pod in pods:
            spec = sets[pod.rpartition("-")[0]]["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            places = {
                "octopi-register-0.octopi-register:7000": addresses["octopi-register-0"],
                "$HOSTNAME.octopi-broker:7000": addresses[pod],
                "0.0.0.0:7000": addresses[pod],
                "0.0.0.0:9464": health[pod],
            }
            # Each pod has a volume of its own.
            data = str(tmp_path / pod)
            variables = {one["name"]: on.here(one["value"], places) for one in container["env"]}
            arguments = [
                on.here(one.replace("/var/lib/octopi", data), places) for one in container["args"]
            ]
            command = container.get("command", of_image("ENTRYPOINT"))
            on.launch(pod, [*command, *arguments], variables | {"HOSTNAME": pod})
        for pod in pods:
            assert on.url(pod) == f"ws://{addresses[pod]}"
            (container,) = sets[pod.rpartition("-")[0]]["spec"]["template"]["spec"]["containers"]
            ports = {one["name"]: one["containerPort"] for one in container["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                get = container[probe]["httpGet"]
                assert ports[get["port"]] == 9464
                trio.run(eventually, partial(succeeds, health[pod], get["path"]))
        operator = {
            "OCTOPI_SERVER": f"ws://{addresses['octopi-broker-1']}",
            "OCTOPI_TOKEN_FILE": str(on.path("/etc/octopi/operator.token")),
        }
        assert "3 of 3 brokers up" in on.run(["octopi-node", "status"], operator)
        listed = on.run(["octopi-node", "brokers", "list"], operator)
        for number in (1, 2, 3):
            assert re.search(rf"\b{number}\b.*{addresses[f'octopi-broker-{number - 1}']}", listed)


def succeeds(address: str, path: str) -> bool:
    """Whether a probe of *path* succeeds now."""
    connection = HTTPConnection(address, timeout=5)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status == 200


def make_secrets(on: Host) -> None:
    """Type the commands at the top of the file, those for Octopi."""
    lines = (DEPLOY / "kubernetes.yaml").read_text().splitlines()
    typed = [line.removeprefix("#   ") for line in lines if line.startswith("#   octopi-node")]
    assert len(typed) == 4
    typed[-1] += " > operator.token"
    on.run(["sh", "-ec", "\n".join(typed)], {})
    (line,) = [line for line in lines if line.startswith("#   kubectl create secret")]
    files = re.findall(r"--from-file=(\S+)", line)
    assert shlex.split(line)[1:6] == ["kubectl", "create", "secret", "generic", "octopi"]
    for file in files:
        on.path(f"/etc/octopi/{file}").chmod(0o440)  # defaultMode
    there = {one.name for one in on.path("/etc/octopi").iterdir()}
    assert there == {*files, "operator.token"}
