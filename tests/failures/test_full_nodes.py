"""Real nodes with few descriptors, all places of which are taken: operators still get answers."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness.processes import NodeProcess, NodeProcesses, join_secret, node_processes
from octopi.cli.node_processes import node_command, node_environment
from octopi.limits import OWN_DESCRIPTORS
from octopi.wire import messages as m
from octopi.wire.codec import encode
from tests.transport.test_hostile_peers import UPGRADE, masked

pytestmark = pytest.mark.process

FILES = 128
PLACES = FILES // 2 - OWN_DESCRIPTORS


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeProcesses]:
    with node_processes(tmp_path) as processes:
        yield processes


def asked(
    node: NodeProcess, *arguments: str, timeout_s: float = 10
) -> subprocess.CompletedProcess[str]:
    """What a command of the program says of the cluster."""
    return subprocess.run(
        node_command(*arguments, "--server", node.url, "--timeout", str(timeout_s)),
        capture_output=True,
        text=True,
        env=node_environment(),
        timeout=60,
        check=False,
    )


@contextmanager
def connected(node: NodeProcess, count: int, said: bytes) -> Iterator[None]:
    """Connections that say so much and nothing more; with a hello, until one is refused."""
    place = urlsplit(node.url)
    with ExitStack() as opened:
        for _ in range(count):
            one = opened.enter_context(socket.create_connection((place.hostname, place.port)))
            one.sendall(said)
            answer = b""
            while said == HELLO and b"welcome" not in answer and b"no place" not in answer:
                answer += one.recv(4096)
            if b"no place" in answer:
                break
        yield


HELLO = UPGRADE.replace(b"Host: test", b"Host: 127.0.0.1") + masked(encode(m.Hello(1, "idle")))


def test_an_operator_gets_an_answer_from_nodes_whose_connection_slots_are_all_taken(
    nodes: NodeProcesses, tmp_path: Path
) -> None:
    register = nodes.register(files_max=FILES)
    broker = nodes.broker(register, files_max=FILES)
    assert asked(register, "topics", "create", "orders").returncode == 0
    secret = str(join_secret(tmp_path))
    with ExitStack() as crowds:
        for node in (register, broker):
            for said in (HELLO, HELLO[:60], b""):
                crowds.enter_context(connected(node, 2 * PLACES, said))
        refused = asked(register, "status", timeout_s=1)
        assert refused.returncode != 0
        assert "no place for another client" in refused.stderr
        assert "--join-secret" in refused.stderr
        for command in (("status",), ("topics", "list"), ("brokers", "list")):
            answer = asked(register, *command, "--join-secret", secret)
            assert answer.returncode == 0, answer.stderr
        for node in (register, broker):
            assert len(node.descriptors()) <= FILES - OWN_DESCRIPTORS, "the rest is for files"
    answer = asked(register, "status")
    assert answer.returncode == 0, answer.stderr
    assert "disk full" not in broker.log()
    assert "read-only" not in broker.log()


def test_a_command_names_a_missing_join_secret_file(nodes: NodeProcesses) -> None:
    register = nodes.register()
    answer = asked(register, "status", "--join-secret", "nothing/here")
    assert answer.returncode == 2
    assert "nothing/here: no such file; give --join-secret the file join-secret" in answer.stderr
