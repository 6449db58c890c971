"""Nodes of the release before run beside nodes of this one, and are replaced one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses, node_processes
from octopi.cli.node_processes import node_command
from octopi.errors import RefusedError, Status
from octopi.transport.handshake import open_connection
from octopi.version import __version__
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT
from tests.kit.cluster import system_environment
from tests.kit.older_node import older_node_command

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

OLDER, NEWER = "octopi-node/0.0.9", f"octopi-node/{__version__}"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeProcesses]:
    with node_processes(tmp_path) as processes:
        yield processes


def older(nodes: NodeProcesses, name: str, role: str, *options: str) -> NodeProcess:
    """A node of the release before, which serves."""
    node = nodes.node(name, role, *options)
    node.command = older_node_command
    return node.start()


async def upgrade(node: NodeProcess) -> None:
    """Stop *node*, and start it as this release, in the same data directory."""
    await trio.to_thread.run_sync(partial(node.terminate, 60))
    node.command = node_command
    await trio.to_thread.run_sync(node.restart)


async def agents(client: octopi.Client) -> list[str]:
    """The program of each live broker."""
    found = (await client.admin.describe_cluster()).brokers
    return [(await client.admin.describe_node(one.address)).agent for one in found if one.live]


async def all_in_sync(client: octopi.Client, topic: str) -> None:
    """Wait until three brokers of the topic's partition are in sync."""
    while True:
        [place] = (await client.describe_topic(topic)).partitions
        if len(place.in_sync) == 3 and place.leader is not None:
            return
        await trio.sleep(0.05)


async def test_a_cluster_is_upgraded_node_by_node_while_a_producer_goes_on(
    nodes: NodeProcesses,
) -> None:
    register = older(nodes, "register", "register", "--gather", "0")
    brokers = [
        older(nodes, f"broker-{number}", "broker", "--register", register.url)
        for number in (1, 2, 3)
    ]
    acknowledged: list[int] = []
    is_upgraded = trio.Event()

    async def produce(client: octopi.Client) -> None:
        async with client.producer() as producer:
            while not is_upgraded.is_set():
                number = len(acknowledged)
                await producer.send("orders", str(number).encode())
                acknowledged.append(number)

    addresses = [register.url, *(one.url for one in brokers)]
    async with octopi.connect(addresses, request_timeout_s=30) as client:
        await client.create_topic("orders")
        await all_in_sync(client, "orders")
        assert set(await agents(client)) == {OLDER}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, client)
            await upgrade(register)
            for count, broker in enumerate(brokers, start=1):
                await upgrade(broker)
                await all_in_sync(client, "orders")
                expected = [OLDER] * (3 - count) + [NEWER] * count
                assert sorted(await agents(client)) == sorted(expected)
            is_upgraded.set()
        async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            found = [int(message.value) async for message in consumer]
    assert acknowledged
    assert found == acknowledged


async def test_the_status_of_a_mixed_cluster_names_each_version(nodes: NodeProcesses) -> None:
    register = nodes.register()
    older(nodes, "broker-1", "broker", "--register", register.url)
    nodes.broker(register, "broker-2")
    done = await trio.run_process(
        node_command("status", "--json", "--server", register.url, "--timeout", "20"),
        capture_stdout=True,
    )
    told = json.loads(done.stdout)
    assert told["asked"]["agent"] == NEWER
    by_agent = {one["agent"]: one for one in told["nodes"]}
    assert by_agent.keys() == {OLDER, NEWER}
    assert by_agent[OLDER]["uptime_s"] is None
    assert by_agent[NEWER]["uptime_s"] >= 0
    assert (by_agent[OLDER]["protocol_version"], by_agent[NEWER]["protocol_version"]) == (1, 2)


async def test_an_older_program_works_with_newer_nodes(nodes: NodeProcesses) -> None:
    register = nodes.register()
    nodes.broker(register)
    server = ("--server", register.url, "--timeout", "20")
    await trio.run_process(older_node_command("produce", "lines", *server), stdin=b"one\ntwo\n")
    read = await trio.run_process(
        older_node_command("consume", "lines", "-e", *server), capture_stdout=True
    )
    assert read.stdout == b"one\ntwo\n"


async def test_a_request_that_an_older_node_does_not_know_is_not_sent_to_it(
    nodes: NodeProcesses,
) -> None:
    register = older(nodes, "register", "register", "--gather", "0")
    async with trio.open_nursery() as nursery:
        environment = system_environment(nursery)
        connection = await open_connection(environment, register.url, CLIENT, "test")
        await nursery.start(connection.run, lambda message: None)
        assert connection.version == 1
        with pytest.raises(RefusedError) as refused:
            await connection.request(m.DescribeNode(1), m.NodeDescription, 20)
        assert refused.value.status == Status.UNSUPPORTED_VERSION
        # The connection goes on, which the older node would have ended.
        await connection.request(m.DescribeCluster(2), m.ClusterDescription, 20)
        await connection.close()
        nursery.cancel_scope.cancel()
