"""Which brokers have joined this register, and which have joined another one.

When a broker joins, it reports the newest register generation that it has joined.  A generation
that is not in this register's history belongs to a register that was started after this one or
beside it.  The report must be proven, because any program that reaches the register could claim it.
"""

from __future__ import annotations

from collections.abc import Mapping

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.in_sync_changes import newest_set
from octopi.coordination.incarnations import is_proven
from octopi.coordination.seals import Seals
from octopi.errors import RefusedError, Status, SupersededError
from octopi.identifiers import BrokerId, Incarnation
from octopi.wire.messages import Join


class RivalRegisters:
    """Remembers, in memory only, which brokers have joined another register."""

    def __init__(self, state: ClusterState, live: Mapping[BrokerId, Incarnation]) -> None:
        """*live* is the caller's: broker -> incarnation."""
        self._state = state
        self._live = live
        self._left: set[BrokerId] = set()
        """Brokers that proved their identity and have joined another register."""

    def require(self, broker: BrokerId, join: Join) -> None:
        """Refuse *broker*, which asks to join, if it has joined another register.

        That is proven if the reported generation has a valid seal: then the other register was
        started with a newer copy of this one's disk.  It also counts as proven if all brokers that
        could lead have joined other registers: without them this register can't decide anything.

        Raises:
          SupersededError: if it is proven.
          RefusedError: REGISTER_SUPERSEDED, if the broker only claims it.
        """
        state, life = self._state, join.register
        if life is None or state.descends_from(life):
            return
        if is_proven(state, join):
            self._left.add(broker)
        told = (
            f"broker {broker} at {join.address} has followed a register of generation "
            f"{life.generation} that was started after this one, of generation "
            f"{state.life.generation}, or beside it"
        )
        if Seals(state.secret).knows_life(life) or self._is_left_by_all():
            raise SupersededError(told)
        raise RefusedError(
            f"{told}; nothing proves that, so this register goes on without it",
            Status.REGISTER_SUPERSEDED,
        )

    def _is_left_by_all(self) -> bool:
        """Whether every broker that could lead anything has joined another register."""
        records = self._state.partitions.values()
        needed = {one for record in records for one in newest_set(record)}
        needed = needed or set(self._state.brokers)
        return bool(needed) and needed <= self._left and needed.isdisjoint(self._live)

    def admitted(self, broker: BrokerId) -> None:
        """The broker has joined this register."""
        self._left.discard(broker)
