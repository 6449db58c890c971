"""Moves replicas and leaders to where they should be, one step at a time.

Every step is an ordinary change of leadership with a goal (`octopi.coordination.election`),
so it is as safe as a failover and interrupts a partition no longer.  To move a replica, the joining
broker is added as a replica and follows; once it is in sync, the leaving broker is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from octopi.coordination.controller import Controller
from octopi.coordination.election import ElectionGoal
from octopi.coordination.placement import balance_leaders, next_replica, spread_replicas
from octopi.environment import Environment
from octopi.errors import NotReadyError, RefusedError, Status, StorageError
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import MOVE_RETRY_S, MOVE_TIMEOUT_S, ORDER_RETRY_S
from octopi.logger import get_logger
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.election_driver import ElectionDriver, no_other
from octopi.roles.register.hand_overs import HandOvers
from octopi.wire.messages import PartitionRecord

_log = get_logger(__name__)


class Rebalancing:
    """Moves leaders and replicas, on request and by itself."""

    def __init__(
        self,
        environment: Environment,
        controller: Controller,
        decisions: DecisionLog,
        election_driver: ElectionDriver,
        hand_overs: HandOvers,
        replica_count: int,
        is_light: Callable[[PartitionId], bool],
    ) -> None:
        """*replica_count*: replicas that a partition should have, if there are enough brokers.
        *is_light*: whether the leadership of a partition counts by number; the others are evened
        out by their load (`octopi.roles.register.shedding`)."""
        self._environment = environment
        self._controller = controller
        self._decisions = decisions
        self._election_driver = election_driver
        self._hand_overs = hand_overs
        self._replica_count = replica_count
        self._is_light = is_light

    # --- on request ------------------------------------------------------------------

    async def drain(self, broker: BrokerId) -> None:
        """Have other brokers lead the partitions of *broker*; it gets no leadership until its
        restart.

        Raises:
          RefusedError: INVALID_OPTION for an unknown broker; NOT_READY where no other broker could
              lead; then it keeps those leaderships and gets no others.
        """
        self._known(broker)
        await self._hand_overs.drain(broker)

    async def remove(self, broker: BrokerId) -> None:
        """Forget a broker that is away for good and holds nothing.

        Raises:
          RefusedError: see `Controller.remove`.
        """
        removal = self._controller.remove(broker)
        await self._decisions.carry_out(removal)
        if removal.entries:
            _log.info("broker removed", broker=broker)

    async def add_partitions(self, count: int) -> None:
        """Add *count* partitions to the cluster.

        Raises:
          RefusedError: see `Controller.add_partitions`.
        """
        await self._decisions.carry_out(self._controller.add_partitions(count))

    async def move(self, partition: PartitionId, leaving: BrokerId, joining: BrokerId) -> None:
        """Move a replica from *leaving* to *joining*.

        Raises:
          RefusedError: UNKNOWN_PARTITION, INVALID_OPTION, or NOT_READY (*joining* didn't catch up
              in time, one in sync went away meanwhile, or no other broker could lead); then both
              hold a replica.
        """
        record = self._controller.state.partitions.get(partition)
        if record is None:
            raise RefusedError(
                f"partition {partition} has no replicas yet", Status.UNKNOWN_PARTITION
            )
        self._known(joining)
        if leaving not in record.replicas or joining == leaving:
            raise RefusedError(
                f"partition {partition} lies on brokers {record.replicas}", Status.INVALID_OPTION
            )
        if joining not in record.replicas:
            self._require_own_machine(record, leaving, joining)
            await self._grow(record, joining)
        await self._until_in_sync(partition, joining, MOVE_TIMEOUT_S)
        clock = self._environment.clock
        deadline = clock.now() + MOVE_RETRY_S
        while still_there := await self._leave(partition, leaving):
            await clock.sleep_until(clock.now() + ORDER_RETRY_S)
            with suppress(NotReadyError):
                await self._until_in_sync(partition, joining, deadline - clock.now())
            if joining not in self._record(partition).in_sync or clock.now() >= deadline:
                raise RefusedError(
                    f"partition {partition} stays on brokers {still_there}: one of them that was "
                    "in sync is away; move it again when `octopi cluster status` shows all of them",
                    Status.NOT_READY,
                )
        _log.info("replica moved", partition=partition, leaving=leaving, joining=joining)

    async def _until_in_sync(
        self, partition: PartitionId, joining: BrokerId, timeout_s: float
    ) -> None:
        """Wait until *joining* is in sync.

        Raises:
          NotReadyError: if that takes longer than *timeout_s*.
        """
        await self._election_driver.until(
            lambda: joining in self._record(partition).in_sync,
            timeout_s,
            f"broker {joining} in sync",
        )

    async def _leave(self, partition: PartitionId, leaving: BrokerId) -> list[BrokerId]:
        """Have *leaving* be no replica any more; return the replicas that there still are if
        another one that is in sync was away, which keeps all of them.

        Raises:
          RefusedError: NOT_READY, if no other broker could lead.
        """
        record = self._record(partition)
        if not self._others(record, leaving):
            raise no_other(partition)
        replicas = [one for one in record.replicas if one != leaving]
        keep = record.leader if record.leader != leaving else None
        goal = ElectionGoal(leader=keep, replicas=replicas)
        changed = await self._election_driver.change(partition, goal)
        return changed.replicas if leaving in changed.replicas else []

    def _require_own_machine(
        self, record: PartitionRecord, leaving: BrokerId, joining: BrokerId
    ) -> None:
        """Check that no replica besides that of *leaving* is on the machine of *joining*."""
        machines = self._controller.state.machines
        others = [one for one in record.replicas if one != leaving]
        beside = [one for one in others if machines.of(one) == machines.of(joining)]
        if beside:
            raise RefusedError(
                f"broker {joining} is on the same host {machines.of(joining)} as broker "
                f"{beside[0]}, which has a replica of partition {record.partition} already: name a "
                "broker on another host",
                Status.INVALID_OPTION,
            )

    async def _grow(self, record: PartitionRecord, joining: BrokerId) -> None:
        """Add a replica on *joining*, which follows from then on."""
        if not self._controller.is_live(joining):
            raise RefusedError(f"broker {joining} is away", Status.NO_BROKER)
        goal = ElectionGoal(leader=record.leader, replicas=[*record.replicas, joining])
        await self._election_driver.change(record.partition, goal)

    def _record(self, partition: PartitionId) -> PartitionRecord:
        return self._controller.state.partitions[partition]

    def _known(self, broker: BrokerId) -> None:
        if broker not in self._controller.state.brokers:
            raise RefusedError(f"there is no broker {broker}", Status.INVALID_OPTION)

    def _others(self, record: PartitionRecord, broker: BrokerId) -> bool:
        """Whether a broker other than *broker* could lead now."""
        is_live = self._controller.is_live
        return any(one != broker and is_live(one) for one in record.in_sync)

    # --- by itself -------------------------------------------------------------------

    async def run(self, interval_s: float) -> None:
        """Take one step to a better spread every *interval_s* seconds, until cancelled.

        A broker that is away keeps its replicas, because it is expected back.
        """
        clock = self._environment.clock
        while True:
            await clock.sleep_until(clock.now() + interval_s)
            try:
                await self._step()
            except (RefusedError, StorageError) as error:
                _log.info("rebalancing waits", why=str(error.args[0]))

    async def _step(self) -> None:
        """Make one improvement, if there is one and no other change is under way."""
        controller = self._controller
        # Brokers that take no records get nothing more.
        live = [
            one
            for one in controller.state.brokers
            if controller.serving(one)
            and one not in controller.stopping
            and not controller.health.is_troubled(one)
        ]
        records = list(controller.state.partitions.values())
        if controller.elections.changes or not all(
            set(one.in_sync) == set(one.replicas) for one in records
        ):
            return
        machines = controller.state.machines
        wanted = min(self._replica_count, len(machines.of_all(live)))
        for record in records:
            if len(record.replicas) < wanted:
                joining = next_replica(record, live, records, machines)
                if joining is None:
                    continue
                _log.info("replica added", partition=record.partition, broker=joining)
                await self._grow(record, joining)
                return
        moves = spread_replicas(records, live, machines)
        if moves:
            await self.move(moves[0].partition, moves[0].leaving, moves[0].joining)
            return
        light = [one for one in records if self._is_light(one.partition)]
        for move in balance_leaders(light, controller.willing()):
            await self._election_driver.change(move.partition, ElectionGoal(leader=move.leader))
