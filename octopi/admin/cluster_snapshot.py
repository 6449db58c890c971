"""The state of a cluster's replicas, for the console, `status` and `topics describe`.

The register knows which brokers have replicas; each broker knows the ends of its own logs.  A
snapshot combines both.  The answers are not of exactly the same moment, so a lag is approximate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from octopi.errors import ConnectionLostError, NotReadyError, RefusedError, UnreachableError
from octopi.model import TopicKind

if TYPE_CHECKING:
    from octopi import (
        BrokerInfo,
        BrokerLog,
        Client,
        ClusterInfo,
        ClusterLoads,
        LogInfo,
        NodeInfo,
        PartitionInfo,
        UnservedTopic,
    )


TAKES_NOTHING: Final = "takes no records"
"""State of a partition whose leader can't append while no other replica can lead."""

FULL_DISK_HELP: Final = (
    "free space on that disk, or move replicas away: `octopi-node partitions move`, or without a "
    "register `octopi-node ring leave`"
)


@attrs.frozen
class ClusterSnapshot:
    """Answers of the register and of all live brokers."""

    cluster: ClusterInfo
    logs: list[BrokerLog]
    silent: dict[int, str]
    """Brokers that are live at the register but did not answer, with the reason."""
    nodes: dict[int, NodeInfo] = attrs.field(factory=dict)
    """The live brokers that answered, as they describe themselves."""
    asked: NodeInfo | None = None
    """The node that was asked about the cluster; it is the register, or a broker that passed the
    question on."""
    loads: ClusterLoads | None = None
    """How much brokers have to do; None: it is not known."""


async def loads_of(client: Client) -> ClusterLoads | None:
    """How much brokers have to do; None: the cluster has no register, or one of an earlier version.

    Raises:
      OctopiError: if the register can't be reached.
    """
    try:
        return await client.admin.describe_loads()
    except RefusedError:
        return None


async def look(
    client: Client, topic: str | None = None, *, in_order: bool = True
) -> ClusterSnapshot:
    """Request the cluster's state from the register, and the logs of *topic* (None: of all topics)
    from all live brokers.  *in_order* sorts the logs by topic, partition and broker.

    Raises:
      OctopiError: if the register can't be reached, or the topic does not exist.
    """
    cluster = await client.admin.describe_cluster()
    asked = await client.admin.describe_node()
    loads = await loads_of(client)
    seen = await look_at_logs(client, cluster, topic, in_order=in_order)
    return attrs.evolve(seen, asked=asked, loads=loads)


async def look_at_logs(
    client: Client, cluster: ClusterInfo, topic: str | None = None, *, in_order: bool = True
) -> ClusterSnapshot:
    """Request the logs of *topic* (None: of all topics) from the live brokers of *cluster*,
    what the register said last.

    Raises:
      OctopiError: if the topic does not exist.
    """
    import trio

    logs: list[BrokerLog] = []
    silent: dict[int, str] = {}
    nodes: dict[int, NodeInfo] = {}

    async def ask(broker: BrokerInfo) -> None:
        try:
            logs.extend(await client.admin.describe_logs(topic, brokers=[broker]))
            nodes[broker.broker] = await client.admin.describe_node(broker.address)
        except (NotReadyError, UnreachableError, ConnectionLostError) as error:
            silent[broker.broker] = str(error)

    async with trio.open_nursery() as nursery:
        for broker in cluster.brokers:
            if broker.live:
                nursery.start_soon(ask, broker)
    if in_order:
        logs.sort(key=lambda one: (one.log.topic, one.log.partition, one.broker))
    return ClusterSnapshot(cluster, logs, silent, nodes)


async def look_at_brokers(
    client: Client,
) -> tuple[ClusterInfo, dict[int, NodeInfo], ClusterLoads | None]:
    """The cluster, the live brokers that answer, as they describe themselves, and how much brokers
    have to do, if that is known.

    Raises:
      OctopiError: if the register can't be reached.
    """
    import trio

    cluster = await client.admin.describe_cluster()
    nodes: dict[int, NodeInfo] = {}

    async def ask(broker: BrokerInfo) -> None:
        with suppress(NotReadyError, UnreachableError, ConnectionLostError):
            nodes[broker.broker] = await client.admin.describe_node(broker.address)

    async with trio.open_nursery() as nursery:
        for broker in cluster.brokers:
            if broker.live:
                nursery.start_soon(ask, broker)
    return cluster, nodes, await loads_of(client)


@attrs.frozen
class ReplicaStatus:
    """One replica of a partition.  Sizes and offsets are sums over its logs, in bytes; None if
    unknown."""

    partition: int
    broker: int
    role: str
    """``leader`` or ``follower``."""
    state: str
    """``in sync``, ``behind``, ``away`` or ``silent``."""
    log_count: int | None
    log_start: int | None
    log_end: int | None
    highwater: int | None
    lag_bytes: int | None
    """Bytes that the leader has and this replica lacks."""
    size_bytes: int | None


def replicas(seen: ClusterSnapshot, partitions: Iterable[PartitionInfo]) -> list[ReplicaStatus]:
    """The replicas of *partitions*, in their order, leaders first."""
    holdings = Holdings(seen)
    for one in seen.logs:
        holdings.add(one)
    return [status for place in partitions for status in holdings.replicas_of(place)]


class Holdings:
    """The logs of each broker and partition.  Filled log by log, so that the caller can yield."""

    def __init__(self, seen: ClusterSnapshot) -> None:
        self._live = live_brokers(seen.cluster)
        self._silent = seen.silent
        self._held: dict[tuple[int, int], list[LogInfo]] = {}

    def add(self, one: BrokerLog) -> None:
        """Add a log of a broker.  Streams in memory are none, and their partitions have numbers of
        their own."""
        if one.log.kind != TopicKind.LOG:
            return
        self._held.setdefault((one.log.partition, one.broker), []).append(one.log)

    def replicas_of(self, place: PartitionInfo) -> list[ReplicaStatus]:
        """The replicas of a partition, the leader first."""
        return [
            self._status(place, broker)
            for broker in sorted(place.replicas, key=lambda one: (one != place.leader, one))
        ]

    def _logs_at(self, partition: int, broker: int | None) -> list[LogInfo] | None:
        if broker is None or broker not in self._live or broker in self._silent:
            return None
        return self._held.get((partition, broker), [])

    def _status(self, place: PartitionInfo, broker: int) -> ReplicaStatus:
        logs = self._logs_at(place.partition, broker)
        if logs is not None:
            state = "in sync" if broker in place.in_sync else "behind"
        else:
            state = "silent" if broker in self._live else "away"
        return ReplicaStatus(
            place.partition,
            broker,
            "leader" if broker == place.leader else "follower",
            state,
            None if logs is None else len(logs),
            _sum(logs, lambda log: log.log_start),
            _sum(logs, lambda log: log.log_end),
            _sum(logs, lambda log: log.highwater),
            _lag_bytes(self._logs_at(place.partition, place.leader), logs),
            _sum(logs, lambda log: log.size_bytes),
        )


def partition_state(place: PartitionInfo, live: set[int], min_insync: int = 1) -> str:
    """The state of a partition while the brokers *live* are up; ``ok`` if it is healthy."""
    if place.leader is None:
        return "no leader"
    if any(one.broker == place.leader for one in place.troubles):
        return TAKES_NOTHING
    # A broker that is away stays in the in-sync set if the set would get too small without it.
    count = len(live.intersection(place.in_sync))
    if count < min_insync:
        return f"produce waits: in sync {count} < {min_insync}"
    return "ok" if count == len(place.replicas) else "under-replicated"


def relay_state(place: PartitionInfo) -> str:
    """The state of a relay partition; ``ok`` if all of its members are there."""
    if place.leader is None:
        return "no majority"
    return "ok" if len(place.in_sync) == len(place.replicas) else "members away"


RELAY_HEADINGS: Final = ("RELAY PARTITION", "SEQUENCER", "MEMBERS", "THERE", "STATE")


def relay_rows(places: Iterable[PartitionInfo]) -> list[list[object]]:
    """A row of `RELAY_HEADINGS` for each relay partition of *places*."""
    return [
        [
            one.partition,
            one.leader,
            " ".join(map(str, one.replicas)),
            " ".join(map(str, one.in_sync)),
            relay_state(one),
        ]
        for one in places
    ]


def broker_state(broker: BrokerInfo, partitions: list[PartitionInfo]) -> str:
    """``up``, or ``drained`` if it is to lead nothing; ``leaving`` if it is to be removed; ``away``
    if it is down and has replicas; ``retired`` if it is down and has none."""
    if broker.leaving:
        return "leaving"
    if broker.live:
        return "drained" if broker.drained else "up"
    missed = not partitions or any(broker.broker in one.replicas for one in partitions)
    return "away" if missed else "retired"


def problems(seen: ClusterSnapshot) -> list[str]:
    """Problems of the cluster as texts, with the command that helps; empty if it is healthy."""
    cluster = seen.cluster
    places = [*cluster.partitions]
    away = [
        one.broker
        for one in cluster.brokers
        if broker_state(one, [*places, *cluster.relays]) == "away"
    ]
    found = [f"broker {one} is away" for one in away]
    found += [f"broker {one} is silent: {why}" for one, why in sorted(seen.silent.items())]
    states = {one.partition: partition_state(one, live_brokers(cluster)) for one in places}
    found += [
        f"{state}: relay partition {one.partition}"
        for one in cluster.relays
        if (state := relay_state(one)) != "ok"
    ]
    for what in ("no leader", TAKES_NOTHING, "under-replicated"):
        numbers = [str(partition) for partition, state in states.items() if state == what]
        if numbers:
            found.append(f"{what}: partition{'s' * (len(numbers) > 1)} {' '.join(numbers)}")
    found += [
        f"partition {one.partition}: {why}" for one in places if (why := _why_leaderless(one))
    ]
    if cluster.learns:
        found.append(
            "the register lost decisions, and learns them again from brokers: partitions "
            f"{' '.join(map(str, cluster.learns))}; start brokers "
            f"{' '.join(map(str, cluster.learns_from))}"
        )
    found += [_unserved(one) for one in cluster.unserved]
    found += _troubles(cluster)
    found += faults(seen.logs)
    return found or ([] if cluster.brokers else ["no broker has joined"])


def _why_leaderless(place: PartitionInfo) -> str:
    """Why a partition has no leader, and what helps; empty if it has one."""
    order = f"`octopi-node partitions recover {place.partition}` shows what may be lost otherwise"
    if place.leader is not None:
        return ""
    if place.waits_for:
        one_of = "one of " * (bool(place.in_sync) and len(place.waits_for) > 1)
        names = f"broker{'s' * (len(place.waits_for) > 1)} {' '.join(map(str, place.waits_for))}"
        return f"it waits for {one_of}{names}, in sync last: start these brokers; {order}"
    if place.is_stuck:
        return f"every in-sync replica has lost data from its disk: {order}"
    return ""


def _unserved(one: UnservedTopic) -> str:
    """Why a stored topic is not served, and what helps."""
    why = (
        f"the topic of that name in use has id {one.used_id}"
        if one.used_id
        else "the register has no topic of that name"
    )
    return (
        f"broker {one.broker} keeps records of a topic {one.topic} with id {one.topic_id}, which "
        f"it does not serve: {why}; if they are not needed, run "
        f"`octopi-node topics delete --id {one.topic_id}`"
    )


def notes(places: Iterable[PartitionInfo]) -> list[str]:
    """Notes about *places* as texts: past events that are no problem now."""
    return [
        f"partition {one.partition}: in epoch {one.recovered_epoch} a leader was chosen although "
        "acknowledged messages might be lost; the register's log of that time lists them"
        for one in places
        if one.recovered_epoch
    ]


def hot_partitions(loads: ClusterLoads | None) -> list[str]:
    """The partitions that are too much for one broker, as texts."""
    return [
        f"partition {one.partition} is too much for one broker: load {one.load:.2f}"
        + f", most of it topic {one.topic}" * bool(one.topic)
        + "; a topic with more partitions spreads its load over more brokers"
        for one in (loads.partitions if loads is not None else ())
        if one.hot
    ]


def _troubles(cluster: ClusterInfo) -> list[str]:
    """Why brokers accept no records, for which partitions, and what helps."""
    hurt: dict[tuple[int, str], list[int]] = {
        (one.broker, one.disk_trouble): [] for one in cluster.brokers if one.disk_trouble
    }
    disks = set(hurt)
    for place in cluster.partitions:
        for trouble in place.troubles:
            hurt.setdefault((trouble.broker, trouble.reason), []).append(place.partition)
    found: list[str] = []
    for (broker, reason), partitions in sorted(hurt.items()):
        numbers = f", partition{'s' * (len(partitions) > 1)} {' '.join(map(str, partitions))}"
        what = f"broker {broker}{numbers if partitions else ''}: {reason}"
        found.append(f"{what}; {FULL_DISK_HELP}" if (broker, reason) in disks else what)
    return found


def faults(logs: Iterable[BrokerLog]) -> list[str]:
    """Faults that brokers report of their logs, as texts."""
    return [
        f"broker {one.broker}, {one.log.topic}/{one.log.partition}: {one.log.fault}"
        for one in logs
        if one.log.fault
    ]


def holds(logs: Iterable[BrokerLog]) -> list[str]:
    """Of which logs brokers keep more than their topics' retention asks for, as texts."""
    return [
        f"broker {one.broker}, {one.log.topic}/{one.log.partition}: retention keeps "
        f"{one.log.held_bytes} bytes more for "
        + (f"subscription {one.log.held_for}" if one.log.held_for else "subscriptions")
        for one in logs
        if one.log.held_bytes
    ]


def live_brokers(cluster: ClusterInfo) -> set[int]:
    """Ids of the brokers that are live at the register."""
    return {one.broker for one in cluster.brokers if one.live}


PARTITION_HEADINGS: Final = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "STATE")


def partition_rows(
    cluster: ClusterInfo, places: Iterable[PartitionInfo], min_insync: int = 1
) -> list[list[object]]:
    """A row of `PARTITION_HEADINGS` for each of *places*."""
    live = live_brokers(cluster)
    return [
        [
            one.partition,
            one.leader,
            one.epoch,
            " ".join(map(str, one.replicas)),
            " ".join(map(str, one.in_sync)),
            partition_state(one, live, min_insync),
        ]
        for one in places
    ]


def _sum(logs: list[LogInfo] | None, value: Callable[[LogInfo], int]) -> int | None:
    return None if logs is None else sum(map(value, logs))


def _lag_bytes(leader: list[LogInfo] | None, own: list[LogInfo] | None) -> int | None:
    if leader is None or own is None:
        return None
    ends = {log.topic_id: log.log_end for log in own}
    return sum(max(0, log.log_end - ends.get(log.topic_id, log.log_start)) for log in leader)
