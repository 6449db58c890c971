"""An election that one broker holds: who has accepted its epoch, and when it may be decided.

It does no I/O, and proposes nothing itself: `octopi.ring.partition` does.  What an election is:
`octopi.coordination.election`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from octopi.coordination.agreed_partition import AgreedPartition
from octopi.coordination.election import Election, ElectionGoal
from octopi.coordination.partition_changes import PartitionChange, decide, recover
from octopi.identifiers import BrokerId, Epoch, is_internal
from octopi.limits import ACCEPT_WAIT_S, ACCEPTANCES_WAIT_S, ELECTION_WAIT_S, PULSE_S
from octopi.model import PartitionRecord
from octopi.ring.partition_effects import LeaderDecided
from octopi.wire.messages import AcceptEpoch


class OwnElection:
    """An election from its announcement to its decision."""

    def __init__(self, goal: ElectionGoal, *, is_inquiry: bool = False) -> None:
        """*is_inquiry*: an operator wants to know what replicas have, and perhaps orders that one
        of them leads; nothing is decided without that."""
        self.is_inquiry = is_inquiry
        self._goal = goal
        self._election: Election | None = None
        self._announce_at = inf
        self._decide_by = inf
        """When it is decided without those that have not accepted."""
        self._ends_at = inf
        self.is_deciding = False
        """Whether the decision is proposed."""

    @property
    def epoch(self) -> Epoch | None:
        """Its epoch; None: it is not announced yet."""
        return None if self._election is None else self._election.epoch

    def announced(self, epoch: Epoch, now: float) -> None:
        """The epoch is spent."""
        self._election = Election(epoch)
        self._announce_at = now
        self._ends_at = now + ELECTION_WAIT_S + ACCEPT_WAIT_S
        if self.is_inquiry:
            self._ends_at += ACCEPTANCES_WAIT_S

    @property
    def acceptances(self) -> Election | None:
        """Who has accepted; None: it is not announced yet."""
        return self._election

    def is_over(self, agreed: AgreedPartition) -> bool:
        """Whether its epoch is decided, or a later one announced."""
        epoch = self.epoch
        return epoch is not None and (agreed.record.epoch >= epoch or agreed.announced > epoch)

    def has_failed(self, now: float) -> bool:
        """Whether it has waited long enough for replicas that can lead."""
        return not self.is_deciding and now >= self._ends_at

    def is_to_be_announced(self, now: float) -> bool:
        """Whether replicas are to be told of the epoch now, perhaps once more."""
        if self.is_deciding or now < self._announce_at:
            return False
        self._announce_at = now + PULSE_S
        return True

    def accept(self, message: AcceptEpoch) -> None:
        """A replica accepted, or sent a further page of its acceptance."""
        if self._election is not None:
            self._election.accept(message)

    def decision(
        self,
        agreed: AgreedPartition,
        live: frozenset[BrokerId],
        leaderships: Mapping[BrokerId, int],
        now: float,
        serves: Callable[[BrokerId], bool] = lambda broker: True,
    ) -> PartitionChange | None:
        """The change that decides it, if that is possible at *now*; None: it isn't.

        *live*: the brokers that are not taken for dead.  *serves*: whether a broker's replica takes
        records; one that doesn't leads only if no other can.
        """
        election, record = self._election, agreed.record
        if election is None or self.is_deciding or self.is_inquiry or not election.accepts:
            return None
        live = live | election.accepts.keys()
        if election.missing(record, live):
            return None
        topics = self.topics
        if not record.in_sync:
            return recover(election, live, leaderships, topics=topics)
        self._decide_by = min(self._decide_by, now + ACCEPT_WAIT_S)
        if not election.is_complete(record, live) and now < self._decide_by:
            return None
        return decide(election, live, leaderships, topics=topics, goal=self._goal, serves=serves)

    def ordered(
        self, live: frozenset[BrokerId], leaderships: Mapping[BrokerId, int]
    ) -> PartitionChange | None:
        """The change by which the best replica that has accepted leads, whatever it lacks; None: it
        is not announced yet, or decided already."""
        if self._election is None or self.is_deciding:
            return None
        return recover(self._election, live, leaderships, topics=self.topics, ordered=True)

    def decided(self, record: PartitionRecord) -> LeaderDecided:
        """What is to be told of its decision *record*."""
        stands = self._election
        if stands is None or record.recovered_epoch != record.epoch:
            return LeaderDecided(record)
        topics = [one for one in self.topics if not is_internal(one)]
        losses = stands.losses(record.leader, topics)
        return LeaderDecided(record, tuple(losses), was_ordered=self.is_inquiry)

    @property
    def topics(self) -> list[str]:
        """The ids of all logs that somebody has who has accepted."""
        accepts = {} if self._election is None else self._election.accepts
        return sorted({log.topic_id for one in accepts.values() for log in one.ends})
