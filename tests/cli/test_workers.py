"""Several brokers of one machine, as processes that one process watches."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import attrs
import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses, join_secret
from octopi.cli.config import BrokerSettings
from octopi.cli.failures import CommandError
from octopi.cli.workers import WorkerOptions, check_single, last_worker, run_workers
from tests.kit.cluster import eventually


def options(directory: Path, **settings: object) -> WorkerOptions:
    """Those of three workers, unless *settings* say something else."""
    own = BrokerSettings(**{"workers": 3, "data_dir": str(directory), **settings})  # type: ignore[arg-type]
    return WorkerOptions(["--role", "broker", "--workers", "3"], own)


def flags(command: list[str]) -> dict[str, str]:
    """The value of each flag that counts: the last one of its name."""
    return {one: value for one, value in pairwise(command) if one.startswith("--")}


def test_each_worker_has_its_own_addresses_id_and_directory(tmp_path: Path) -> None:
    some = attrs.evolve(
        options(
            tmp_path,
            listen="0.0.0.0:7101",
            advertise="wss://broker.example:7101",
            id=11,
            host="rack-1",
        ),
        metrics_listen="127.0.0.1:9101",
    )
    last = flags(some.command(3))
    assert last["--workers"] == "1"
    assert last["--listen"] == "0.0.0.0:7103"
    assert last["--advertise"] == "wss://broker.example:7103"
    assert last["--id"] == "13"
    assert last["--metrics-listen"] == "127.0.0.1:9103"
    assert last["--data-dir"] == str(tmp_path / "worker-3")
    assert last["--host"] == "rack-1"


def test_workers_without_ports_and_ids_get_free_ones(tmp_path: Path) -> None:
    last = flags(options(tmp_path).command(3))
    assert last["--listen"] == "127.0.0.1:0"
    assert "--id" not in last
    assert "--advertise" not in last
    assert last["--host"]  # the name of this machine


def test_a_data_directory_of_one_broker_is_none_of_workers_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    (tmp_path / "identity").touch()
    with pytest.raises(CommandError, match="has the data of one broker"):
        options(tmp_path).check()
    (tmp_path / "identity").unlink()
    check_single(str(tmp_path))
    for number in (1, 4):
        (tmp_path / f"worker-{number}").mkdir()
        (tmp_path / f"worker-{number}/identity").touch()
    (tmp_path / "worker-old").mkdir()
    assert last_worker(str(tmp_path)) == 4
    with pytest.raises(CommandError, match="start it with --workers 4"):
        check_single(str(tmp_path))
    with pytest.raises(CommandError, match="start 4 workers"):
        options(tmp_path).check()
    options(tmp_path, workers=4).check()


# --- processes -----------------------------------------------------------------------------


class Workers:
    """Two workers, and the process that watches them."""

    def __init__(self, nodes: NodeProcesses, register: NodeProcess) -> None:
        where = ["--register", register.url, "--listen", "127.0.0.1:0"]
        self.node = nodes.node("brokers", "broker", *where, "--workers", "2")

    def start(self) -> list[str]:
        """Start them; return their addresses when they serve."""
        return self.node.start().url.split(",")

    def pids(self) -> list[int]:
        """Of the workers that run."""
        # A child is listed at the thread that started it.
        lists = Path(f"/proc/{self.node.pid}/task").glob("*/children")
        return sorted(int(one) for file in lists for one in file.read_text().split())


@pytest.mark.process
def test_workers_are_brokers_and_one_that_is_killed_is_started_again(
    nodes: NodeProcesses,
) -> None:
    register = nodes.register()
    workers = Workers(nodes, register)
    assert len(set(workers.start())) == 2
    killed = workers.pids()[1]
    os.kill(killed, signal.SIGKILL)

    async def see() -> None:
        async with octopi.connect(register.url) as client:
            with trio.fail_after(60):
                starts, live = [1, 1], [False]
                while starts != [1, 2] or not all(live):
                    await trio.sleep(0.05)
                    brokers = (await client.admin.describe_cluster()).brokers
                    starts = sorted(one.incarnation for one in brokers)
                    live = [one.live for one in brokers]
            assert len({one.host for one in brokers} - {""}) == 1
            # Both are on one machine, so a partition has one replica, though three are wanted.
            topic = await client.create_topic("orders")
            assert [len(one.replicas) for one in topic.partitions] == [1]

    trio.run(see)
    assert killed not in workers.pids()
    assert "worker ended; it is started again" in workers.node.log()
    running = workers.pids()
    assert workers.node.terminate() == 0
    assert not any(Path(f"/proc/{one}").exists() for one in running)
    assert "Traceback" not in workers.node.log()


@pytest.mark.process
def test_a_worker_that_hangs_is_killed_and_started_again(
    nodes: NodeProcesses, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    register = nodes.register()
    where = ["--register", register.url, "--listen", "127.0.0.1:0"]
    where += ["--join-secret", str(join_secret(nodes.directory))]
    own = BrokerSettings(workers=1, data_dir=str(tmp_path / "brokers"))
    some = WorkerOptions(["--role", "broker", *where], own, silence_s=10.0)
    stop, is_ready = trio.Event(), trio.Event()

    async def hang_one() -> None:
        await is_ready.wait()
        async with octopi.connect(register.url) as client:
            os.kill(child_pid(), signal.SIGSTOP)
            incarnation = 1
            while incarnation == 1:
                await trio.sleep(0.05)
                brokers = (await client.admin.describe_cluster()).brokers
                incarnation = brokers[0].incarnation
        stop.set()

    async def run() -> None:
        with trio.fail_after(90):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hang_one)
                await run_workers(some, stop, lambda urls: is_ready.set())

    def children() -> set[int]:
        lists = Path("/proc/self/task").glob("*/children")
        return {int(one) for file in lists for one in file.read_text().split()}

    def child_pid() -> int:
        (worker,) = children() - others
        return worker

    others = children()  # the register, and what earlier tests of this process left running
    trio.run(run)
    assert "worker hangs; it is killed" in caplog.text
    assert "worker ended; it is started again" in caplog.text


@pytest.mark.process
def test_workers_end_when_the_process_that_watches_them_is_killed(nodes: NodeProcesses) -> None:
    workers = Workers(nodes, nodes.register())
    workers.start()
    pids = workers.pids()
    workers.node.kill9()

    def are_gone() -> bool:
        return not any(Path(f"/proc/{one}").exists() for one in pids)

    trio.run(eventually, are_gone, 30.0)


@pytest.mark.process
def test_a_worker_that_can_not_start_ends_all_with_a_clear_line(nodes: NodeProcesses) -> None:
    register = nodes.register()
    workers = Workers(nodes, register)
    (workers.node.data_dir / "worker-2").mkdir(parents=True)
    (workers.node.data_dir / "worker-2/identity").write_bytes(b"no identity")
    workers.node.launch()
    assert workers.node.wait() == 1
    assert "worker 2 ended before it served" in workers.node.log().splitlines()[-1]
    assert "Traceback" not in workers.node.log()
