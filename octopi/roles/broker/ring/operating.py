"""What operators order in a cluster without a register: any broker carries it out."""

from __future__ import annotations

from octopi.environment import Clock
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import GROWTH_MEMBERS_MAX, HAND_OVER_TIMEOUT_S, LIST_COUNT_MAX
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import ClusterRecord, PartitionKind, first_members
from octopi.ring.leaving import parts_of, what_it_waits_for
from octopi.roles.broker.ring.cluster_keeper import ClusterKeeper
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.roles.broker.ring.recovering import recovered
from octopi.roles.broker.ring.routes import RingRoutes
from octopi.roles.broker.ring.to_registers import ToRegisters
from octopi.transport.pending_requests import Numbered
from octopi.wire import messages as m


class RingOperations:
    """Carries out orders."""

    def __init__(
        self,
        clock: Clock,
        keeper: ClusterKeeper,
        partitions: RingPartitions,
        routes: RingRoutes,
        chord: Chord,
        to_registers: ToRegisters,
    ) -> None:
        """*chord*: this broker, which is a member."""
        self._to_registers = to_registers
        self._clock = clock
        self._chord = chord
        self._keeper = keeper
        self._partitions = partitions
        self._routes = routes

    async def carry_out(
        self, order: Numbered
    ) -> m.Done | m.PartitionRecovery | m.ClusterHandedOver | m.RegistersProgress:
        """Carry out an order; return the answer.

        Raises:
          RefusedError: why it is not carried out.
          NotReadyError: if it is not known whether it is, because no majority answers.
        """
        match order:
            case m.DrainBroker(broker=broker):
                await self._drain(broker)
            case m.RemoveBroker(broker=broker):
                await self._remove(broker)
            case m.RecoverPartition():
                return await recovered(order, self._clock, self._partitions, self._routes)
            case m.AddPartitions(count=count):
                await self._add_partitions(count)
            case m.HandOverToRegisters():
                return await self._to_registers.order(order)
            case m.HandOverToRing():  # it is so already
                return m.ClusterHandedOver(order.request, self._some_addresses())
            case m.MoveReplica():
                raise RefusedError(
                    "in a cluster without a register replicas lie where the ring says: drain the "
                    "broker that is to have fewer, have it leave, or start another one",
                    Status.INVALID_OPTION,
                )
            case m.GrowTopic() | m.MoveTopic():
                raise RefusedError(
                    "a cluster without a register keeps the partitions that a topic was created "
                    "with: create another topic with more partitions, or have registers decide "
                    "(`octopi-node cluster to-registers --help`)",
                    Status.INVALID_OPTION,
                )
            case _:
                raise RefusedError(
                    "a cluster without a register does not carry out "
                    f"{m.TYPE_NAMES[type(order)]} yet",
                    Status.INVALID_OPTION,
                )
        return m.Done(order.request)

    def _some_addresses(self) -> list[str]:
        me = self._chord.me
        found = {me.broker: me.address, **self._routes.addresses()}
        return [found[broker] for broker in sorted(found)[:GROWTH_MEMBERS_MAX]]

    async def _drain(self, broker: BrokerId) -> None:
        """Have other brokers lead the partitions of *broker*; it gets no leadership until it is
        started again.

        Raises:
          RefusedError: INVALID_OPTION for an unknown broker; NOT_READY where no other broker could
              lead, or if it was started again meanwhile.
          NotReadyError: see `ClusterKeeper.change`.
        """
        self._known(broker)
        await self._keeper.change(lambda record: record.with_drained(broker))
        with self._clock.timeout(HAND_OVER_TIMEOUT_S):
            while self._led_by(broker):
                await self._partitions.decided.wait()
        if led := self._led_by(broker):
            raise RefusedError(
                f"partition {led[0]} has no other live replica in sync", Status.NOT_READY
            )
        record = self._keeper.record
        if record is None or broker not in record.drained:
            raise RefusedError(f"broker {broker} was started again", Status.NOT_READY)

    async def _add_partitions(self, count: int) -> None:
        """Add *count* partitions, whose first replicas are among the brokers that are there now.

        Raises:
          RefusedError: INVALID_OPTION if there would be too many, or the record too large.
          NotReadyError: if others were added at the same time; and see `ClusterKeeper.change`.
        """
        known = self._keeper.record
        assert known is not None, "a member knows it"
        first = known.partition_count(PartitionKind.LOG)
        if not 1 <= count <= LIST_COUNT_MAX - first:
            raise RefusedError(
                f"a cluster has at most {LIST_COUNT_MAX} partitions, this one has {first}",
                Status.INVALID_OPTION,
            )
        is_there = self._partitions.pulses.is_there
        live = [one for one in self._chord.book.nodes() if is_there(one.broker)]
        members = first_members([self._chord.me, *live], known.unwilling)

        def grown(record: ClusterRecord) -> ClusterRecord:
            if record.partition_count(PartitionKind.LOG) != first:
                return record  # it is done, or others were added
            replicas = record.growths[0].replicas
            return record.grown(PartitionKind.LOG, count, replicas, members)

        if why := grown(known).fault():
            raise RefusedError(why, Status.INVALID_OPTION)
        record = await self._keeper.change(grown)
        made = record.growth_of(PartitionKind.LOG, PartitionId(first))
        if made is None or (made.first, made.count, made.members) != (first, count, members):
            raise NotReadyError("other partitions were added at the same time: try again")

    # --- leaving for good --------------------------------------------------------------------

    async def leave(self, order: m.OrderLeave) -> m.LeaveProgress:
        """Have a broker leave the cluster for good, or take that back; return how far it is.

        Raises:
          RefusedError: INVALID_OPTION for an unknown broker, or the last one.
          NotReadyError: see `ClusterKeeper.change`.
        """
        broker = order.broker
        if order.is_taken_back:
            await self._keeper.change(lambda record: record.staying(broker))
        elif not self._is_gone(broker):
            await self._order_to_leave(broker)
        return self._progress(order)

    async def _remove(self, broker: BrokerId) -> None:
        """Remove a broker that is dead, for good.

        Raises:
          RefusedError: BROKER_IN_USE if it runs; and as `leave`.
          NotReadyError: if something counts on it still; it is removed as soon as nothing does.
        """
        if self._is_gone(broker):
            return
        self._known(broker)
        if self._partitions.pulses.is_there(broker):
            raise RefusedError(
                f"broker {broker} runs: `octopi-node ring leave {broker}` moves what it has to "
                "others, and then removes it",
                Status.BROKER_IN_USE,
            )
        await self._order_to_leave(broker)
        progress = self._progress(m.OrderLeave(0, broker))
        if not progress.is_gone:
            why = f", but {progress.waits_for}" if progress.waits_for else ""
            raise NotReadyError(
                f"{progress.replicas} partitions still have a replica on broker {broker}, and "
                f"{progress.decides} agreements count on it: it is removed when others took over"
                f"{why}; `octopi-node ring leave {broker}` shows how far that is"
            )

    async def _order_to_leave(self, broker: BrokerId) -> None:
        self._known(broker)
        if not self._staying(broker):
            raise RefusedError(
                f"broker {broker} is the last one that stays: a cluster has at least one",
                Status.INVALID_OPTION,
            )
        await self._keeper.change(lambda record: record.with_leaving(broker))

    def _progress(self, order: m.OrderLeave) -> m.LeaveProgress:
        broker, partitions = order.broker, list(self._partitions)
        assert self._keeper.chosen is not None, "it was changed"
        parts = parts_of(broker, partitions, self._keeper.chosen.value)
        is_there = self._partitions.pulses.is_there
        live = [one for one in self._routes.addresses() if is_there(one)]
        is_gone = self._is_gone(broker)
        waits_for = ""
        if not (is_gone or order.is_taken_back):
            waits_for = what_it_waits_for(broker, partitions, self._staying(broker), live)
        return m.LeaveProgress(
            order.request, broker, is_gone, parts.leads, parts.replicas, parts.decides, waits_for
        )

    def _staying(self, broker: BrokerId) -> set[BrokerId]:
        """The brokers other than *broker* that stay in the cluster."""
        record = self._keeper.record
        leaving = () if record is None else record.leaving
        return self._routes.addresses().keys() - {broker, *leaving}

    def _is_gone(self, broker: BrokerId) -> bool:
        return self._keeper.record is not None and broker in self._keeper.record.gone

    def _known(self, broker: BrokerId) -> None:
        if broker not in self._routes.addresses():
            raise RefusedError(f"there is no broker {broker}", Status.INVALID_OPTION)

    def _led_by(self, broker: BrokerId) -> list[PartitionId]:
        return [one.partition for one in self._partitions if one.agreed.record.leader == broker]
