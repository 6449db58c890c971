"""The lives of named producers: what the oracle holds against a cluster, and what it excuses."""

from __future__ import annotations

import pytest
import trio

from octopi.identifiers import TopicId
from octopi.model import TopicOptions, TopicRecord
from octopi.replication.producer_fences import fence_id, fence_key
from octopi.simulation.cluster import ClusterOptions, SimulatedCluster
from octopi.simulation.invariants.committed_log import CommittedLog
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.invariants.producer_lives import ProducerLives
from octopi.simulation.kernel.world import Event, World
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Network
from octopi.tracing import steps
from tests.kit.probes import ALICE, batch
from tests.simulation.told import step_event, told

COMMIT = Event(0, 0.0, "broker-1", 1, "a commit", {})
FIRST, LATE = batch(0, b"first", epoch=1), batch(1, b"late", epoch=1)


def began(epoch: int, end: int) -> steps.C15Began:
    step = told(
        steps.C15Began, topic="topic", partition=0, producer=ALICE, producer_epoch=epoch, end=end
    )
    assert isinstance(step, steps.C15Began)
    return step


def commit(log: CommittedLog, records: bytes) -> int:
    """Commit *records*; return where they begin."""
    start = log.end
    assert log.extend(records, COMMIT) is None
    return start


def test_a_late_record_is_noticed_before_and_after_the_client_hears_of_its_life() -> None:
    for is_late in (False, True):
        log, lives = CommittedLog("topic", 0), ProducerLives()
        commit(log, FIRST)
        if is_late:
            assert not lives.began(began(2, len(FIRST)), log, 0)
            assert "began at" in lives.stored(log, commit(log, LATE), 0)
        else:
            assert not lives.stored(log, commit(log, LATE), 0)
            assert "began at" in lives.began(began(2, len(FIRST)), log, 0)


def test_what_lies_before_the_beginning_of_a_life_may_be_of_earlier_ones() -> None:
    log, lives = CommittedLog("topic", 0), ProducerLives()
    commit(log, FIRST + LATE)
    assert not lives.began(began(2, log.end), log, 0)
    assert not lives.stored(log, commit(log, batch(0, b"mine", epoch=2)), 0)
    assert not lives.began(began(1, 0), log, 0), "its answer was long on its way"
    assert "two lives" in lives.began(began(2, log.end), log, 0)


def test_a_life_that_may_be_lost_with_records_is_not_held_against_the_cluster() -> None:
    log, lives = CommittedLog("topic", 0), ProducerLives()
    assert not lives.began(began(2, 0), None, 0)
    assert not lives.stored(log, commit(log, FIRST), 1)
    assert not lives.began(began(2, len(FIRST)), log, 1)
    assert "began at" in lives.stored(log, commit(log, LATE), 1)


@pytest.mark.parametrize(
    ("what", "is_excused"),
    [
        ("nothing", False),
        ("a log of another topic", False),
        ("a loss in another topic", False),
        ("a loss in the internal log", True),
        ("a loss", True),
        ("a deletion", True),
        ("a deletion of another topic", False),
    ],
)
async def test_only_losses_and_deletions_of_that_log_excuse_a_late_record(
    what: str, is_excused: bool
) -> None:
    broken: list[str] = []
    world = World(1)
    async with trio.open_nursery() as nursery:
        cluster = SimulatedCluster(
            world, Network(world, FrameNet), nursery, ClusterOptions(partitions=1)
        )
        oracle = Oracle(cluster, lambda violation: broken.append(violation.rule))
        logs = {}
        for topic in ("topic", "other", "~subscriptions"):
            if what != "a log of another topic" or topic != "other":
                logs[topic] = oracle._logs[f"{topic}-id/0"] = CommittedLog(topic, 0)
        oracle(step_event(steps.C15Began, "client", **_facts(began(2, 0))))
        match what:
            case "a log of another topic":
                oracle._logs["other-id/0"] = CommittedLog("other", 0)
            case "a loss in another topic":
                logs["other"].cut(0)
            case "a loss in the internal log":
                logs["~subscriptions"].cut(0)
            case "a loss":
                logs["topic"].cut(0)
            case "a deletion":
                oracle(step_event(steps.T5Deleted, "register", topic="topic", topic_id="topic-id"))
            case "a deletion of another topic":
                oracle(step_event(steps.T5Deleted, "register", topic="other", topic_id="other-id"))
        log = logs["topic"]
        start = commit(log, FIRST)
        assert bool(oracle._lives.stored(log, start, oracle._losses("topic", 0))) != is_excused
        nursery.cancel_scope.cancel()
    assert not broken


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_a_life_is_told_only_when_its_fence_is_committed(is_fenced: bool) -> None:
    broken: list[str] = []
    world = World(1)
    async with trio.open_nursery() as nursery:
        cluster = SimulatedCluster(
            world, Network(world, FrameNet), nursery, ClusterOptions(partitions=1)
        )
        oracle = Oracle(cluster, lambda violation: broken.append(str(violation)))
        options = TopicOptions()
        cluster.decided.state._topics["topic"] = TopicRecord("topic", "id", [0], options)
        internal = oracle._logs["~subscriptions/0"] = CommittedLog("~subscriptions", 0)
        fence = fence_id(fence_key(TopicId("id"), ALICE))
        commit(internal, batch(0, b"", producer=fence, epoch=2 if is_fenced else 1))
        oracle(step_event(steps.C15Began, "client", **_facts(began(2, 0))))
        nursery.cancel_scope.cancel()
    assert ["no fence" in one for one in broken] == ([] if is_fenced else [True])


def _facts(step: steps.C15Began) -> dict[str, object]:
    return {name: getattr(step, name) for name in step.names}
