"""How the replicas of a cluster are doing: what the console, `status` and `topics describe` show.

The register knows who should hold what; how far each replica is, only its broker knows.
So both are asked, and what is made of their answers stands here.  The answers are not of
one moment: a lag is what it was within the last instants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import attrs

from octopi.errors import ConnectionLostError, NotReadyError, UnreachableError

if TYPE_CHECKING:
    from octopi import (
        BrokerInfo,
        BrokerLog,
        Client,
        ClusterInfo,
        LogInfo,
        PartitionInfo,
        UnservedTopic,
    )


TAKES_NOTHING: Final = "takes no records"
"""The state of a partition whose leader can't append, and that no other replica could lead."""

FULL_DISK_HELP: Final = (
    "make space on that disk, or move replicas away: `octopi-node partitions move`"
)


@attrs.frozen
class ClusterSnapshot:
    """What a cluster said about itself."""

    cluster: ClusterInfo
    logs: list[BrokerLog]
    silent: dict[int, str]
    """Brokers that the register takes for live and that gave no answer, and why not."""


async def look(
    client: Client, topic: str | None = None, *, in_order: bool = True
) -> ClusterSnapshot:
    """Ask the register and all live brokers for their logs, of *topic* or of all topics: *in_order*
    of topics, partitions and brokers, or as they come.

    Raises:
      OctopiError: if the register can't be asked, or knows no such topic.
    """
    import trio

    cluster = await client.admin.describe_cluster()
    logs: list[BrokerLog] = []
    silent: dict[int, str] = {}

    async def ask(broker: BrokerInfo) -> None:
        try:
            logs.extend(await client.admin.describe_logs(topic, brokers=[broker]))
        except (NotReadyError, UnreachableError, ConnectionLostError) as error:
            silent[broker.broker] = str(error)

    async with trio.open_nursery() as nursery:
        for broker in cluster.brokers:
            if broker.live:
                nursery.start_soon(ask, broker)
    if in_order:
        logs.sort(key=lambda one: (one.log.topic, one.log.partition, one.broker))
    return ClusterSnapshot(cluster, logs, silent)


@attrs.frozen
class ReplicaStatus:
    """One replica of a partition; sizes and offsets are sums over its logs, in bytes.
    None: nobody knows."""

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
    """What the leader has and this replica hasn't."""
    size_bytes: int | None


def replicas(seen: ClusterSnapshot, partitions: Iterable[PartitionInfo]) -> list[ReplicaStatus]:
    """The replicas of *partitions*, in their order, leaders first."""
    holdings = Holdings(seen)
    for one in seen.logs:
        holdings.add(one)
    return [status for place in partitions for status in holdings.replicas_of(place)]


class Holdings:
    """Which logs each broker has of each partition; for who takes turns while filling it."""

    def __init__(self, seen: ClusterSnapshot) -> None:
        self._live = live_brokers(seen.cluster)
        self._silent = seen.silent
        self._held: dict[tuple[int, int], list[LogInfo]] = {}

    def add(self, one: BrokerLog) -> None:
        """A broker has it."""
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
    """How a partition is doing while the brokers *live* are there; ``ok`` if it is well."""
    if place.leader is None:
        return "no leader"
    if any(one.broker == place.leader for one in place.troubles):
        return TAKES_NOTHING
    # A broker that is away stays in the in-sync set if that would get too small without it.
    count = len(live.intersection(place.in_sync))
    if count < min_insync:
        return f"produce waits: in sync {count} < {min_insync}"
    return "ok" if count == len(place.replicas) else "under-replicated"


def broker_state(broker: BrokerInfo, partitions: list[PartitionInfo]) -> str:
    """``up``; ``away`` if it is missed; ``retired`` if it is gone and holds nothing that is
    in use."""
    if broker.live:
        return "up"
    missed = not partitions or any(broker.broker in one.replicas for one in partitions)
    return "away" if missed else "retired"


def problems(seen: ClusterSnapshot) -> list[str]:
    """What is not well, for people to read; nothing: the cluster is healthy."""
    cluster = seen.cluster
    places = cluster.partitions
    away = [one.broker for one in cluster.brokers if broker_state(one, places) == "away"]
    found = [f"broker {one} is away" for one in away]
    found += [f"broker {one} is silent: {why}" for one, why in sorted(seen.silent.items())]
    states = {one.partition: partition_state(one, live_brokers(cluster)) for one in places}
    for what in ("no leader", TAKES_NOTHING, "under-replicated"):
        numbers = [str(partition) for partition, state in states.items() if state == what]
        if numbers:
            found.append(f"{what}: partition{'s' * (len(numbers) > 1)} {' '.join(numbers)}")
    found += [
        f"partition {one.partition}: {why}" for one in places if (why := _why_leaderless(one))
    ]
    if cluster.learns:
        found.append(
            "the register lost what was decided, and learns it again: partitions "
            f"{' '.join(map(str, cluster.learns))}; start brokers "
            f"{' '.join(map(str, cluster.learns_from))}"
        )
    found += [_unserved(one) for one in cluster.unserved]
    found += _troubles(cluster)
    found += faults(seen.logs)
    return found or ([] if cluster.brokers else ["no broker has joined"])


def _why_leaderless(place: PartitionInfo) -> str:
    """What a partition without a leader waits for, and what helps; empty if it has one."""
    order = f"`octopi-node partitions recover {place.partition}` says what may be lost otherwise"
    if place.leader is not None:
        return ""
    if place.waits_for:
        one_of = "one of " * (bool(place.in_sync) and len(place.waits_for) > 1)
        names = f"broker{'s' * (len(place.waits_for) > 1)} {' '.join(map(str, place.waits_for))}"
        return f"it waits for {one_of}{names}, in sync last: start what can be started; {order}"
    if place.is_stuck:
        return f"each of its replicas in sync lacks what it had on its disk: {order}"
    return ""


def _unserved(one: UnservedTopic) -> str:
    """A topic that nobody is served, and what helps."""
    why = (
        f"the topic of that name in use has id {one.used_id}"
        if one.used_id
        else "the register has no topic of that name"
    )
    return (
        f"broker {one.broker} keeps records of a topic {one.topic} with id {one.topic_id}, which "
        f"nobody is served: {why}; if nobody needs them, "
        f"`octopi-node topics delete --id {one.topic_id}`"
    )


def notes(places: Iterable[PartitionInfo]) -> list[str]:
    """What is worth knowing of *places* though it is no problem now."""
    return [
        f"partition {one.partition}: in epoch {one.recovered_epoch} a leader was chosen although "
        "acknowledged messages might be lost; the register's log of that time says what was"
        for one in places
        if one.recovered_epoch
    ]


def _troubles(cluster: ClusterInfo) -> list[str]:
    """What keeps brokers from taking records, which partitions that hurts, and what helps."""
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
    """What brokers say is wrong with logs of theirs."""
    return [
        f"broker {one.broker}, {one.log.topic}/{one.log.partition}: {one.log.fault}"
        for one in logs
        if one.log.fault
    ]


def live_brokers(cluster: ClusterInfo) -> set[int]:
    """The brokers that are there, as far as the register knows."""
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
