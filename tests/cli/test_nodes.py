"""Nodes as processes: how they say that they serve, how they stop, why they don't start."""

import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcesses
from octopi.cli.node_processes import node_command, node_environment
from octopi.limits import SHUTDOWN_GRACE_S
from tests.admin.nodes import ask
from tests.kit.cluster import eventually, running_cluster

pytestmark = pytest.mark.process


def last_line(text: str) -> str:
    return text.splitlines()[-1]


def test_a_broker_serves_when_it_has_joined(nodes: NodeProcesses) -> None:
    register = nodes.register()
    broker = nodes.broker(register)
    assert broker.url.startswith("ws://127.0.0.1:")
    assert "broker joined" in register.log()
    assert 10e6 < broker.rss_bytes() <= broker.rss_bytes_max() < 60e6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_node_gracefully(nodes: NodeProcesses, number: signal.Signals) -> None:
    register = nodes.register()
    broker = nodes.broker(register)
    for node in (broker, register):
        node.signal(number)
        assert node.wait() == 0
        assert "Traceback" not in node.log()


def test_a_broker_without_a_register_waits_and_can_be_stopped(nodes: NodeProcesses) -> None:
    broker = nodes.node("broker", "broker", "--register", "ws://127.0.0.1:9")
    broker.launch()
    trio.run(eventually, lambda: "register lost" in broker.log(), 30.0)
    with pytest.raises(AssertionError, match="did not serve"):
        broker.wait_ready(timeout_s=0.5)
    assert broker.terminate() == 0
    assert "Traceback" not in broker.log()


def test_a_node_ends_when_its_standard_input_does(nodes: NodeProcesses) -> None:
    register = nodes.register()
    stdin = register._running().stdin
    assert stdin is not None
    stdin.close()
    assert register.wait() == 0


def test_a_node_comes_back_at_its_address_after_kill_9(nodes: NodeProcesses) -> None:
    register = nodes.register()
    broker = nodes.broker(register)
    url = broker.url
    broker.kill9()
    assert not broker.is_running
    broker.restart()
    assert broker.url == url
    assert register.log().count("broker joined") == 2


def test_the_log_is_json_off_a_terminal_and_names_the_role(nodes: NodeProcesses) -> None:
    register = nodes.register()
    register.terminate()
    entries = [json.loads(line) for line in register.log().splitlines()]
    assert entries
    assert {entry["role"] for entry in entries} == {"register"}
    assert all({"event", "level", "timestamp"} <= entry.keys() for entry in entries)


def test_the_log_can_be_for_people_and_leave_out_lower_levels() -> None:
    environment = {**node_environment(), "OCTOPI_LOG_FORMAT": "console"}
    command = node_command("--role", "register", "--listen", "127.0.0.1:0", "--stop-at-eof")
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert b"journal read" in done.stderr
    assert not done.stderr.startswith(b"{")
    environment["OCTOPI_LOG_LEVEL"] = "error"
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert done.stderr == b""


def test_a_port_in_use_is_one_clear_line(nodes: NodeProcesses) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        register = nodes.node("register", "register", "--listen", f"127.0.0.1:{port}")
        register.launch()
        assert register.wait() == 1
    line = last_line(register.log())
    assert line.startswith("octopi-node: ")
    assert f"127.0.0.1:{port}" in line
    assert "Traceback" not in register.log()


def test_a_second_node_in_a_data_directory_is_refused(nodes: NodeProcesses) -> None:
    first = nodes.register()
    second = nodes.node("second", "register")
    second.data_dir = first.data_dir
    second.launch()
    assert second.wait() == 1
    assert "in use by another process" in last_line(second.log())


@pytest.mark.parametrize("role", ["register", "broker"])
def test_a_data_directory_that_can_not_be_made_is_one_clear_line(
    nodes: NodeProcesses, role: str
) -> None:
    (nodes.directory / "file").write_text("")
    node = nodes.node(f"file/{role}", role)
    node.log_file = nodes.directory / "node.log"
    node.launch()
    assert node.wait() == 1
    line = last_line(node.log())
    assert str(node.data_dir) in line
    assert "Not a directory" in line
    assert "Traceback" not in node.log()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("role", ["register", "broker"])
def test_a_read_only_data_directory_is_one_clear_line(nodes: NodeProcesses, role: str) -> None:
    node = nodes.node(role, role)
    node.data_dir.mkdir(mode=0o500)
    node.launch()
    assert node.wait() == 1
    assert "Permission denied" in last_line(node.log())


def test_an_invalid_address_is_a_usage_error(nodes: NodeProcesses) -> None:
    node = nodes.node("register", "register", "--listen", "nonsense")
    node.launch()
    assert node.wait() == 2
    assert "write host:port" in last_line(node.log())


def test_an_option_of_the_other_role_is_a_usage_error(nodes: NodeProcesses) -> None:
    node = nodes.node("register", "register", "--flush-bytes", "1")
    node.launch()
    assert node.wait() == 2
    assert "--flush-bytes is not an option of a register" in last_line(node.log())


def test_dev_runs_a_cluster_until_it_is_stopped(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "octopi_node", "dev", "--brokers", "2", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**node_environment(), "TMPDIR": str(tmp_path)},
        text=True,
    ) as dev:
        assert dev.stdout is not None
        assert dev.stdout.readline().startswith("ready register ws://127.0.0.1:")
        assert [path.name[:11] for path in tmp_path.iterdir()] == ["octopi-dev-"]
        dev.send_signal(signal.SIGINT)
        _, log = dev.communicate(timeout=20)
    assert dev.returncode == 0
    assert {entry.get("node") for entry in map(json.loads, log.splitlines())} == {
        None,
        "broker-1",
        "broker-2",
    }
    assert list(tmp_path.iterdir()) == []


def test_dev_lets_pages_of_this_machine_connect_and_those_that_are_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "octopi_node", "dev", "--listen", "127.0.0.1:0"]
    command += ["--allow-origin", "https://a.example", "--allow-origin", "https://b.example"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**node_environment(), "TMPDIR": str(tmp_path)},
        text=True,
    ) as dev:
        try:
            assert dev.stdout is not None
            register = dev.stdout.readline().split()[-1]
            cluster = trio.run(ask, register, "/api/v1/cluster").json
            for url in (register, cluster["brokers"][0]["address"]):
                for origin, status in (
                    ("http://localhost:5173", 200),
                    ("http://127.0.0.1:8000", 200),
                    ("https://a.example", 200),
                    ("https://b.example", 200),
                    ("https://c.example", 403),
                    ("null", 403),
                ):
                    page = trio.run(partial(ask, url, "/api/v1/status", origin=origin))
                    assert page.status == status, origin
        finally:
            dev.send_signal(signal.SIGINT)


async def test_dev_refuses_a_port_in_use_at_once(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        address = cluster.register.url.removeprefix("ws://")
        done = await trio.run_process(
            [sys.executable, "-m", "octopi_node", "dev", "--listen", address],
            env=node_environment(),
            capture_stderr=True,
            check=False,
        )
        assert done.returncode == 1
        assert address in last_line(done.stderr.decode())


async def test_the_second_signal_stops_a_node_at_once(nodes: NodeProcesses) -> None:
    register = nodes.register()
    broker = nodes.broker(register)
    async with octopi.connect(register.url) as client, trio.open_nursery() as nursery:
        topic = await client.create_topic("orders")

        async def wait_for_messages() -> None:
            partition = topic.partitions[0].partition
            with pytest.raises(octopi.OctopiError):
                await client.fetch("orders", 0, partition=partition, wait_s=20)

        nursery.start_soon(wait_for_messages)
        await client.admin.describe_logs("orders")  # on the same connection: the fetch is there
        broker.signal(signal.SIGTERM)
        await eventually(lambda: refuses_connections(broker.url))
        broker.signal(signal.SIGTERM)
        began = trio.current_time()
        assert await trio.to_thread.run_sync(broker.wait) == 130
        assert trio.current_time() - began < SHUTDOWN_GRACE_S / 2
        nursery.cancel_scope.cancel()
    assert "stopped at once by the second signal" in last_line(broker.log())


def refuses_connections(url: str) -> bool:
    host, _, port = url.removeprefix("ws://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False
