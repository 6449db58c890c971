"""A register hands its cluster over to its brokers."""

from __future__ import annotations

import trio

from octopi.clients.client import connect
from octopi.clients.ring import hand_over_to_ring
from octopi.testing import Cluster, simulated
from tests.kit.changing import ChangingCluster, OneDecider, register_address
from tests.kit.ring import address
from tests.roles.test_ring_fail_over import Load, stored

THREE = ("a", "b", "c")


@simulated(brokers=1, oracle=False)
async def test_a_register_hands_over_and_nothing_is_lost(cluster: Cluster) -> None:
    changing = ChangingCluster(cluster, THREE)
    await changing.joined()
    environment = await cluster.environment("client")
    servers = [*map(address, THREE)]
    decider = OneDecider(changing)
    async with (
        connect(servers, environment=environment) as client,
        connect([register_address("r")], environment=environment) as operator,
        trio.open_nursery() as nursery,
    ):
        await client.create_topic("orders")
        nursery.start_soon(decider.run)
        load = Load()
        nursery.start_soon(load.run, client, "orders")
        await cluster.eventually(lambda: load.has(50), "messages are acknowledged")
        await hand_over_to_ring(operator)
        await changing.ring.ideal(*THREE)
        count = len(load.acknowledged)
        await cluster.eventually(lambda: load.has(count + 50), "messages are acknowledged again")
        load.stops = True
        await cluster.eventually(
            lambda: len(load.acknowledged) == load.sent_count, "all is acknowledged"
        )
        found = await stored(client, "orders")
        assert found == [b"%d" % number for number in range(load.sent_count)]
        nursery.cancel_scope.cancel()
