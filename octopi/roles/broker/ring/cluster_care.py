"""What a broker of the ring does by itself about the record of its cluster, and for all to know the
same values."""

from __future__ import annotations

import trio

from octopi.environment import Environment
from octopi.errors import NotReadyError
from octopi.identifiers import BrokerId
from octopi.limits import KNOWN_VALUES_S, STABILISE_S
from octopi.logger import get_logger
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import ClusterRecord
from octopi.ring.leaving import RemovalCheck, parts_of
from octopi.ring.steering import is_in_charge
from octopi.roles.broker.ring.cluster_keeper import ClusterKeeper
from octopi.roles.broker.ring.lead_moves import LeadMoves
from octopi.roles.broker.ring.partitions import RingPartitions
from octopi.roles.broker.ring.peers import RingPeers

_log = get_logger(__name__)


class ClusterCare:
    """Takes care of it.  `run` is one task of the broker's nursery."""

    def __init__(
        self,
        environment: Environment,
        chord: Chord,
        keeper: ClusterKeeper,
        partitions: RingPartitions,
        peers: RingPeers,
        moves: LeadMoves,
        *,
        ends_drain: bool = True,
    ) -> None:
        """*chord*: this broker, which is a member.  *ends_drain*: whether it was started again, so
        that it is not drained any more."""
        self._ends_drain = ends_drain
        self._clock = environment.clock
        self._draw = environment.randomness.random
        self._chord = chord
        self._keeper = keeper
        self._partitions = partitions
        self._peers = peers
        self._moves = moves
        self._checks: dict[BrokerId, RemovalCheck] = {}

    async def run(self) -> None:
        """Take care until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_comparing)
            nursery.start_soon(self._keep_record)
            if self._ends_drain:
                await self._end_drain(self._chord.me.broker)
            nursery.start_soon(self._moves.run)

    async def _end_drain(self, me: BrokerId) -> None:
        """This broker was started again, so it is not drained any more."""
        while True:
            try:
                await self._keeper.change(lambda record: record.undrained(me))
            except NotReadyError as error:
                _log.info("not known yet whether this broker is drained", why=str(error))
                await self._clock.sleep_until(self._clock.now() + STABILISE_S)
            else:
                return

    async def _keep_comparing(self) -> None:
        """Compare now and then what is agreed on with another broker."""
        while True:
            node = self._chord.book.any_node(self._draw)
            if node is not None:
                for values in (self._keeper.known_values(), *self._partitions.known_values()):
                    self._peers.post(node.address, values)
            await self._clock.sleep_until(self._clock.now() + KNOWN_VALUES_S)

    async def _keep_record(self) -> None:
        """Replace acceptors of the record that are gone or leave, and remove brokers that leave."""
        since = self._clock.now()
        while True:
            record = self._keeper.record
            if record is not None:
                await self._keeper.replace_acceptor(
                    self._chord.me, self._chord.book, since, record.leaving
                )
                await self._remove_leaving(record)
            await self._clock.sleep_until(self._clock.now() + STABILISE_S)

    async def _remove_leaving(self, record: ClusterRecord) -> None:
        """Remove the brokers that leave, and that nothing counts on."""
        chosen, chord = self._keeper.chosen, self._chord
        self._checks = {one: self._checks.get(one) or RemovalCheck() for one in record.leaving}
        if chosen is None or not is_in_charge(
            chosen.value, chord.me, chord.book, self._clock.now()
        ):
            return
        partitions = list(self._partitions)
        for broker, check in self._checks.items():
            unread = check.pending(parts_of(broker, partitions, chosen.value), partitions)
            for machine in unread or ():
                self._partitions.read(machine)
            if unread == []:
                await self._remove(broker)

    async def _remove(self, broker: BrokerId) -> None:
        try:
            await self._keeper.change(lambda record: record.without(broker))
        except NotReadyError as error:
            _log.info("not removed yet", broker=broker, why=str(error))
        else:
            _log.info("broker removed for good", broker=broker)
            self._partitions.events.removed(broker)
