"""Relay topics beside log topics, in a cluster of processes with a register."""

from __future__ import annotations

import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses
from tests.cli.conftest import Program

pytestmark = pytest.mark.process

BROKERS = 3
EACH = 60
"""Messages of each producer."""


def start_cluster(nodes: NodeProcesses) -> tuple[NodeProcess, list[NodeProcess]]:
    register = nodes.register()
    brokers = [
        nodes.broker(register, f"broker-{number}", "--id", str(number))
        for number in range(1, BROKERS + 1)
    ]
    return register, brokers


def test_a_sequencer_is_killed_and_neither_memory_nor_logs_lose_or_double_anything(
    nodes: NodeProcesses,
) -> None:
    _, brokers = start_cluster(nodes)
    trio.run(kill_the_sequencer_under_load, brokers)


async def kill_the_sequencer_under_load(brokers: list[NodeProcess]) -> None:
    seen: dict[str, list[bytes]] = {"prices": [], "orders": []}
    under_way = {topic: trio.Event() for topic in seen}
    entrances = [one.url for one in brokers]

    async def produce(topic: str) -> None:
        async with octopi.connect(entrances) as client, client.producer() as producer:
            for count in range(1, EACH):
                await producer.send(topic, b"%d" % count)
                if count == EACH // 3:
                    under_way[topic].set()
                await trio.sleep(0.005)  # so that it goes on while the sequencer is away

    async def consume(topic: str) -> None:
        async with (
            octopi.connect(entrances) as client,
            client.consumer(topic, start="earliest") as consumer,
        ):
            while len(seen[topic]) < EACH:
                seen[topic].append((await consumer.__anext__()).value)

    async with octopi.connect(entrances) as client:
        await client.create_topic("prices", kind="relay")
        await client.create_topic("orders", min_insync=2)
        async with client.producer() as producer:
            for topic in seen:
                await producer.send(topic, b"0")
        [place] = (await client.describe_topic("prices")).partitions
        assert place.leader is not None
        sequencer = brokers[place.leader - 1]
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            for topic in seen:
                nursery.start_soon(produce, topic)
                nursery.start_soon(consume, topic)
            for event in under_way.values():
                await event.wait()
            sequencer.kill9()
            await trio.to_thread.run_sync(sequencer.start)
    for topic, values in seen.items():
        assert values == [b"%d" % count for count in range(EACH)], topic


def test_commands_make_and_show_a_relay_topic(nodes: NodeProcesses, program: Program) -> None:
    register, _ = start_cluster(nodes)
    server = ["--server", register.url]
    made = program(
        "topics", "create", "prices", "--kind", "relay", "--buffer-bytes", "1MiB", *server
    )
    assert made.exit_code == 0, made.stderr
    assert made.stdout == "created prices in the memory of brokers 1 2 3\n"
    assert program("topics", "create", "orders", *server).exit_code == 0
    listed = [line.split() for line in program("topics", "list", *server).stdout.splitlines()]
    assert [line[:2] for line in listed[1:]] == [["orders", "log"], ["prices", "relay"]]
    described = program("topics", "describe", "prices", *server).stdout
    assert "in memory: buffer_bytes 1048576" in described
    status = program("status", *server)
    assert status.exit_code == 0, status.stdout
    assert "RELAY PARTITION" in status.stdout
    assert "normal" in program("relay", "status", *server).stdout
    assert program("relay", "verify", "prices", *server).exit_code == 0
    refused = program("relay", "set", "0", "1,x", *server)
    assert "ids of brokers" in refused.stderr
    assert program("topics", "delete", "prices", "--yes", *server).exit_code == 0
