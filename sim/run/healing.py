"""The operator's work after the faults have ended, and checks of what the cluster does by itself.

A broker whose disk was replaced has a new id; the operator moves the replicas of the lost broker to
it (docs/operations.md).  If a partition waits for brokers that won't come back, or each of its
replicas in sync is damaged, the operator orders the best of the remaining replicas to lead
(`octopi-node partitions recover --accept-loss`).  A partition whose replicas have all lost their
disks begins again empty on a broker that the operator names (``--empty-on``).  Everything else
has to happen without the operator.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from octopi.clients.client import Client
from octopi.environment import Environment
from octopi.errors import DeliveryError, OctopiError, RefusedError
from octopi.identifiers import BrokerId, PartitionId
from octopi.retry import may_pass
from octopi.roles.broker.log_files import log_directory
from octopi.roles.broker.retired_folders import MOVING_SUFFIX
from octopi.simulation.cluster import DATA_DIRECTORY
from octopi.simulation.faults.spare_hosts import can_agree_without
from octopi.simulation.history.events import (
    Invoked,
    LogName,
    unique_value,
)
from octopi.simulation.invariants.recoveries import ORDERED
from octopi.simulation.invariants.retirements import retired_names
from octopi.simulation.kernel.world import Event
from octopi.simulation.quiescence import Quiescence
from octopi.storage.ends_file import ENDS_SUFFIX
from octopi.tracing import steps
from octopi.wire.messages import PartitionInfo, PartitionRecord, PartitionRecovery
from sim.run.client_log import ClientLog

_HOST: Final = "healer"
_REPLICA_FILES: Final = ("", ".new", ENDS_SUFFIX, f"{ENDS_SUFFIX}.new")
_MOVE_TIMEOUT_S: Final = 20.0
_AGAIN_S: Final = 0.2


class Healer:
    """Operates the cluster of *client_log* after the faults have ended."""

    def __init__(self, client_log: ClientLog) -> None:
        self._client_log = client_log
        self._cluster = client_log.cluster
        self._acts_in: dict[tuple[str, int], int] = {}
        """The epoch in which a replica last began to lead or follow, by host and partition."""
        roles = {steps.E11Leading.text, steps.E12Following.text}
        self._cluster.world.observe(self._see_role, roles)
        self._rest = Quiescence(self._cluster)
        self._unproven: set[LogName] = set()
        self._unserved: str | None = ""
        """The partitions whose replicas in sync do not all serve clients, as text; None: not
        determined yet."""
        self._unmoving: set[PartitionId] | None = set()
        """The partitions whose leaders' replicas are yet to be moved to brokers that have none;
        None: not determined yet."""
        self._refused_empty: set[int] = set()
        """Partitions for which the check of `_have_empty_refused` was done."""
        self._number = 0
        self._cluster.add_client(_HOST, self._run)

    def start(self) -> None:
        """Start the operator: it moves replicas, and sends a message to each log."""
        self._unproven = {*self._client_log.logs, *self._client_log.streams}
        self._cluster.boot(_HOST)

    # --- what is missing, as text; empty: nothing ------------------------------------------

    @property
    def cut_off(self) -> str:
        """The host that stays cut off; empty: none."""
        return self._rest.cut_off

    @cut_off.setter
    def cut_off(self, host: str) -> None:
        self._rest.cut_off = host

    def not_serving(self) -> str:
        """The nodes that don't serve, as text; empty: none, as in all methods below."""
        return self._rest.not_serving()

    def unmoved(self) -> str:
        """The replicas that are still assigned to brokers that are gone."""
        return str([f"{record.partition} of {broker}" for record, broker in self._lost()] or "")

    def unproven(self) -> str:
        """The logs that have taken no message since `start` or `prove_again`."""
        return ", ".join(map(str, sorted(self._unproven)))

    def prove_again(self) -> None:
        """Send one more message to each log."""
        self._unproven = {*self._client_log.logs, *self._client_log.streams}

    def ask_who_serves(self) -> None:
        """Find out which replicas serve; `unserved` has the result."""
        self._unserved = None

    def unserved(self) -> str:
        """The partitions whose replicas in sync do not all serve clients."""
        return "not known yet" if self._unserved is None else self._unserved

    def move_all(self) -> None:
        """Begin to move the replica of each leader to a broker that has none of its partition,
        where there is one."""
        self._unmoving = None

    def unmoving(self) -> str:
        """The partitions whose leaders' replicas are yet to be moved."""
        return "not known yet" if self._unmoving is None else str(sorted(self._unmoving) or "")

    def leaders(self) -> list[str]:
        """The hosts of brokers that lead a partition."""
        records = self._cluster.decided.state.partitions.values()
        return sorted({self._cluster.host_of(one.leader) for one in records})

    def led_by(self, host: str) -> list[PartitionId]:
        """The partitions that the broker on *host* leads."""
        state, broker = self._cluster.decided.state, self._cluster.broker_of(host)
        return [number for number, one in state.partitions.items() if one.leader == broker]

    def survivors(self, host: str) -> bool:
        """Whether the cluster can go on without *host*: each partition that it holds has enough
        other replicas in sync."""
        state, broker = self._cluster.decided.state, self._cluster.broker_of(host)
        return all(
            len({*record.in_sync} - {broker}) >= max(1, self._min_insync(record.partition))
            for record in state.partitions.values()
            if broker in record.replicas
        ) and can_agree_without(self._cluster, host, self.cut_off)

    def _min_insync(self, partition: PartitionId) -> int:
        topics = self._cluster.decided.state.topics_on({partition})
        return max((one.options.min_insync for one in topics), default=1)

    def out_of_sync(self) -> str:
        """The records of partitions with replicas that are not in sync."""
        return str([record for record, _ in self._rest.behind()] or "")

    def too_few_replicas(self) -> str:
        """The records of partitions that have fewer replicas than the plan asks for, although
        there are enough brokers."""
        wanted = min(self._client_log.plan.replicas, len(self._rest.ids()))
        return str(
            [
                record
                for record in self._cluster.decided.state.partitions.values()
                if len(record.replicas) < wanted
            ]
            or ""
        )

    def untold(self) -> str:
        """The hosts whose replicas are in sync and have not begun to lead or follow in the present
        epoch, with their partitions."""
        late = [
            f"{host} of partition {record.partition} in epoch {record.epoch}"
            for record in self._cluster.decided.state.partitions.values()
            for host in map(self._cluster.host_of, record.in_sync)
            if self._acts_in.get((host, record.partition)) != record.epoch
        ]
        return ", ".join(late)

    def _see_role(self, event: Event) -> None:
        step = event.about
        assert isinstance(step, steps.E11Leading | steps.E12Following)
        self._acts_in[event.host, step.partition] = step.epoch

    def undeleted(self) -> str:
        """The files of logs and replicas that belong to no topic or replica.  The files of deleted
        topics, and of replicas that were given up, have to be removed from every disk."""
        state = self._cluster.decided.state
        left = []
        for node in self._cluster.brokers:
            if node.name == self.cut_off:
                continue
            broker = self._cluster.broker_of(node.name)
            held = {one.partition for one in state.partitions.values() if broker in one.replicas}
            wanted = {
                log_directory(DATA_DIRECTORY, PartitionId(partition), topic.topic)
                for topic in state.topics_on(held)
                for partition in topic.partitions
                if partition in held
            }
            wanted |= {
                log_directory(DATA_DIRECTORY, one, name)
                for one in held
                for name in self._cluster.internal_logs
            }
            wanted |= {f"data/replicas/{one}{end}" for one in held for end in _REPLICA_FILES}
            found = {path.rpartition("/")[0][1:] for path in node.host.disk.files("data/logs")}
            found |= {path[1:] for path in node.host.disk.files("data/replicas")}
            # A retired replica has to be moved as a whole.
            found |= {one for one in retired_names(node.host.disk) if one.endswith(MOVING_SUFFIX)}
            # Damaged files are kept for an operator.
            spare = (one for one in found - wanted if not one.endswith(".damaged"))
            left += [f"{node.name}: {one}" for one in sorted(spare)]
        return ", ".join(left)

    def differing(self) -> str:
        """The logs that don't have the same bytes on all replicas."""
        internal = [
            LogName(name, one.partition)
            for one in self._rest.records
            for name in self._cluster.internal_logs
        ]
        logs = [*self._client_log.logs, *internal]
        return str([str(log) for log in logs if self._differs(log)] or "")

    def _differs(self, log: LogName) -> bool:
        """Whether replicas have different records where all of them still have some, or one starts
        behind what retention may have removed."""
        replicas = self._rest.replicas(log)
        start = max(one.start for one in replicas)
        kept = {one.read(start, max(start, one.end)) for one in replicas}
        return len(kept) != 1 or start > self._client_log.removed_end.get(log, 0)

    def end(self, log: LogName) -> int:
        """The end of *log*, which has to be the same on all replicas."""
        return self._rest.replicas(log)[0].end

    def _lost(self) -> list[tuple[PartitionRecord, BrokerId]]:
        """Replicas of brokers that are gone with their disks, and those on hosts that get new disks
        if they are the only ones in sync."""
        return [
            (record, broker)
            for record in self._rest.records
            for broker in record.replicas
            if self._rest.is_gone(broker) or (record.in_sync == [broker] and self._is_unfit(broker))
        ]

    def _is_unfit(self, broker: BrokerId) -> bool:
        return self._cluster.host_of(broker) in self._client_log.unfit

    def _are_all_known(self) -> bool:
        """Whether the register knows every broker.  Replicas are moved only then: with fewer
        brokers, one that has a replica already would be chosen, and a topic might have too few."""
        ids = self._rest.ids()
        return len(ids & self._cluster.decided.state.brokers.keys()) == len(ids)

    # --- doing -------------------------------------------------------------------------------

    async def _run(self, environment: Environment) -> None:
        client_log, clock = self._client_log, environment.clock
        async with client_log.connected(environment) as client:
            while True:  # until the run ends, as more work may come
                try:
                    if self._are_all_known():
                        waiting: set[PartitionId] = set()
                        if client_log.plan.loses_last:
                            waiting = await self._order_leaders(client)
                        for record, broker in self._lost():
                            if record.partition not in waiting:
                                await self._replace(client, record, broker)
                        # Last, because a log that waits for a lost replica would delay the rest.
                        if self._unproven:
                            await self._prove(client)
                        if self._unserved != "":
                            self._unserved = await self._find_unserved(client)
                        if self._unmoving != set():
                            await self._move_leaders(client)
                except OctopiError as error:
                    if not may_pass(error):
                        client_log.complain(_HOST, error)
                await clock.sleep_until(clock.now() + _AGAIN_S)

    async def _find_unserved(self, client: Client) -> str:
        info = await client.admin.describe_cluster()
        away = self._cluster.broker_of(self.cut_off) if self.cut_off else None
        return ", ".join(
            f"partition {one.partition}: {one.in_sync} in sync, and clients go to {one.readers}"
            for one in info.partitions
            if one.leader is None or len(one.readers) < len({*one.in_sync} - {away})
        )

    async def _order_leaders(self, client: Client) -> set[PartitionId]:
        """Order the best remaining replica to lead where no replica can lead otherwise, once all
        brokers run; return the partitions that had no leader."""
        info = await client.admin.describe_cluster()
        waiting = {one.partition for one in info.partitions if one.leader is None}
        if not self._rest.ids() <= {one.broker for one in info.brokers if one.live}:
            return waiting
        for one in info.partitions:
            if self._client_log.plan.loses_every_disk:
                if one.leader is None and not self._rest.ids() & {*one.replicas}:
                    await self._order_empty(client, one)
                    continue
                await self._have_empty_refused(client, one)
            if not await self._waits_for_an_order(client, one):
                continue
            self._cluster.world.note(ORDERED, _HOST, partition=one.partition)
            found = await client.admin.recover_partition(one.partition, accept_loss=True)
            await self._look_whether_told(client, found)
        return waiting

    async def _order_empty(self, client: Client, one: PartitionInfo) -> None:
        """Order a partition that has lost all its disks to begin again empty."""
        brokers = sorted(self._rest.ids())
        broker = brokers[one.partition % len(brokers)]
        asked = await client.admin.recover_partition(one.partition, empty_on=broker)
        lost = {log.topic for log in self._client_log.logs if log.partition == one.partition}
        if asked.recovered or not lost <= {*asked.emptied}:
            self._client_log.complaints.append(
                f"partition {one.partition} is to begin again empty, so {sorted(lost)} lose all "
                f"that they have there, but the answer is {asked}"
            )
        self._cluster.world.note(ORDERED, _HOST, partition=one.partition, empty_on=broker)
        found = await client.admin.recover_partition(
            one.partition, accept_loss=True, empty_on=broker
        )
        await self._look_whether_told(client, found)

    async def _have_empty_refused(self, client: Client, one: PartitionInfo) -> None:
        """Check once that a partition can't begin again empty while a replica of it is left."""
        if one.partition in self._refused_empty or not self._rest.ids() & {*one.replicas}:
            return
        self._refused_empty.add(one.partition)
        with suppress(RefusedError):
            found = await client.admin.recover_partition(
                one.partition, empty_on=min(self._rest.ids())
            )
            self._client_log.complaints.append(
                f"partition {one.partition} could begin again empty, though brokers "
                f"{one.replicas} hold it: {found}"
            )

    async def _look_whether_told(self, client: Client, found: PartitionRecovery) -> None:
        """Check that the description of a partition says since which epoch messages may be lost."""
        if not found.recovered:
            return
        partitions = (await client.admin.describe_cluster()).partitions
        told = [now for now in partitions if now.partition == found.partition]
        if [now.recovered_epoch for now in told] != [found.epoch]:
            self._client_log.complaints.append(
                f"messages of partition {found.partition} may be lost since epoch {found.epoch}, "
                f"but the description of the partition doesn't say so: {told}"
            )

    async def _waits_for_an_order(self, client: Client, one: PartitionInfo) -> bool:
        """Whether only an operator's order helps, according to the descriptions of the partition
        and its logs."""
        if one.leader is None:
            are_gone = bool(one.waits_for) and not self._rest.ids() & {*one.waits_for}
            return are_gone or one.is_stuck
        # A damaged log of the only replica serves the records before the damage, and takes none.
        return len(one.replicas) == 1 and any(
            of.log.fault and of.log.partition == one.partition
            for of in await client.admin.describe_logs()
        )

    async def _move_leaders(self, client: Client) -> None:
        state = self._cluster.decided.state
        if self._unmoving is None:
            count = len(state.brokers)
            self._unmoving = {
                number for number, one in state.partitions.items() if len(one.replicas) < count
            }
        for number in sorted(self._unmoving):
            record = state.partitions[number]
            spare = min(state.brokers.keys() - {*record.replicas})
            await client.admin.move_replica(number, record.leader, spare, timeout_s=_MOVE_TIMEOUT_S)
            self._unmoving.discard(number)

    async def _replace(self, client: Client, record: PartitionRecord, broker: BrokerId) -> None:
        """Move the replica of *broker* to a live broker."""
        known = self._cluster.decided.state.brokers
        # A broker that holds a replica already is chosen only if there is no other one.
        fit = [one for one in self._rest.ids() & known.keys() if not self._is_unfit(one)]
        ids = sorted(fit, key=lambda one: (one in record.replicas, one))
        if not ids:
            return
        try:
            await client.admin.move_replica(
                record.partition, broker, ids[0], timeout_s=_MOVE_TIMEOUT_S
            )
        except RefusedError:
            # If the broker is being drained, the register moves its replicas.
            if any(
                (one.partition, lost) == (record.partition, broker) for one, lost in self._lost()
            ):
                raise

    async def _prove(self, client: Client) -> None:
        """Send a message to each log in `_unproven`; the caller repeats this until none is left."""
        client_log = self._client_log
        async with client.producer(delivery_timeout_s=10.0) as producer:
            for log in sorted(self._unproven):
                self._number += 1
                value = unique_value(_HOST, self._number)
                client_log.note(Invoked(client_log.now, _HOST, log.topic, log.partition, value))
                try:
                    receipt = await producer.send(log.topic, value, partition=log.partition)
                except DeliveryError as error:
                    client_log.settled(value, error)
                    continue
                client_log.settled(value, receipt)
                self._unproven.discard(log)
