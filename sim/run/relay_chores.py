"""What the operator of a run does with topics in memory."""

from __future__ import annotations

from random import Random

from octopi.clients.client import Client
from octopi.errors import OctopiError, RefusedError, Status
from octopi.limits import RELAYS_MIN
from octopi.retry import may_pass
from octopi.simulation.history.events import LogName, TopicCreation
from sim.run.client_log import ClientLog


async def make_relay_topics(client: Client, client_log: ClientLog, who: str) -> None:
    """Create the topics in memory of a run.  *who*: the host that complains if that fails."""
    for topic in client_log.relay_topics:
        if any(one.topic == topic for one in client_log.streams):
            continue  # this program has made it before its host was killed
        while True:
            try:
                info = await client.create_topic(
                    topic,
                    kind="relay",
                    exist_ok=True,
                    buffer_count=client_log.plan.workload.relay_buffer_count,
                )
                break
            except OctopiError as error:
                # Too few brokers can take it now: some are down, drained, or have full disks.
                are_few = isinstance(error, RefusedError) and error.status == Status.INVALID_OPTION
                if not may_pass(error) and not are_few:
                    client_log.complain(who, error)
        client_log.cluster.relays.topics.add(topic)
        client_log.note(TopicCreation(client_log.now, topic))
        [place] = info.partitions
        stream = LogName(topic, place.partition)
        client_log.streams.append(stream)
        client_log.stream_ids[info.topic_id] = stream


async def set_relays(client: Client, randomness: Random, timeout_s: float) -> None:
    """Give a relay partition other members: one more, one less, or another one for one of them."""
    cluster = await client.admin.describe_cluster()
    if not cluster.relays:
        return
    place = randomness.choice(cluster.relays)
    members = list(place.replicas)
    others = [one.broker for one in cluster.brokers if one.live and one.broker not in members]
    ways = ["swap", "grow"] if others else []
    if len(members) > RELAYS_MIN:
        ways += ["shrink", "shrink"]
    if not ways:
        return
    way = randomness.choice(ways)
    if way != "grow":
        members.remove(randomness.choice(members))
    if way != "shrink":
        members.append(randomness.choice(others))
    await client.admin.set_relays(place.partition, members, timeout_s=timeout_s)
