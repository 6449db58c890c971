"""After all machines lost power, as real processes and the program see it.

Power fails by killing every process and having its data directory say that it was written
before another boot of the machine: nothing is lost, and no node can know that.
"""

import json
from pathlib import Path

import pytest
import trio

import octopi
from octopi.operating_system import SystemDisk
from octopi.storage import checkpoint
from tests.cli.conftest import Program
from tests.cli.test_replicated_cluster import ThreeBrokers, three_brokers
from tests.processes import NodeProcesses

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


def send(url: str, *, flush_before_ack: bool = False) -> None:
    async def main() -> None:
        async with octopi.connect(url) as client:
            await client.create_topic("orders", at=[0], flush_before_ack=flush_before_ack)
            async with client.producer() as producer:
                for value in VALUES:
                    await producer.send("orders", value)

    trio.run(main)


def read(url: str) -> list[bytes]:
    async def main() -> list[bytes]:
        async with (
            octopi.connect(url) as client,
            client.consumer("orders", start="earliest", stop_at_end=True) as consumer,
        ):
            return [one.value async for one in consumer]

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
    assert program("status").exit_code == 0
