"""An Apache Kafka broker for comparisons, from a directory of its jars, with Java."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

START_S: Final = 60.0
_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
log.dirs={directory}/data
num.partitions=2
offsets.topic.replication.factor=1
"""
_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"


@attrs.frozen
class KafkaBroker:
    """One that runs."""

    address: str
    pid: int


@contextmanager
def kafka_broker(jars: Path, directory: Path) -> Iterator[KafkaBroker]:
    """A broker that is its own controller, with settings as they come, while the block lasts.

    *jars* has ``kafka_2.13`` and what it needs; *directory* is for its files.

    Raises:
      RuntimeError: if it doesn't start.
    """
    directory.mkdir()
    port, controller = _free_port(), _free_port()
    settings = directory / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, directory=directory))
    java = ["java", "-Xmx1g", "-cp", f"{jars}/*"]
    form = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings)]
    with (directory / "log").open("wb") as log:
        subprocess.run([*java, *form], stdout=log, stderr=log, check=True)
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log, env=os.environ
        )
    try:
        _wait_for(port, process, directory / "log")
        yield KafkaBroker(f"127.0.0.1:{port}", process.pid)
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"Kafka does not start:\n{log.read_text(errors='replace')[-2000:]}")
