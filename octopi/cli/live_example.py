"""The example of `demo --keep`: numbers for browser tabs to read, and leaders that are killed.

The tabs read the topic themselves and count the messages that they miss, which should be none. This
module publishes the numbers, and kills and restarts brokers, until it is cancelled.
"""

from __future__ import annotations

from itertools import count
from typing import Final

import trio

import octopi
from octopi.cli.demonstration import broker_name, pages_of, say, start_broker
from octopi.cli.node_processes import NodeProcesses

TOPIC: Final = "ticks"
_TICK_S: Final = 0.1
_PEACE_S: Final = 12.0
"""The time between two kills."""
_AWAY_S: Final = 4.0
"""The time between a kill and the restart of the broker."""


async def live_example(nodes: NodeProcesses, url: str) -> None:
    """Publish numbers, and kill the broker that leads their partition, repeatedly, until
    cancelled."""
    async with octopi.connect(url) as client:
        await client.create_topic(TOPIC, exist_ok=True)
        say("example", f"{pages_of(url)}/console/example.html (open it in several tabs)")
        say("going on", "until Ctrl-C")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_publish, client)
            while True:
                await trio.sleep(_PEACE_S)
                await _kill_leader(nodes, client, url)


async def _publish(client: octopi.Client) -> None:
    async with client.producer() as producer:
        for number in count():
            await producer.submit(TOPIC, b"%d" % number)
            await trio.sleep(_TICK_S)


async def _kill_leader(nodes: NodeProcesses, client: octopi.Client, url: str) -> None:
    (place,) = (await client.describe_topic(TOPIC)).partitions
    if place.leader is None or len(place.in_sync) < len(place.replicas):
        return  # the broker killed last is not in sync again yet
    await nodes.kill(broker_name(place.leader))
    say("killed", f"broker {place.leader}, the leader of {TOPIC}")
    await trio.sleep(_AWAY_S)
    await start_broker(nodes, place.leader, url)
    say("restarted", f"broker {place.leader}")
