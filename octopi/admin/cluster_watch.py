"""Takes snapshots of the whole cluster for the pages of a node.

Every node can do so, as a client of the register and the brokers; so a page needs to know only one
node.  Snapshots are cached, and shared by all requests until they expire: after `LOOK_INTERVAL_S`,
or later if taking one takes long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from octopi.admin.cluster_snapshot import (
    ClusterSnapshot,
    Holdings,
    ReplicaStatus,
    look,
    look_at_logs,
    problems,
)
from octopi.admin.message_count_watch import MessageCountWatch
from octopi.admin.page_writer import InSlices
from octopi.admin.relay_look import RelayLook, look_at_relays
from octopi.admin.ring_look import RingLook, look_at_ring
from octopi.admin.subscription_watch import SubscriptionWatch
from octopi.clients.answers import BrokerLog
from octopi.clients.client import Client
from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.connections import Connections
from octopi.clients.credentials import Credentials
from octopi.clients.routing import RequestRouter
from octopi.environment import Environment
from octopi.errors import NotReadyError, OctopiError
from octopi.identifiers import PartitionId
from octopi.limits import (
    LOOK_INTERVAL_S,
    LOOK_SHARE_MAX,
    LOOK_TIMEOUT_S,
    PAGE_SLICE_COUNT,
)
from octopi.wire.messages import (
    BrokerInfo,
    DescribeEvents,
    DescribeReadings,
    EventList,
    ReadingInfo,
    ReadingList,
    TopicInfo,
)

PROBLEMS_SHOWN_MAX: Final = 100

REGISTER_AWAY: Final = (
    "the register does not answer: producing and consuming go on, no leader is replaced until it "
    "is back; start it again"
)

RING_AWAY: Final = (
    "not all brokers that keep records of topics answer: what was known last of topics and leaders "
    "is shown; see which brokers are down (`octopi-node ring show`)"
)


@attrs.frozen
class CachedSnapshot:
    """A snapshot of a cluster.  Its parts are not of exactly the same moment."""

    seen_at_ms: int
    look: ClusterSnapshot
    topics: list[TopicInfo]
    readings: list[tuple[int, ReadingInfo]]
    """The readings, each with the broker that serves it."""
    truncated: bool
    """Whether there are more readings."""
    events: EventList
    replicas: dict[PartitionId, list[ReplicaStatus]]
    """The replicas by partition, the leader first."""
    copies: dict[tuple[str, int], list[BrokerLog]]
    """The logs by topic id and partition."""
    problems: list[str]
    """Problems of the cluster as texts, at most `PROBLEMS_SHOWN_MAX`."""
    topics_of: dict[PartitionId, list[str]] = attrs.field(factory=dict)
    """The names of the topics of each partition, sorted."""
    min_insync: dict[PartitionId, int] = attrs.field(factory=dict)
    """The greatest `min_insync` of each partition's topics."""
    register_heard_at_ms: int = 0
    """When the register answered last."""
    register_trouble: str = ""
    """Why the register did not answer: what it said last is shown again.  Empty: it did."""
    ring: RingLook | None = None
    """What brokers say of the ring, in a cluster without a register."""
    relays: RelayLook | None = None
    """What relays say of topics in memory; None: there is none."""


class ClusterWatch:
    """Takes snapshots of the cluster that a node belongs to, while `run` runs."""

    def __init__(
        self,
        environment: Environment,
        servers: Callable[[], list[str]],
        agent: str,
        credentials: Credentials,
        *,
        in_ring: bool = False,
    ) -> None:
        """*servers* returns the addresses of the register, or of the node itself *in_ring*: in a
        cluster without one."""
        self._in_ring = in_ring
        self._environment = environment
        self._servers = servers
        self._agent = agent
        self._credentials = credentials
        self._cluster: ClusterHandle | None = None
        self._looking = trio.Lock()
        self._last: CachedSnapshot | None = None
        self._fresh_until = -math.inf
        self.subscriptions = SubscriptionWatch(environment.clock, self._router)
        self.message_counts = MessageCountWatch(environment.clock, self._router)

    async def run(self) -> None:
        """Run the connections, until cancelled."""
        async with trio.open_nursery() as nursery:
            connections = Connections(self._environment, nursery, self._agent, self._credentials)
            self._cluster = ClusterHandle.of(
                self._environment, connections, self._servers(), LOOK_TIMEOUT_S
            )
            await trio.sleep_forever()

    def _router(self) -> RequestRouter:
        if self._cluster is None:
            raise NotReadyError("the node is starting")
        return self._cluster.router

    async def snapshot(self) -> CachedSnapshot:
        """A snapshot that has not expired, taken now if there is none.

        Raises:
          OctopiError: if the register can't be reached.
        """
        clock = self._environment.clock
        async with self._looking:
            if self._last is None or clock.now() >= self._fresh_until:
                began = clock.now()
                self._last = await self._look()
                took_s = clock.now() - began
                self._fresh_until = clock.now() + max(LOOK_INTERVAL_S, took_s / LOOK_SHARE_MAX)
            return self._last

    async def _look(self) -> CachedSnapshot:
        router = self._router()
        assert self._cluster is not None
        client, last = Client(self._cluster), self._last
        trouble, heard_at_ms = "", self._environment.clock.wall_ms()
        try:
            seen = await look(client, in_order=False)
            topics = await client.topics()
            events = await router.ask_register(
                "describe events", partial(DescribeEvents, after=0), EventList
            )
        except OctopiError as error:
            if last is None:
                raise
            # The brokers go on without the register, and so does what is shown of them.  In a ring
            # some broker that keeps records of topics does not answer, or has just begun to.
            trouble, heard_at_ms = str(error), last.register_heard_at_ms
            topics, events = last.topics, last.events
            seen = await look_at_logs(client, last.look.cluster, in_order=False)
        ring = None
        if self._in_ring:
            ring = await look_at_ring(router, self._servers()[0], seen.cluster.brokers)
        lists: dict[int, ReadingList] = {}

        async def ask(broker: BrokerInfo) -> None:
            try:
                lists[broker.broker] = await router.ask_broker(
                    "describe readings",
                    broker.address,
                    partial(DescribeReadings, topic=""),
                    ReadingList,
                )
            except OctopiError as error:
                seen.silent[broker.broker] = str(error)

        async with trio.open_nursery() as nursery:
            for broker in seen.cluster.brokers:
                if broker.live and broker.broker not in seen.silent:
                    nursery.start_soon(ask, broker)
        holdings = Holdings(seen)
        copies: dict[tuple[str, int], list[BrokerLog]] = {}
        async for held in InSlices(seen.logs, 10 * PAGE_SLICE_COUNT):
            holdings.add(held)
            copies.setdefault((held.log.topic_id, held.log.partition), []).append(held)
        found = {
            place.partition: holdings.replicas_of(place)
            async for place in InSlices(seen.cluster.partitions, 1)
        }
        names: dict[PartitionId, list[str]] = {}
        min_insync: dict[PartitionId, int] = {}
        in_memory: list[TopicInfo] = []
        async for info in InSlices(topics, 10 * PAGE_SLICE_COUNT):
            if info.is_relay:
                in_memory.append(info)
                continue
            for one in info.partitions:
                names.setdefault(one.partition, []).append(info.topic)
                needed = max(info.options.min_insync, min_insync.get(one.partition, 1))
                min_insync[one.partition] = needed
        relays = await look_at_relays(router, in_memory, seen.cluster.brokers)
        away = [RING_AWAY if self._in_ring else REGISTER_AWAY] if trouble else []
        return CachedSnapshot(
            self._environment.clock.wall_ms(),
            seen,
            topics,
            [(broker, one) for broker in sorted(lists) for one in lists[broker].readings],
            any(one.more for one in lists.values()),
            events,
            found,
            copies,
            some_of([*away, *problems(seen)]),
            names,
            min_insync,
            heard_at_ms,
            trouble,
            ring,
            relays,
        )


def some_of(lines: list[str]) -> list[str]:
    """The first `PROBLEMS_SHOWN_MAX` of *lines*, and a line with the number of the others."""
    if len(lines) <= PROBLEMS_SHOWN_MAX:
        return lines
    return [*lines[:PROBLEMS_SHOWN_MAX], f"and {len(lines) - PROBLEMS_SHOWN_MAX:,} more"]
