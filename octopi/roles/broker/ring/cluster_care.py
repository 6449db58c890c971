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
    ) -> None:
        """*chord*: this broker, which is a member."""
        self._clock = environment.clock
        self._draw = environment.randomness.random
        self._chord = chord
        self._keeper = keeper
        self._partitions = partitions
        self._peers = peers
        self._moves = moves

    async def run(self) -> None:
        """Take care until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_agreeing)
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

    async def _keep_agreeing(self) -> None:
        """Replace acceptors of the record that are gone, and compare now and then what is agreed on
        with another broker."""
        since = self._clock.now()
        while True:
            await self._keeper.replace_acceptor(self._chord.me, self._chord.book, since)
            node = self._chord.book.any_node(self._draw)
            if node is not None:
                for values in (self._keeper.known_values(), *self._partitions.known_values()):
                    self._peers.post(node.address, values)
            await self._clock.sleep_until(self._clock.now() + KNOWN_VALUES_S)
