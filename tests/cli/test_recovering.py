"""After all machines lost power, as real processes and the program see it.

Power fails by killing every process and having its data directory say that it was written
before another boot of the machine: nothing is lost, and no node can know that.
"""

import json
import shutil
import time
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcesses
from octopi.operating_system import SystemDisk
from octopi.storage import checkpoint
from tests.cli.conftest import Program
from tests.cli.test_replicated_cluster import WAIT_S, ThreeBrokers, three_brokers

pytestmark = pytest.mark.process

VALUES = [b"%d" % number for number in range(50)]


def rebooted(path: Path) -> None:
    """Have a node's file say that the machine was started again since."""
    disk = SystemDisk()
    known = checkpoint.load(disk, str(path))
    assert known is not None
    assert "page_cache" in known

    async def store() -> None:
        await checkpoint.store(disk, str(path), known | {"page_cache": "of an earlier boot"})

    trio.run(store)


def lose_power(cluster: ThreeBrokers) -> None:
    for node in (cluster.register, *cluster.brokers):
        node.kill9()
    rebooted(cluster.register.data_dir / "journal" / "current")
    for broker in cluster.brokers:
        rebooted(broker.data_dir / "identity")


def send(url: str, topic: str = "orders", *, flush_before_ack: bool = False) -> None:
    async def main() -> None:
        async with octopi.connect(url) as client:
            await client.create_topic(
                topic, partition_ids=[0], flush_before_ack=flush_before_ack, exist_ok=True
            )
            async with client.producer() as producer:
                for value in VALUES:
                    await producer.send(topic, value)

    trio.run(main)


def read(url: str, start: str = "earliest") -> list[bytes]:
    """The values of the topic ``orders`` from a position on."""
    return read_on(url, start)[0]


def read_on(url: str, start: str = "earliest") -> tuple[list[bytes], str]:
    """The same, and the position behind them."""

    async def main() -> tuple[list[bytes], str]:
        async with (
            octopi.connect(url) as client,
            client.consumer("orders", start=start, stop_at_end=True) as consumer,
        ):
            return [one.value async for one in consumer], str(consumer.position)

    return trio.run(main)


def test_a_cluster_whose_machines_all_lost_power_goes_on_by_itself(nodes: NodeProcesses) -> None:
    cluster = three_brokers(nodes)
    send(cluster.register.url)
    lose_power(cluster)
    for node in (cluster.register, *cluster.brokers):
        node.start()
    assert read(cluster.register.url) == VALUES
    assert "acknowledged records may be lost" in cluster.register.log()


def test_a_broker_that_never_comes_back_after_a_power_failure_is_given_up_by_a_command(
    nodes: NodeProcesses, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = three_brokers(nodes)
    send(cluster.register.url)
    lose_power(cluster)
    for node in (cluster.register, *cluster.brokers[:2]):
        node.start()
    monkeypatch.setenv("OCTOPI_SERVER", cluster.register.url)

    status = program("status")
    assert status.exit_code == 1, status.stdout
    assert "partition 0: it waits for broker 3" in status.stdout
    assert "`octopi-node partitions recover 0`" in status.stdout

    shown = program("partitions", "recover", "0")
    assert shown.exit_code == 1, shown.stderr
    assert "it waits for brokers 3: start them" in shown.stdout
    assert "known: nothing" in shown.stdout
    assert json.loads(program("partitions", "recover", "0", "--json").stdout)["waits_for"] == [3]

    ordered = program("partitions", "recover", "0", "--accept-loss")
    assert ordered.exit_code == 0, ordered.stderr
    assert "leads now" in ordered.stdout
    assert read(cluster.register.url) == VALUES
    assert "note: partition 0: in epoch" in program("status").stdout
    assert "note: partition 0: in epoch" in program("partitions", "list").stdout

    again = program("partitions", "recover", "0", "--accept-loss")
    assert again.exit_code != 0
    assert "nothing has to be given up" in again.stderr


def eventually_healthy(program: Program) -> None:
    """Wait until the register has heard that all is well again."""
    deadline = time.monotonic() + 20
    while (result := program("status")).exit_code:
        assert time.monotonic() < deadline, result.output


def test_a_damaged_sole_copy_goes_on_with_what_is_sound_by_the_command(
    nodes: NodeProcesses, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = nodes.register("register", "--gather", "0", "--replicas", "1")
    broker = nodes.broker(register)
    send(register.url, flush_before_ack=True)
    broker.kill9()
    (segment,) = broker.data_dir.glob("logs/0/orders/*.log")
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])
    broker.start()
    monkeypatch.setenv("OCTOPI_SERVER", register.url)
    assert program("status").exit_code == 1

    shown = program("partitions", "recover", "0")
    assert shown.exit_code != 0
    assert "--accept-loss" in shown.stderr

    ordered = program("partitions", "recover", "0", "--accept-loss")
    assert ordered.exit_code == 0, ordered.stderr
    assert "leads now" in ordered.stdout
    assert "known: topic orders" in ordered.stdout
    left = read(register.url)
    assert 0 < len(left) < len(VALUES)
    assert left == VALUES[: len(left)]
    eventually_healthy(program)


def test_a_partition_that_lost_all_its_disks_begins_again_by_the_command(
    nodes: NodeProcesses, program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = three_brokers(nodes, "--replicas", "2")
    url = cluster.register.url
    send(url)
    send(url, "bills")
    monkeypatch.setenv("OCTOPI_SERVER", url)
    held = json.loads(program("status", "--json").stdout)["partitions"][0]["replicas"]
    _, position = read_on(url)
    for broker in held:
        cluster.brokers[broker - 1].kill9()
        shutil.move(cluster.brokers[broker - 1].data_dir, tmp_path / f"lost-{broker}")
    (left,) = {1, 2, 3} - set(held)

    for arguments in ((), ("--empty-on", str(held[0])), ("--empty-on", "9")):
        assert program("partitions", "recover", "0", *arguments).exit_code != 0
    deadline = time.monotonic() + 20  # the register waits for them first: they might come back
    while "no replica answers" not in (shown := program("partitions", "recover", "0")).stdout:
        assert shown.exit_code == 4, shown.stderr
        assert time.monotonic() < deadline, shown.stderr
    assert "`octopi-node partitions recover 0 --empty-on ID`" in shown.stdout
    refused = program("partitions", "recover", "0", "--accept-loss")
    assert refused.exit_code == 4
    assert "--empty-on" in refused.stderr

    asked = program("partitions", "recover", "0", "--empty-on", str(left))
    assert asked.exit_code == 1, asked.stderr
    assert f"--accept-loss lets it begin again on broker {left}, empty" in asked.stdout
    assert (
        "all messages of these topics in this partition would be lost: bills orders" in asked.stdout
    )

    ordered = program("partitions", "recover", "0", "--empty-on", str(left), "--accept-loss")
    assert ordered.exit_code == 0, ordered.stderr
    assert f"broker {left} leads now" in ordered.stdout
    assert "in this partition are lost: bills orders" in ordered.stdout
    assert read(url) == []
    assert "all of orders" in cluster.register.log()
    assert "note: partition 0: in epoch" in program("status").stdout
    send(url)
    assert read(url) == VALUES
    with pytest.raises(octopi.HistoryForkedError):
        read(url, position)

    again = program("partitions", "recover", "0", "--empty-on", str(left), "--accept-loss")
    assert again.exit_code != 0
    assert f"has a replica on broker {left}, which runs" in again.stderr

    # One of the disks was not lost after all: what it has is put away, and can be read.
    back = cluster.brokers[held[0] - 1]
    shutil.move(tmp_path / f"lost-{held[0]}", back.data_dir)
    back.start()
    deadline = time.monotonic() + WAIT_S
    printed = None
    while printed is None or printed.exit_code or not printed.stdout:
        assert time.monotonic() < deadline
        listed = program("retired", "list", str(back.data_dir), "--json")
        for one in json.loads(listed.stdout):  # it has another name while it is being moved
            directory = back.data_dir / "retired" / one["name"]
            log = directory / "logs/0/orders"
            printed = program("salvage", str(directory), "--print", str(log))
    assert printed.stdout.split() == [value.decode() for value in VALUES]
    assert read(url) == VALUES
