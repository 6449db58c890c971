"""The steps of a register for an observer: of each decision, of each order, and of events.

`octopi.roles.register.decision_log` has each decision traced before it is persisted and when it is
durable, `octopi.roles.register.member` each order before it is sent and when the broker has
confirmed it.  A decision or an order that fails has no second step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from octopi.coordination.admission import Admission
from octopi.coordination.decisions import (
    Decision,
    EpochDecision,
    GenerationDecision,
    InSyncDecision,
    LeaderDecision,
    TopicAlterationDecision,
    TopicCreationDecision,
    TopicDeletionDecision,
)
from octopi.coordination.election import ElectionGoal
from octopi.coordination.shedding import Move
from octopi.environment import Trace
from octopi.identifiers import BrokerId, Incarnation, PartitionId
from octopi.tracing import steps
from octopi.tracing.step import Step
from octopi.wire.messages import (
    AcceptEpoch,
    AnnounceEpoch,
    BrokerStatus,
    PartitionLoad,
    PartitionRecord,
    RemovedTopic,
    TopicRecord,
)


@attrs.frozen
class PartitionsOrder:
    """Install decisions about partitions."""

    records: list[PartitionRecord]


@attrs.frozen
class TopicsOrder:
    """Make a log of each topic in each of its partitions."""

    topics: list[TopicRecord]


@attrs.frozen
class RemovalOrder:
    """Remove deleted topics."""

    topics: list[RemovedTopic]


Order = AnnounceEpoch | PartitionsOrder | TopicsOrder | RemovalOrder

Edges = tuple[Sequence[Step], Sequence[Step]]
"""The steps before, and the steps after."""


class RegisterTracer:
    """Traces what one register does; without an observer it does nothing."""

    def __init__(self, trace: Trace | None) -> None:
        self._trace = trace

    # --- decisions and orders ------------------------------------------------------------

    def deciding(self, decision: Decision) -> None:
        """*decision* is persisted next."""
        self._tell_edge(decision, 0)

    def durable(self, decision: Decision) -> None:
        """*decision* is durable and told next."""
        self._tell_edge(decision, 1)

    def _tell_edge(self, decision: Decision, edge: int) -> None:
        if (trace := self._trace) is not None:
            for step in edges_of_decision(decision)[edge]:
                trace(step)

    def ordering(self, broker: BrokerId, order: Order) -> None:
        """*broker* is told *order* next."""
        self._tell_edge_of_order(broker, order, 0)

    def ordered(self, broker: BrokerId, order: Order) -> None:
        """*broker* has confirmed *order*; nothing is traced if that is empty."""
        self._tell_edge_of_order(broker, order, 1)

    def _tell_edge_of_order(self, broker: BrokerId, order: Order, edge: int) -> None:
        if (trace := self._trace) is not None:
            for step in edges_of_order(broker, order)[edge]:
                trace(step)

    # --- events --------------------------------------------------------------------------

    def gathered(self, cluster: str) -> None:
        """The register has listened to brokers for long enough."""
        self._tell(lambda: steps.R5Gathered(cluster))

    def lost(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """That incarnation of a broker is no longer a member."""
        self._tell(lambda: steps.R6Lost(broker, incarnation))

    def broken(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """The connection with that incarnation of a broker broke."""
        self._tell(lambda: steps.R7Broken(broker, incarnation))

    def serving(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """Clients are sent to that incarnation of a broker from now on."""
        self._tell(lambda: steps.J6Serving(broker, incarnation))

    def troubled(self, broker: BrokerId, status: BrokerStatus) -> None:
        """A broker reported which of its replicas take no records."""
        self._tell(lambda: steps.J14Troubled(broker, status.disk_trouble, status.replicas))

    def emptying(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """That incarnation of a broker is about to stop; its leaderships are handed over next."""
        self._tell(lambda: steps.E22Emptying(broker, incarnation))

    def emptied(self, broker: BrokerId, incarnation: Incarnation) -> None:
        """All leaderships that could be handed over were."""
        self._tell(lambda: steps.E22Emptied(broker, incarnation))

    def wanted(self, record: PartitionRecord, goal: ElectionGoal | None) -> None:
        """The partition of *record* should have another leader, or reach *goal*."""
        if (trace := self._trace) is not None:
            told = attrs.asdict(record, filter=lambda one, _: one.name != "seal")
            trace(steps.E1Wanted(**told, goal=goal))

    def counted(self, accepted: AcceptEpoch) -> None:
        """A replica's acceptance counts."""
        self._tell(lambda: steps.E7Counted(**attrs.asdict(accepted)))

    def given_up(self, partition: PartitionId, goal: ElectionGoal) -> None:
        """*goal* was not reached in time."""
        self._tell(lambda: steps.E20GivenUp(partition, goal))

    def installed(self, topic: TopicRecord) -> None:
        """All live brokers that hold *topic* know it."""
        self._tell(lambda: steps.T4Installed(*_placed(topic)))

    def heard_load(self, broker: BrokerId, loads: list[PartitionLoad]) -> None:
        """A broker reported its load."""
        self._tell(lambda: steps.H2Heard(broker, loads))

    def shedding(self, move: Move) -> None:
        """A leadership is moved next, because its leader has more to do than others."""
        self._tell(lambda: steps.H3Moving(move))

    def shed(self, move: Move) -> None:
        """It was moved, or somebody else leads."""
        self._tell(lambda: steps.H3Moved(move))

    def hot(self, partitions: Sequence[PartitionId]) -> None:
        """Partitions became too much for one broker."""
        self._tell(lambda: steps.H4Hot(list(partitions)))

    def _tell(self, make: Callable[[], Step]) -> None:
        """Trace a step, whose class is loaded only if it is traced (`octopi.tracing`)."""
        if self._trace is not None:
            self._trace(make())


def edges_of_decision(decision: Decision) -> Edges:
    """The steps before *decision* is persisted, and when it is durable."""
    match decision:
        case EpochDecision(partition, epoch):
            return [], [steps.E2Announced(partition, epoch)]
        case LeaderDecision(losses=losses):
            appointed = decision.entries, [] if losses is None else [losses]
            return [steps.E8Deciding(*appointed)], [steps.E8Decided(*appointed)]
        case InSyncDecision(answer):
            judged = answer.asked, answer.accepted, answer.record
            return [steps.E17Altering(*judged)], [steps.E17Altered(*judged)]
        case TopicCreationDecision(topic):
            return [steps.T1Creating(*_placed(topic))], [steps.T1Created(*_placed(topic))]
        case TopicAlterationDecision(topic) if decision.entries:
            altered = topic.topic, topic.topic_id, topic.options
            return [steps.T8Altering(*altered)], [steps.T8Altered(*altered)]
        case GenerationDecision(topic):
            newest = topic.generations[-1]
            partitions = list(newest.partitions)
            told = topic.topic, topic.topic_id, partitions, newest.number, newest.state
            return [steps.V1Deciding(*told)], [steps.V1Decided(*told)]
        case TopicDeletionDecision(topic):
            deleted = topic.topic, topic.topic_id
            return [steps.T5Deleting(*deleted)], [steps.T5Deleted(*deleted)]
        case Admission(broker, incarnation, entries):
            admitted = broker, incarnation, entries
            restored = [steps.R8Restored(broker, incarnation)] if decision.is_back else []
            return [steps.J5Admitting(*admitted)], [steps.J5Admitted(*admitted), *restored]
    return [], []


def edges_of_order(broker: BrokerId, order: Order) -> Edges:
    """The steps before *broker* is told *order*, and when it has confirmed it."""
    match order:
        case AnnounceEpoch(partition, epoch):
            announced = partition, epoch, broker
            return [steps.E3Announcing(*announced)], [steps.E3Told(*announced)]
        case PartitionsOrder(records) if records:
            return [steps.E9Telling(broker, records)], [steps.E9Confirmed(broker, records)]
        case TopicsOrder(topics) if topics:
            return [steps.T2Telling(broker, topics)], [steps.T2Confirmed(broker, topics)]
        case RemovalOrder(topics):
            removed = [(broker, one.topic, one.topic_id) for one in topics]
            return (
                [steps.T6Telling(*one) for one in removed],
                [steps.T6Confirmed(*one) for one in removed],
            )
    return [], []


def _placed(topic: TopicRecord) -> tuple[str, str, list[PartitionId]]:
    return topic.topic, topic.topic_id, topic.partitions
