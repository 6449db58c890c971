"""The order to hand the cluster over to registers: whether it can be carried out, and its start."""

from __future__ import annotations

from octopi.environment import Environment
from octopi.errors import NotReadyError, OctopiError, RefusedError, Status
from octopi.identifiers import BrokerId, address_fault
from octopi.limits import BOOK_COUNT, REGISTERS_MAX
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import ClusterRecord
from octopi.ring.ending import Ending
from octopi.roles.broker.ring.cluster_keeper import ClusterKeeper
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.transport.handshake import open_node_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import MEMBERSHIP


class ToRegisters:
    """Begins it.  `RingEnding` of each broker goes on."""

    def __init__(
        self,
        environment: Environment,
        options: RingOptions,
        keeper: ClusterKeeper,
        partitions: RingPartitions,
        chord: Chord,
    ) -> None:
        """*chord*: this broker, which is a member."""
        self._environment = environment
        self._options = options
        self._keeper = keeper
        self._partitions = partitions
        self._chord = chord

    async def order(self, order: m.HandOverToRegisters) -> m.RegistersProgress:
        """Begin, unless that is done; return how far it is.

        Raises:
          RefusedError: INVALID_OPTION, if something has to be done before.
          NotReadyError: if brokers have to finish something; and see `ClusterKeeper.change`.
        """
        record = self._keeper.record
        assert record is not None, "a member knows it"
        ending = record.ending
        registers = tuple(order.registers)
        if not record.is_frozen:
            brokers = self._all_brokers(record)
            self._check(record, brokers, registers)
            for one in registers:
                await self._check_register(one)
            if order.dry_run:
                return m.RegistersProgress(order.request, "", sorted(brokers), [])
            changed = await self._keeper.change(
                lambda one: one.with_ending(registers, brokers) if one == record else one
            )
            ending = changed.ending
            if ending is None or not changed.is_frozen:
                raise NotReadyError("the record of the cluster was changed just then: try again")
        assert ending is not None
        if set(ending.registers) != set(registers):
            raise RefusedError(
                f"the cluster is being handed over to {', '.join(ending.registers)}: name the same",
                Status.INVALID_OPTION,
            )
        return _progress(order, ending)

    def _all_brokers(self, record: ClusterRecord) -> set[BrokerId]:
        """The brokers of the cluster, all of which are there.

        Raises:
          RefusedError: if one is away, or there are too many.
        """
        nodes = {one.broker: one for growth in record.growths for one in growth.members}
        nodes |= {one.broker: one for one in self._chord.book.nodes()}
        brokers = {*nodes, self._chord.me.broker}.difference(record.gone)
        if len(self._chord.book) >= BOOK_COUNT:
            raise RefusedError(
                f"only a cluster of fewer than {BOOK_COUNT} brokers can be handed over",
                Status.INVALID_OPTION,
            )
        for broker in sorted(brokers - {self._chord.me.broker}):
            entry = self._chord.book.entry(broker)
            if entry is None or entry.is_silent:
                raise RefusedError(
                    f"broker {broker} is away: start it, or remove it for good (`octopi-node "
                    f"brokers remove {broker}`)",
                    Status.INVALID_OPTION,
                )
        return brokers

    def _check(
        self, record: ClusterRecord, brokers: set[BrokerId], registers: tuple[str, ...]
    ) -> None:
        """Raises: see `order`."""
        if not 0 < len(registers) <= REGISTERS_MAX or len(set(registers)) < len(registers):
            raise RefusedError(
                f"name 1 to {REGISTERS_MAX} registers, each once", Status.INVALID_OPTION
            )
        for one in registers:
            if why := address_fault(one):
                raise RefusedError(f"register {one}: {why}", Status.INVALID_OPTION)
        if record.leaving:
            raise RefusedError(
                f"broker {record.leaving[0]} is about to leave: wait until it has, or take that "
                f"back (`octopi-node ring leave {record.leaving[0]} --cancel`)",
                Status.INVALID_OPTION,
            )
        for machine in self._partitions:
            known = machine.agreed.record
            if strangers := set(known.replicas) - brokers:
                raise NotReadyError(
                    f"partition {machine.partition} has a replica on broker {min(strangers)}, "
                    "which this broker does not know yet"
                )
            if behind := set(known.replicas).difference(known.in_sync):
                raise NotReadyError(
                    f"the replica of partition {machine.partition} on broker {min(behind)} is not "
                    "in sync: wait until it is"
                )

    async def _check_register(self, address: str) -> None:
        """Raises: see `order`."""
        try:
            connection = await open_node_connection(
                self._environment,
                address,
                MEMBERSHIP,
                self._options.agent,
                self._options.credentials,
            )
        except OctopiError as error:
            raise RefusedError(
                f"broker {self._chord.me.broker} does not reach the register {address}: {error}; "
                "start it with an empty data directory and the join secret of the brokers",
                Status.INVALID_OPTION,
            ) from error
        greeting = connection.greeting
        await connection.close(1000, "it is there")
        assert isinstance(greeting, m.Welcome), "this side has connected"
        if greeting.cluster:
            raise RefusedError(
                f"the register {address} has a cluster, {greeting.cluster}: start a register with "
                "an empty data directory",
                Status.INVALID_OPTION,
            )


def _progress(order: m.HandOverToRegisters, ending: Ending) -> m.RegistersProgress:
    waits_for = list(ending.missing) if ending.is_under_way else []
    return m.RegistersProgress(order.request, ending.stage.value, list(ending.brokers), waits_for)
