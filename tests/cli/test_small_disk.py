"""A broker process whose file system, a small one of its own, is full for a while."""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import octopi
from harness.machines import Machine
from harness.processes import NodeProcess, NodeProcesses
from octopi.cli.node_processes import node_command
from tests.cli.conftest import Program

pytestmark = pytest.mark.process

_MOUNT = 'mount -t tmpfs -o size=8m tmpfs "$0" && exec "$@"'


class SmallDisk(Machine):
    """A machine with a small disk, which only the node's process sees: a mount namespace of its
    own, in a user namespace where we may not mount otherwise."""

    def node_command(self, *arguments: str) -> list[str]:
        directory = Path(arguments[arguments.index("--data-dir") + 1])
        directory.mkdir(exist_ok=True)
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        wrapped = ["unshare", "--mount", *user, "sh", "-c", _MOUNT, str(directory)]
        return [*wrapped, *node_command(*arguments)]


def fill(broker: NodeProcess) -> Path:
    """Take all room that is left; return the file that has it, to be removed again."""
    filler = Path(f"/proc/{broker.pid}/root{broker.data_dir}/filler")
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def send(url: str) -> None:
    async def main() -> None:
        async with (
            octopi.connect(url) as client,
            client.producer(delivery_timeout_s=5.0) as producer,
        ):
            await producer.send("orders", b"umbrella" * 1000)

    trio.run(main)


def ready(broker: NodeProcess) -> dict[str, object]:
    """What its ``/readyz`` says."""
    url = broker.url.replace("ws://", "http://") + "/readyz"
    try:
        answer = urllib.request.urlopen(url, timeout=10)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        found = json.load(answer)
        assert isinstance(found, dict)
        assert answer.status == (200 if found["ready"] else 503)
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    """Ask again and again: nothing announces it to other processes."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_full_disk_is_reported_by_status_readyz_and_log_until_it_has_space(
    nodes: NodeProcesses, program: Program, tmp_path: Path
) -> None:
    register = nodes.register()
    machine = SmallDisk(tmp_path / "machine")
    options = ("--register", register.url)
    broker = nodes.node("broker-1", "broker", *options, machine=machine).start()
    send(register.url)
    assert program("status", "--server", register.url).exit_code == 0
    assert ready(broker) == {"ready": True, "why": ""}
    filler = fill(broker)
    with pytest.raises(octopi.NotDeliveredError, match="No space left"):
        send(register.url)
    wait_until(lambda: not ready(broker)["ready"])
    assert "No space left on device" in str(ready(broker)["why"])
    wait_until(lambda: program("status", "--server", register.url).exit_code == 1)
    said = program("status", "--server", register.url).stdout
    assert "takes no records: partition" in said
    assert "the data directory takes nothing: No space left on device" in said
    assert str(tmp_path) not in said + str(ready(broker)["why"])
    assert "octopi-node partitions move" in said
    filler.unlink()
    wait_until(lambda: program("status", "--server", register.url).exit_code == 0)
    assert ready(broker)["ready"]
    send(register.url)
    events = Counter(json.loads(line)["event"] for line in broker.log().splitlines())
    assert (events["disk full"], events["disk has space again"]) == (1, 1)
