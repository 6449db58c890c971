"""Runs Apache Kafka brokers for comparisons, with Java and a directory of Kafka's jars."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from benchmarks.processes import running, wait_for_port
from octopi.cli.free_ports import free_ports

_SETTINGS: Final = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
log.dirs={directory}
num.partitions=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"


@attrs.frozen
class KafkaBroker:
    """A broker that is running."""

    address: str
    pid: int


@contextmanager
def kafka_broker(jars: Path, directory: Path) -> Iterator[KafkaBroker]:
    """Run a broker that is its own controller, with default settings, within the block.

    *jars* is a directory with ``kafka_2.13`` and the jars that it needs; *directory* is made for
    the broker's files.

    Raises:
      RuntimeError: if it doesn't start.
    """
    with kafka_cluster(jars, directory, 1, {}) as (broker,):
        yield broker


@contextmanager
def kafka_cluster(
    jars: Path, directory: Path, count: int, options: Mapping[str, object]
) -> Iterator[list[KafkaBroker]]:
    """Run *count* brokers, with *options* in addition to the default settings, within the block.

    Raises:
      RuntimeError: if one doesn't start.
    """
    directory.mkdir()
    ports = free_ports(2 * count)
    controllers = ports[count:]
    voters = ",".join(f"{n + 1}@127.0.0.1:{port}" for n, port in enumerate(controllers))
    java = ["java", "-Xmx1g", "-cp", f"{jars}/*"]
    with ExitStack() as servers:
        processes = []
        for n, (port, controller) in enumerate(zip(ports, controllers, strict=False)):
            folder = directory / f"kafka-{n + 1}"
            folder.mkdir()
            text = _SETTINGS.format(
                number=n + 1,
                voters=voters,
                port=port,
                controller=controller,
                directory=folder / "data",
            )
            text += "".join(f"{key}={value}\n" for key, value in options.items())
            settings = folder / "server.properties"
            settings.write_text(text)
            form = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings)]
            with (folder / "format.log").open("wb") as log:
                subprocess.run([*java, *form], stdout=log, stderr=log, check=True)
            command = [*java, "kafka.Kafka", str(settings)]
            processes.append(servers.enter_context(running(command, folder / "server.log")))
        for port, process in zip(ports, processes, strict=False):
            wait_for_port(port, process)
        yield [
            KafkaBroker(f"127.0.0.1:{port}", process.pid)
            for port, process in zip(ports, processes, strict=False)
        ]


def jar_version(jars: Path) -> str:
    """The version in the name of the broker's jar."""
    for path in jars.glob("kafka_2.13-*.jar"):
        found = re.fullmatch(r"kafka_2\.13-(\d[\d.]*)", path.stem)
        if found:
            return found[1]
    return "unknown"
