"""Sessions, lag and the in-sync set, as the leader of a partition sees them."""

from typing import Any

import attrs
import pytest

from octopi.errors import ProtocolError, Status
from octopi.identifiers import (
    SUBSCRIPTIONS_LOG,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicId,
)
from octopi.record import BatchBuilder, Request, Run, encode_opaque, scan
from octopi.replication.effects import (
    CommitReceipt,
    Forward,
    OnLog,
    PublishHighwater,
    Refusal,
    Reply,
    ToBroker,
)
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.internal_log import fence_entry, next_records
from octopi.replication.log_state import LogState
from octopi.replication.partition_leader import PartitionLeader
from octopi.replication.prior_state import PriorState
from octopi.replication.producer_sequences import Duplicate, Fresh, ProducerSequences, Repeated
from octopi.wire.messages import (
    Acknowledge,
    EpochStart,
    Follow,
    Followed,
    FollowRefused,
    KnownProducer,
    KnownRequest,
    PartitionRecord,
)

TOPIC = TopicId("orders")
INTERNAL = TopicId(SUBSCRIPTIONS_LOG)
PRODUCER, EPOCH = ProducerId(b"p" * 16), ProducerEpoch(0)
FOLLOW = Follow(0, 3, 2, 1, 1, TOPIC, [EpochStart(1, 0)], 80)
ACKNOWLEDGE = Acknowledge(0, 3, 2, 1, 1, TOPIC, 80)


def leader(in_sync: list[int], **options: Any) -> PartitionLeader:  # noqa: ANN401
    record = PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], in_sync)
    machine = PartitionLeader(record, 0.0, durable=False, lag_s_max=1.0)
    log = LogState(Offset(100), Offset(0), Offset(100), epochs=EpochHistory.load([[1, 0], [2, 90]]))
    for name, value in options.items():
        setattr(log, name, value)
    machine.add_log(TOPIC, log)
    machine.check_invariants()
    return machine


def test_a_follower_is_told_where_the_logs_diverge() -> None:
    assert leader([1]).follow(FOLLOW) == [ToBroker(2, Followed(0, 3, 1, 1, TOPIC, 80, 80))]


def test_a_follower_from_before_retention_begins_where_the_leaders_log_starts() -> None:
    machine = leader([1], start=Offset(90), highwater=Offset(90))
    wrote = [EpochStart(1, 0)]
    assert machine.follow(FOLLOW) == [ToBroker(2, Followed(0, 3, 1, 1, TOPIC, 80, 90, wrote))]


def test_a_follower_is_told_the_producers_of_records_that_it_will_not_get() -> None:
    """Else it could lead one day, and take a repetition of it for news."""
    sequences = ProducerSequences()
    for first, offset in ((0, 10), (2, 40), (3, 90)):
        sequences.record(Run(PRODUCER, EPOCH, Sequence(first), 1, 0, 10), Offset(offset))
    machine = leader([1], start=Offset(60), highwater=Offset(60), sequences=sequences)
    (answer,) = machine.follow(attrs.evolve(FOLLOW, log_end=20))
    assert isinstance(answer, ToBroker)
    assert isinstance(answer.message, Followed)
    assert answer.message.producers == [KnownProducer(PRODUCER, EPOCH, 3, [0, 2], [10, 40])]
    past = PriorState.told(answer.message)
    assert past.epochs.epoch_at(Offset(40)) == 1
    repeated = Run(PRODUCER, EPOCH, Sequence(2), 1, 0, 10)
    assert past.sequences.check(repeated) == Duplicate(Offset(40), 0)
    fresh = Run(PRODUCER, EPOCH, Sequence(3), 1, 0, 10)
    assert past.sequences.check(fresh) == Fresh()


@pytest.mark.parametrize(
    "impossible",
    [
        KnownProducer(bytes(16), 0, 3, [0, 2], [10]),
        KnownProducer(bytes(16), 0, 3, [], []),
        KnownProducer(bytes(16), 0, 2, [0, 2], [10, 20]),
        KnownProducer(bytes(16), 0, 3, [2, 0], [10, 20]),
        KnownProducer(bytes(16), 0, 3, [0, 2], [20, 20]),
    ],
)
def test_impossible_producer_sequences_of_a_leader_are_refused(impossible: KnownProducer) -> None:
    with pytest.raises(ProtocolError, match="producer"):
        PriorState.told(Followed(0, 3, 1, 1, TOPIC, 0, 60, [], [impossible]))


def test_a_follower_is_told_the_ids_of_version_1_records_that_it_will_not_get() -> None:
    sequences = ProducerSequences()
    for number, offset in ((1, 10), (2, 60)):
        data = encode_opaque(bytes([number]) * 32, b"")
        sequences.note(scan(data), Offset(offset))
    machine = leader([1], start=Offset(60), highwater=Offset(60), sequences=sequences)
    (answer,) = machine.follow(attrs.evolve(FOLLOW, log_end=20))
    assert isinstance(answer, ToBroker)
    assert isinstance(answer.message, Followed)
    assert answer.message.requests == [KnownRequest(b"\1" * 32, 10)]
    past = PriorState.told(answer.message)
    assert past.sequences.check_requests([Request(b"\1" * 32, 0)]) == Repeated(
        Offset(10), Offset(10)
    )
    assert past.sequences.check_requests([Request(b"\2" * 32, 0)]) == Fresh()


@pytest.mark.parametrize(
    "impossible",
    [
        [KnownRequest(b"a", 5), KnownRequest(b"b", 5)],
        [KnownRequest(b"a", 5), KnownRequest(b"b", 4)],
        [KnownRequest(b"a", 5), KnownRequest(b"a", 6)],
    ],
)
def test_impossible_ids_of_version_1_records_are_refused(impossible: list[KnownRequest]) -> None:
    with pytest.raises(ProtocolError, match="version 1"):
        PriorState.told(Followed(0, 3, 1, 1, TOPIC, 0, 60, [], [], impossible))


@pytest.mark.parametrize("change", [{"epoch": 2}, {"epoch": 4}, {"broker": 9}, {"broker": 1}])
def test_a_broker_that_can_not_follow_is_refused(change: dict[str, Any]) -> None:
    (answer,) = leader([1]).follow(attrs.evolve(FOLLOW, **change))
    assert isinstance(answer, ToBroker)
    assert isinstance(answer.message, FollowRefused)


def test_a_follower_without_logs_is_neither_refused_nor_registered() -> None:
    """Sent away it would have to come again, and leave the in-sync set meanwhile."""
    machine = leader([1])
    nothing_yet = attrs.evolve(FOLLOW, topic_id="", epochs=[], log_end=0)
    assert machine.follow(nothing_yet) == []
    assert not machine.sessions
    (answer,) = machine.follow(FOLLOW)
    assert isinstance(answer, ToBroker)
    assert isinstance(answer.message, Followed)


def test_a_follower_that_made_a_new_log_first_is_answered_when_the_leader_has_made_it() -> None:
    """Sent away it would have to come again, and leave the in-sync set meanwhile."""
    machine = leader([1, 2])
    early = attrs.evolve(FOLLOW, topic_id="new", epochs=[], log_end=0)
    assert machine.follow(early) == []
    effects = machine.add_log(TopicId("new"), LogState.empty())
    answer = ToBroker(2, Followed(0, 3, 1, 1, "new", 0, 0))
    assert [one for one in effects if isinstance(one, ToBroker)] == [answer]
    machine.check_invariants()


def test_an_impossible_history_is_an_error_of_the_follower() -> None:
    broken = attrs.evolve(FOLLOW, epochs=[EpochStart(2, 0), EpochStart(1, 5)])
    with pytest.raises(ProtocolError):
        leader([1]).follow(broken)


def test_acknowledging_beyond_the_end_of_the_log_is_an_error_of_the_follower() -> None:
    machine = leader([1])
    machine.follow(FOLLOW)
    with pytest.raises(ProtocolError):
        machine.acknowledge(attrs.evolve(ACKNOWLEDGE, end=101))


@pytest.mark.parametrize(
    "change",
    [{"epoch": 2}, {"incarnation": 2}, {"attempt": 2}, {"topic_id": "other"}, {"broker": 3}],
)
def test_only_acknowledgements_of_this_epoch_and_session_count(change: dict[str, Any]) -> None:
    machine = leader([1, 2])
    machine.follow(FOLLOW)
    assert machine.acknowledge(attrs.evolve(ACKNOWLEDGE, **change)) == []
    assert machine.logs[TOPIC].log.highwater == 0
    machine.acknowledge(ACKNOWLEDGE)
    assert machine.logs[TOPIC].log.highwater == 80


def test_a_follow_request_of_an_earlier_session_is_ignored() -> None:
    machine = leader([1])
    machine.follow(attrs.evolve(FOLLOW, attempt=2))
    assert machine.follow(FOLLOW) == []


def test_a_follower_joins_when_it_holds_what_the_leader_began_with() -> None:
    machine = leader([1])
    machine.follow(FOLLOW)
    machine.acknowledge(ACKNOWLEDGE)
    assert not machine.may_join(2), "80 of 100"
    machine.acknowledge(attrs.evolve(ACKNOWLEDGE, end=100))
    change = machine.wanted_change(0.1)
    assert change == machine.joining(2)
    assert change.in_sync == [1, 2]
    assert change.joiner_incarnation == 1
    machine.session_ended(2, 1, 1)
    assert not machine.may_join(2)


def test_a_follower_that_lags_leaves_after_the_bound_and_not_before() -> None:
    machine = leader([1, 2, 3])
    machine.follow(FOLLOW)
    assert machine.wanted_change(1.0) is None
    machine.acknowledge(attrs.evolve(ACKNOWLEDGE, end=100))
    change = machine.wanted_change(1.1)
    assert change == machine.leaving(3)
    machine.proposed(change)
    assert machine.wanted_change(9.0) is None, "one change at a time"


def test_a_follower_whose_stream_broke_is_not_waited_for() -> None:
    machine = leader([1, 2])
    machine.follow(FOLLOW)
    machine.acknowledge(attrs.evolve(ACKNOWLEDGE, end=100))
    assert machine.wanted_change(0.1) is None
    machine.session_ended(2, 1, 1)
    assert machine.wanted_change(0.1) == machine.leaving(2)
    machine.follow(attrs.evolve(FOLLOW, attempt=2))
    assert machine.wanted_change(0.1) is None


def test_a_broker_that_is_away_is_waited_for_only_if_it_follows_all_the_same() -> None:
    machine = leader([1, 2, 3])
    machine.follow(FOLLOW)
    machine.acknowledge(attrs.evolve(ACKNOWLEDGE, end=100))
    assert machine.wanted_change(0.1) is None
    machine.away = frozenset({2, 3})
    assert machine.wanted_change(0.1) == machine.leaving(3)


def test_the_in_sync_set_does_not_shrink_below_min_insync_if_replicas_are_away() -> None:
    machine = leader([1, 2], min_insync=2)
    machine.away = frozenset({2})
    assert machine.wanted_change(0.1) is None


def test_a_follower_whose_stream_breaks_again_and_again_leaves_the_in_sync_set() -> None:
    machine = leader([1, 2])
    for attempt in range(1, 5):
        machine.follow(attrs.evolve(FOLLOW, attempt=attempt))
        machine.session_ended(2, 1, attempt)
        machine.wanted_change(attempt * 0.3)
    machine.follow(attrs.evolve(FOLLOW, attempt=5))
    assert machine.wanted_change(1.3) == machine.leaving(2)


def test_produces_are_refused_while_too_few_are_in_sync() -> None:
    machine = leader([1], min_insync=2)
    builder = BatchBuilder()
    builder.add(b"value")
    data = builder.encode(b"p" * 16, 0, 0)
    (reply,) = machine.logs[TOPIC].receive(data, scan(data), lambda _: None)
    assert isinstance(reply, Reply)
    assert isinstance(reply.content, Refusal)
    assert reply.content.status == Status.NOT_READY
    assert machine.min_insync == 2
    machine.remove_log(TOPIC)
    assert machine.min_insync == 1


def test_an_internal_log_does_not_raise_the_min_insync_of_its_partition() -> None:
    machine = leader([1, 2], min_insync=2)
    machine.add_log(INTERNAL, LogState.empty(min_insync=1))
    assert machine.min_insync == 2, "or every set could shrink to one"
    internal_alone = leader([1, 2])
    internal_alone.remove_log(TOPIC)
    internal_alone.add_log(INTERNAL, LogState.empty(min_insync=3))
    assert internal_alone.min_insync == 1


def test_a_fence_is_committed_by_as_many_as_its_topic_asks_for_while_that_exists() -> None:
    machine = leader([1, 2], min_insync=2)
    machine.add_log(INTERNAL, LogState.empty())
    internal = machine.logs[INTERNAL]
    internal.begin_fences(TOPIC, machine.logs[TOPIC].log)
    entry = fence_entry(TOPIC, PRODUCER, ProducerEpoch(1))
    records = next_records(INTERNAL, internal, [entry], 0)
    answers: list[CommitReceipt | Refusal] = []
    internal.receive(records, scan(records), answers.append)
    assert internal.appended(Offset(0), scan(records), answers.append) == [Forward(len(records))]
    machine.learn(PartitionRecord(0, 3, 1, 1, 1, [1, 2, 3], [1]))
    assert internal.flushed(internal.log.end) == []
    (refusal,) = internal.receive(records, scan(records), answers.append)
    assert isinstance(refusal, Reply)
    assert isinstance(refusal.content, Refusal)
    assert refusal.content.reason == "1 of at least 2 replicas are in sync"
    published, _ = machine.remove_log(TOPIC)
    assert published == OnLog(INTERNAL, PublishHighwater(internal.log.end))
    assert machine.remove_log(TOPIC) == []


def test_an_internal_log_commits_with_as_many_as_its_topics_ask_for() -> None:
    machine = leader([1])
    state = LogState.empty()
    machine.add_log(INTERNAL, state)
    state.min_insync = 2
    assert machine.require_again(INTERNAL) == []
    state.end = state.flushed_end = Offset(10)
    assert machine.require_again(INTERNAL) == []
    assert state.highwater == 0
    state.min_insync = 1
    assert OnLog(INTERNAL, PublishHighwater(Offset(10))) in machine.require_again(INTERNAL)
    assert machine.require_again(TopicId("gone")) == []
