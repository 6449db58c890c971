"""The demonstration of a cluster without a register: the leader of the topic's partition is killed,
and the broker that decides about the topic, which is the leader of its home.

The topic is put on a partition that another broker leads.  Where two brokers may be away at once,
both are killed; otherwise one after the other, and the first is in sync again before.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import attrs
import trio

import octopi
from octopi.cli.demo_cluster import DemoBrokers, broker_name
from octopi.cli.demonstration import STREAM_S_MIN, TOPIC, DemoLoad, Trial, say, until
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.free_ports import free_ports
from octopi.cli.node_processes import NodeProcesses
from octopi.clients.ring import locate
from octopi.limits import FOUNDERS_MAX

_BROKERS: Final = range(3, FOUNDERS_MAX + 1)
_TWO_AWAY_MIN: Final = 5
"""With three replicas, so many brokers go on while two of them are away."""
_RETENTION: Final = timedelta(days=30)
"""An option of the topic that is changed, to see that its home decides again."""


def check_options(brokers: int, registers: int) -> None:
    """Check what the options ask for.

    Raises:
      CommandError: if they can't be combined with `--ring`.
    """
    if registers > 1:
        raise CommandError(
            "--registers is not an option with --ring: there is no register", ExitCode.USAGE
        )
    if brokers not in _BROKERS:
        raise CommandError(
            f"--ring runs {_BROKERS[0]} to {_BROKERS[-1]} brokers, not {brokers}", ExitCode.USAGE
        )


class RingCluster(DemoBrokers):
    """Brokers without a register, which form their cluster."""

    def __init__(self, nodes: NodeProcesses) -> None:
        super().__init__(nodes)
        self._secret = ""

    async def start(self, broker_count: int) -> None:
        self._secret = self.make_secret()
        # A founder's id is the place of its address in the sorted list.
        self.addresses = tuple(
            sorted(f"ws://127.0.0.1:{port}" for port in free_ports(broker_count))
        )
        async with trio.open_nursery() as nursery:
            for broker in range(1, broker_count + 1):
                nursery.start_soon(self.start_broker, broker)

    async def start_broker(self, broker: int) -> None:
        listen = self.addresses[broker - 1].removeprefix("ws://")
        await self.nodes.start(
            broker_name(broker),
            "broker",
            *("--listen", listen, "--join", ",".join(self.addresses)),
            *("--join-secret", self._secret),
        )


@attrs.frozen
class _Round:
    """Brokers that are away at the same time."""

    kill_at: float
    restart_at: float
    """Shares of the stream that are acknowledged by then."""
    kills: tuple[Callable[[DemoLoad, octopi.Client], Awaitable[int]], ...]
    """Each kills a broker, and returns which, when another one has taken over."""


class RingTrial(Trial):
    """A cluster without a register, whose leader is killed, and the leader of the topic's home."""

    killed = "the leader and of the leader of the topic's home"

    def __init__(self, nodes: NodeProcesses, broker_count: int) -> None:
        self.cluster: RingCluster = RingCluster(nodes)
        leader, home = self._kill_leader, self._kill_home
        if broker_count >= _TWO_AWAY_MIN:
            self._rounds = [_Round(0.25, 0.5, (leader, home))]
        else:
            self._rounds = [_Round(0.15, 0.3, (leader,)), _Round(0.6, 0.75, (home,))]
            self.stream_s_min = 2 * STREAM_S_MIN
        self._home = 0

    def members(self, brokers: str) -> str:
        return f"{brokers} without a register"

    async def create_topic(self, client: octopi.Client) -> octopi.PartitionInfo:
        self._home = (await locate(client, TOPIC)).partition
        await until("every partition led, with all replicas", lambda: _in_sync(client))
        places = (await client.admin.describe_cluster()).partitions
        leaders = {one.partition: one.leader for one in places}
        home_leader = leaders[self._home]
        say(
            "home",
            f"partition {self._home} keeps the record of topic {TOPIC}: "
            f"led by broker {home_leader}, which decides about the topic",
        )
        # The last broker that there is, since the first one serves the console.
        other = max(
            (one for one in places if one.leader != home_leader), key=lambda one: one.leader or 0
        )
        ids = [other.partition]
        (place,) = (await client.create_topic(TOPIC, partition_ids=ids)).partitions
        return place

    async def kill(self, load: DemoLoad) -> None:
        async with octopi.connect(self.cluster.addresses) as client:
            for one in self._rounds:
                await load.acknowledged(one.kill_at)
                async with load.pause_told():
                    victims = [await kill(load, client) for kill in one.kills]
                    await load.acknowledged(one.restart_at)
                await self._restart(victims, client)

    async def _kill_leader(self, load: DemoLoad, client: octopi.Client) -> int:
        (place,) = (await client.describe_topic(TOPIC)).partitions
        victim = (await _leader(client, place.partition)).leader
        assert victim is not None, "it was waited for"
        await load.kill_leader(victim)
        return victim

    async def _kill_home(self, load: DemoLoad, client: octopi.Client) -> int:
        victim = (await _leader(client, self._home)).leader
        assert victim is not None, "it was waited for"
        before = load.producer.acknowledged_count
        killed_at = time.perf_counter()
        await self.cluster.kill_broker(victim)
        says = f"broker {victim}, the leader of the home, after {before:,} acknowledgements"
        say("killed", says)
        place = await _leader(client, self._home, but=victim)
        elected_s = time.perf_counter() - killed_at
        says = f"broker {place.leader} for the home, epoch {place.epoch}, after {elected_s:.2f} s"
        say("elected", says)
        await client.alter_topic(TOPIC, retention=_RETENTION)
        decided_s = time.perf_counter() - killed_at
        says = f"retention of topic {TOPIC} changed, {decided_s:.2f} s after the kill"
        say("decided", says)
        return victim

    async def _restart(self, victims: list[int], client: octopi.Client) -> None:
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for victim in victims:
                nursery.start_soon(self.cluster.start_broker, victim)
        await until("every replica in sync again", lambda: _in_sync(client))
        brokers = " and ".join(f"broker {one}" for one in victims)
        after_s = time.perf_counter() - began
        say("restarted", f"{brokers}: everything in sync again {after_s:.2f} s after the start")


async def _leader(
    client: octopi.Client, partition: int, *, but: int | None = None
) -> octopi.PartitionInfo:
    """A partition, as soon as it has a leader, which is not broker *but*."""

    async def led() -> octopi.PartitionInfo | None:
        places = (await client.admin.describe_cluster()).partitions
        place = next(one for one in places if one.partition == partition)
        return place if place.leader not in {None, but} else None

    return await until(f"a leader of partition {partition}", led)


async def _in_sync(client: octopi.Client) -> bool | None:
    """Whether all partitions have leaders, and all their replicas are in sync and there."""
    places = (await client.admin.describe_cluster()).partitions
    return (
        all(
            one.leader is not None
            and set(one.in_sync) == set(one.replicas)
            and len(one.readers) == len(one.replicas)
            for one in places
        )
        or None
    )
