"""Who decides the record of a partition: here, one register over its `ClusterState`.

Each answer is journal entries, to be made durable before anything of them is told.  How a
change goes is in `octopi.membership.leadership_change`, what may alter the in-sync set in
`octopi.membership.in_sync_changes`; this joins them to brokers, their lives, and topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from octopi.errors import NotReadyError
from octopi.membership.cluster_state import ClusterState
from octopi.membership.entries import BrokerRegistered, Entry, EpochAnnounced, PartitionDecided
from octopi.membership.in_sync_changes import alter
from octopi.membership.leadership_change import NO_WISH, LeadershipChange, Wish
from octopi.wire.messages import AcceptEpoch, AlterInSync, AnnounceEpoch, InSyncAltered


class Leaderships:
    """The leaders and in-sync sets of all partitions.

    Invariant: a change is under way for exactly the partitions whose announced epoch is not
    decided.
    """

    def __init__(
        self,
        state: ClusterState,
        live: Mapping[int, int],
        is_doubted: Callable[[int], bool] = lambda partition: False,
        *,
        recover_when_all_reported: bool = False,
    ) -> None:
        """*live* is the caller's: broker -> incarnation.  *is_doubted* says of which partitions the
        record is not known to be the newest: nothing is decided about them.
        *recover_when_all_reported*: give up what only lost logs held as soon as all replicas are
        back, without being ordered to."""
        self._state = state
        self._live = live
        self._is_doubted = is_doubted
        self._recover_when_all_reported = recover_when_all_reported
        self.changes: dict[int, LeadershipChange] = {}

    def apply(self, entry: Entry) -> None:
        """Take note of an *entry* of the journal, which the state has taken note of."""
        match entry:
            case BrokerRegistered(broker):
                # It was restarted: what its earlier life accepted counts no more.
                for one in self.changes.values():
                    one.forget(broker)
            case EpochAnnounced(partition, epoch):
                if epoch > self._state.partitions[partition].epoch:
                    self.changes[partition] = LeadershipChange(epoch)
            case PartitionDecided(record):
                change = self.changes.get(record.partition)
                if change is not None and change.epoch <= record.epoch:
                    del self.changes[record.partition]

    # --- changing the leader ---------------------------------------------------------

    def leaderless(self) -> list[int]:
        """Partitions whose leader is gone while there are other replicas, and for which no
        change is under way."""
        return sorted(
            record.partition
            for record in self._state.partitions.values()
            if len(record.replicas) > 1
            and self._live.get(record.leader) != record.leader_incarnation
            and record.partition not in self.changes
            and not self._is_doubted(record.partition)
        )

    def announce(self, partition: int) -> list[Entry]:
        """Begin a change, or begin it anew; then send `announcement` to the replicas.

        Raises:
          NotReadyError: while the partition's record is not known to be the newest.
        """
        if self._is_doubted(partition):
            raise NotReadyError(
                f"partition {partition}: a broker was told something newer than this register "
                "knows, and not all of its replicas have reported since"
            )
        return [EpochAnnounced(partition, self._state.announced_epoch(partition) + 1)]

    def announcement(self, partition: int) -> AnnounceEpoch | None:
        """What to tell the replicas, also those that join later; None: no change under way."""
        change = self.changes.get(partition)
        return AnnounceEpoch(partition, change.epoch) if change is not None else None

    def accept(self, message: AcceptEpoch) -> bool:
        """A replica accepted; say whether it counts: only a registered life's does."""
        change = self.changes.get(message.partition)
        known = self._state.brokers.get(message.broker)
        if change is None or known is None or known.incarnation != message.incarnation:
            return False
        return change.accept(message)

    def is_complete(self, partition: int, *, expects_all: bool = False) -> bool:
        """Whether there is nobody left to wait for; *expects_all*: also of those that are away."""
        change = self.changes.get(partition)
        record = self._state.partitions[partition]
        expected = record.replicas if expects_all else self._live
        return change is not None and change.is_complete(record, expected)

    def conclude(
        self, partition: int, *, wish: Wish = NO_WISH, ordered: bool = False
    ) -> list[Entry]:
        """Commit the change if that is possible now, else nothing.

        *ordered*: an operator gives up what only the lost in-sync replicas held.
        """
        change = self.changes.get(partition)
        if change is None or self._is_doubted(partition):
            return []
        record = self._state.partitions[partition]
        leaderships = Counter(one.leader for one in self._state.partitions.values())
        if record.in_sync:
            decided = change.decide(
                record,
                self._live.keys(),
                leaderships,
                min_insync=self._state.min_insync(partition),
                wish=wish,
            )
        elif ordered or self._recover_when_all_reported:
            decided = change.recover(record, leaderships, ordered=ordered)
        else:
            decided = None
        return [PartitionDecided(decided)] if decided is not None else []

    # --- changing the in-sync set ----------------------------------------------------

    def alter(self, request: AlterInSync) -> tuple[list[Entry], InSyncAltered] | None:
        """Judge a leader's request; the answer may be told when the entries are durable.
        None: the partition isn't known (yet), or not for certain, so there is no answer."""
        record = self._state.partitions.get(request.partition)
        if record is None or self._is_doubted(request.partition):
            return None
        incarnations = {one.broker: one.incarnation for one in self._state.brokers.values()}
        altered = alter(record, request, incarnations)
        if isinstance(altered, str):
            return [], InSyncAltered(request, False, record)
        return [PartitionDecided(altered)], InSyncAltered(request, True, altered)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for partition, record in self._state.partitions.items():
            announced = self._state.announced_epoch(partition)
            change = self.changes.get(partition)
            assert (change is not None) == (announced > record.epoch)
            assert change is None or change.epoch == announced
