"""The example of `demo --keep`: numbers for browser tabs to read, and leaders that are killed.

The tabs read the topic themselves and count the messages that they miss, which should be none. This
module publishes the numbers, and kills and restarts brokers, until it is cancelled.
"""

from __future__ import annotations

from itertools import count
from typing import Final

import trio

import octopi
from octopi.cli.demo_cluster import DemoBrokers
from octopi.cli.demonstration import pages_of, say

TOPIC: Final = "ticks"
_TICK_S: Final = 0.1
_PEACE_S: Final = 12.0
"""The time between two kills."""
_AWAY_S: Final = 4.0
"""The time between a kill and the restart of the broker."""


async def live_example(cluster: DemoBrokers) -> None:
    """Publish numbers, and kill the broker that leads their partition, repeatedly, until
    cancelled."""
    async with octopi.connect(cluster.addresses) as client:
        await client.create_topic(TOPIC, exist_ok=True)
        say("example", f"{pages_of(cluster)}/console/example.html (open it in several tabs)")
        say("going on", "until Ctrl-C")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_publish, client)
            while True:
                await trio.sleep(_PEACE_S)
                await _kill_leader(cluster, client)


async def _publish(client: octopi.Client) -> None:
    async with client.producer() as producer:
        for number in count():
            await producer.submit(TOPIC, b"%d" % number)
            await trio.sleep(_TICK_S)


async def _kill_leader(cluster: DemoBrokers, client: octopi.Client) -> None:
    (place,) = (await client.describe_topic(TOPIC)).partitions
    if place.leader is None or len(place.in_sync) < len(place.replicas):
        return  # the broker killed last is not in sync again yet
    await cluster.kill_broker(place.leader)
    say("killed", f"broker {place.leader}, the leader of {TOPIC}")
    await trio.sleep(_AWAY_S)
    await cluster.start_broker(place.leader)
    say("restarted", f"broker {place.leader}")
