"""A register's decisions: persisted, made durable, then told, wherever the entries are kept."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from octopi.coordination.admission import Admission
from octopi.coordination.controller import Controller
from octopi.coordination.decisions import (
    ClusterDecision,
    Decision,
    EpochDecision,
    InSyncDecision,
    LeaderDecision,
    TopicAlterationDecision,
    TopicCreationDecision,
    TopicDeletionDecision,
)
from octopi.coordination.election import LogLoss
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    Entry,
    EpochAnnounced,
    PartitionDecided,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from octopi.coordination.rebuild import Rebuild
from octopi.environment import Environment, TraceEvent
from octopi.errors import LogReadOnlyError, NotReadyError
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.roles.register.decision_log import DecisionLog
from octopi.roles.register.event_log import EventLog
from octopi.roles.register.register_tracer import (
    Order,
    PartitionsOrder,
    RegisterTracer,
    RemovalOrder,
    TopicsOrder,
    edges_of_decision,
    edges_of_order,
)
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet

RECORD = m.PartitionRecord(0, 1, 0, 1, 1, [1, 2], [1, 2])
TOPIC = m.TopicRecord("orders", "1" * 16, [0], m.TopicOptions())
LOSS = LogLoss(TOPIC.topic_id, 3, 10)


class AgreedEntries:
    """Entries that are durable when others agree: like the log of several registers."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.agreed = trio.Event()
        self.failure: LogReadOnlyError | None = None

    size_bytes = 0
    wants_snapshot = False

    @property
    def is_flushed(self) -> bool:
        return self.agreed.is_set()

    def append(self, entries: list[Entry]) -> None:
        if self.failure is not None:
            raise self.failure
        self.entries += entries

    async def flush(self) -> None:
        await self.agreed.wait()
        if self.failure is not None:
            raise self.failure

    async def replace(self, entries: list[Entry]) -> None:
        self.entries = entries


class Decider:
    """A register of one broker without anything else than its decisions."""

    def __init__(self) -> None:
        self.entries = AgreedEntries()
        self.told: list[str] = []
        self.stop = trio.Event()
        self.controller = Controller(1)
        environment = Environment(
            SystemClock(), MemoryNet(), MemoryDisk(), SystemRandomness(), trace=self.observe
        )
        self.log = DecisionLog(
            environment,
            self.controller,
            self.entries,
            EventLog(environment.clock),
            RegisterTracer(environment.trace),
            self.stop,
        )

    def observe(self, event: TraceEvent) -> None:
        self.told.append(event.text)

    def tell(self, decision: EpochDecision) -> None:
        self.told.append(f"told epoch {decision.epoch}")


@pytest.fixture
def decider() -> Decider:
    """One that has a partition."""
    decider = Decider()
    decider.log.persist(decider.controller.form("c" * 16, "first"))
    decider.log.persist(ClusterDecision([PartitionDecided(RECORD)]))
    return decider


async def test_a_decision_takes_effect_at_once_and_is_told_only_when_it_is_durable(
    decider: Decider,
) -> None:
    begun = decider.controller.elections.begin(0)
    decider.log.persist(begun)
    assert decider.controller.state.announced_epoch(0) == 2
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: decider.log.durable(begun, tell=decider.tell))
        await wait_all_tasks_blocked()
        assert decider.told == []
        decider.entries.agreed.set()
    assert decider.told == ["E2 register made the next epoch durable", "told epoch 2"]


async def test_decisions_that_are_persisted_together_are_one_append(decider: Decider) -> None:
    before = len(decider.entries.entries)
    decider.log.persist(EpochDecision(0, 2), EpochDecision(0, 3))
    assert decider.entries.entries[before:] == [EpochAnnounced(0, 2), EpochAnnounced(0, 3)]
    decider.entries.agreed.set()
    await decider.log.durable(EpochDecision(0, 2), EpochDecision(0, 3), tell=decider.tell)
    assert decider.told[1::2] == ["told epoch 2", "told epoch 3"]


async def test_a_register_that_may_no_longer_decide_stops(
    decider: Decider,
) -> None:
    decider.entries.failure = LogReadOnlyError("another register decides")
    with pytest.raises(LogReadOnlyError):
        decider.log.persist(EpochDecision(0, 2))
    assert decider.controller.state.announced_epoch(0) == 1
    assert decider.stop.is_set()
    with pytest.raises(NotReadyError):
        decider.log.persist(EpochDecision(0, 2))


async def test_a_decision_that_is_not_agreed_on_is_never_told(decider: Decider) -> None:
    begun = EpochDecision(0, 2)
    decider.log.persist(begun)
    decider.entries.failure = LogReadOnlyError("another register decides")

    async def carry_out() -> None:
        with pytest.raises(NotReadyError):
            await decider.log.durable(begun, tell=decider.tell)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry_out)
        await wait_all_tasks_blocked()
        decider.entries.agreed.set()
    assert decider.told == []
    assert decider.stop.is_set()


JOINED = BrokerRegistered(1, 1, "nonce", "ws://broker:1")


@pytest.mark.parametrize(
    ("decision", "before", "behind"),
    [
        (ClusterDecision([]), [], []),
        (EpochDecision(0, 2), [], ["E2"]),
        (LeaderDecision(RECORD, RECORD, None, ordered=False), ["E8a"], ["E8b"]),
        (
            InSyncDecision(
                m.InSyncAltered(
                    m.AlterInSync(0, 1, 1, 1, 0, [1], None), accepted=True, record=RECORD
                )
            ),
            ["E17a"],
            ["E17b"],
        ),
        (TopicCreationDecision(TOPIC, [TopicCreated(TOPIC)]), ["T1a"], ["T1b"]),
        (TopicAlterationDecision(TOPIC, [TopicAltered(TOPIC)]), ["T8a"], ["T8b"]),
        (TopicAlterationDecision(TOPIC, []), [], []),
        (
            TopicDeletionDecision(TOPIC, [TopicDeleted(TOPIC.topic, TOPIC.topic_id, [1])]),
            ["T5a"],
            ["T5b"],
        ),
        (Admission(1, 1, [JOINED], [], Rebuild(), [], is_back=False), ["J5a"], ["J5b"]),
        (Admission(1, 1, [JOINED], [], Rebuild(), [], is_back=True), ["J5a"], ["J5b", "R8"]),
    ],
)
def test_each_decision_has_its_steps(
    decision: Decision, before: list[str], behind: list[str]
) -> None:
    edges = edges_of_decision(decision)
    assert [[step.code for step in edge] for edge in edges] == [before, behind]


def test_the_steps_of_an_appointment_tell_the_known_loss() -> None:
    appointed = LeaderDecision(RECORD, attrs.evolve(RECORD, epoch=2), [LOSS], ordered=True)
    for edge in edges_of_decision(appointed):
        assert [step.facts for step in edge] == [
            {"entries": [PartitionDecided(appointed.record)], "losses": [[LOSS]]}
        ]


def test_each_order_has_its_steps_and_an_empty_order_has_none() -> None:
    removed = [m.RemovedTopic("a", "1" * 16), m.RemovedTopic("b", "2" * 16)]
    expected: list[tuple[Order, list[list[str]]]] = [
        (m.AnnounceEpoch(0, 2), [["E3a"], ["E3b"]]),
        (PartitionsOrder([RECORD]), [["E9a"], ["E9b"]]),
        (PartitionsOrder([]), [[], []]),
        (TopicsOrder([TOPIC]), [["T2a"], ["T2b"]]),
        (TopicsOrder([]), [[], []]),
        (RemovalOrder(removed), [["T6a", "T6a"], ["T6b", "T6b"]]),
        (RemovalOrder([]), [[], []]),
    ]
    for order, codes in expected:
        edges = edges_of_order(7, order)
        assert [[step.code for step in edge] for edge in edges] == codes
        assert all(step.facts["broker"] == 7 for edge in edges for step in edge)
