"""What a register hands over: when it can, and what brokers make of it."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import pytest

from octopi.agreement.acceptor import AnswerProposer
from octopi.agreement.acceptors import Acceptors
from octopi.coordination.agreed_partition import decode_partition
from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    BrokerRemoved,
    ClusterFormed,
    Entry,
    EpochAnnounced,
    HandedOver,
    HandOverAnnounced,
    PartitionDecided,
    RegisterStarted,
    TopicCreated,
    TopicDeleted,
)
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId, DirectoryId, Epoch, Incarnation, PartitionId
from octopi.limits import BROKER_ID_MAX, GROWTH_MEMBERS_MAX, HAND_OVER_ATTEMPTS_MAX
from octopi.model import PartitionRecord, RegisterGeneration, TopicKind, TopicOptions, TopicRecord
from octopi.ring.cluster_record import encode_cluster
from octopi.ring.first_partition import first_partition_value, instance_of
from octopi.ring.hand_over import CLUSTER, HandOver, handed_over_entries
from octopi.ring.handing_over import record_to_hand_over
from octopi.ring.homes import TAKEN_OVER, topics_of
from octopi.roles.register_entries import decode, encode
from octopi.wire.agreement import NO_BALLOT, Ballot, BallotPromised, PrepareBallot

BROKERS = TWO, THREE, SEVEN = BrokerId(2), BrokerId(3), BrokerId(7)
RECORD = PartitionRecord(
    PartitionId(1), Epoch(4), 2, THREE, Incarnation(5), [*BROKERS], [THREE, SEVEN], seal="sealed"
)


def topic(name: str, *partitions: int, min_insync: int = 1) -> TopicRecord:
    return TopicRecord(
        name,
        name.encode().hex().ljust(16, "0")[:16],
        [PartitionId(one) for one in partitions],
        TopicOptions(min_insync=min_insync),
    )


ORDERS, WIDE = topic("orders", 1, min_insync=2), topic("wide", 1, 0, min_insync=3)
FIRST: tuple[Entry, ...] = (
    RegisterStarted(RegisterGeneration(1, "a" * 16)),
    ClusterFormed("0123456789abcdef", 4, "secret"),
    *(
        BrokerRegistered(BrokerId(one), Incarnation(one), f"{one}" * 16, f"ws://b{one}:1")
        for one in BROKERS
    ),
    BrokerRegistered(BrokerId(9), Incarnation(1), "9" * 16, "ws://b9:1"),
    BrokerRemoved(BrokerId(9)),
    PartitionDecided(attrs.evolve(RECORD, partition=PartitionId(0))),
    PartitionDecided(RECORD),
    EpochAnnounced(PartitionId(1), Epoch(6)),
    TopicCreated(ORDERS, "ann"),
    TopicCreated(WIDE),
)
DIRECTORIES = {BrokerId(one): DirectoryId(f"d{one}") for one in BROKERS}


def state_of(entries: Iterable[Entry]) -> ClusterState:
    state = ClusterState()
    for entry in entries:
        state.apply(entry)
    return state


def handed_over(*more: Entry) -> HandOver:
    state = state_of([*FIRST, *more])
    record = record_to_hand_over(state, 3, DIRECTORIES, DIRECTORIES, [BrokerId(7)])
    state.apply(HandedOver(encode_cluster(record)))
    return HandOver(handed_over_entries(state))


# --- the register's journal ------------------------------------------------------------------


def test_nothing_is_decided_after_the_cluster_was_handed_over() -> None:
    state = state_of([*FIRST, HandedOver(b"record")])
    with pytest.raises(AssertionError, match="handed over"):
        state.apply(EpochAnnounced(PartitionId(1), Epoch(9)))
    assert state_of(state.entries()).handed_over == HandedOver(b"record")
    assert state.entries()[-1] == HandedOver(b"record")


def test_a_register_remembers_the_last_tries_and_hands_over_by_the_newest() -> None:
    assert handed_over().attempt == ""
    tries = [HandOverAnnounced(f"{number:016x}") for number in range(HAND_OVER_ATTEMPTS_MAX + 2)]
    assert handed_over(*tries).attempt == tries[-1].attempt
    state = state_of([*FIRST, *tries])
    assert state.hand_over_attempts == [one.attempt for one in tries[2:]]
    assert state_of(state.entries()).hand_over_attempts == state.hand_over_attempts
    assert decode(encode(tries[0])) == tries[0]


def test_the_secret_of_the_register_stays_with_it() -> None:
    entries = handed_over_entries(state_of(FIRST))
    assert [one.secret for one in entries if isinstance(one, ClusterFormed)] == [""]
    with pytest.raises(ValueError, match="last entry is missing"):
        HandOver(entries)
    with pytest.raises(ValueError, match="contradict"):
        HandOver([*entries, HandedOver(b""), HandedOver(b"")])


# --- what brokers begin with -----------------------------------------------------------------


def test_the_record_names_all_brokers_and_those_that_are_drained_or_gone() -> None:
    record = handed_over().record
    assert [one.broker for one in record.growths[0].members] == [2, 3, 7]
    assert [one.directory for one in record.growths[0].members] == ["d2", "d3", "d7"]
    assert (record.ids, record.drained, record.gone) == (9, (7,), (9,))
    assert (record.taken_over, record.home_count) == (4, 4)
    assert len({one.point for one in record.growths[0].members}) == 3


def test_partitions_begin_with_what_the_register_had_decided() -> None:
    hand_over = handed_over()
    told = hand_over.chosen(PartitionId(1))
    assert told is not None
    agreed = decode_partition(told.value.content)
    assert agreed.record == attrs.evolve(RECORD, seal="")
    assert (agreed.announced, agreed.min_insync) == (6, 2)
    registered = [(one.broker, one.incarnation) for one in agreed.incarnations]
    assert registered == [(2, 2), (3, 3), (7, 7)]
    assert (told.value.change, told.ballot) == (1, NO_BALLOT)
    assert hand_over.chosen(PartitionId(2)) is None, "no topic has needed it yet"


def test_who_joins_later_knows_the_same_acceptors_and_is_told_what_was_handed_over() -> None:
    hand_over = handed_over()
    told = hand_over.chosen(PartitionId(1))
    computed = first_partition_value(hand_over.record, PartitionId(1))
    assert told is not None
    assert computed is not None
    assert (computed.acceptors, computed.change) == (told.value.acceptors, 0)
    instance = instance_of(PartitionId(1))
    for identity in told.value.acceptors:
        acceptors = Acceptors(identity, hand_over.first)
        asked = PrepareBallot(instance, Ballot(1, BrokerId(99), Incarnation(1)))
        *_, answer = acceptors.receive(asked)
        assert isinstance(answer, AnswerProposer)
        assert isinstance(answer.message, BallotPromised)
        assert answer.message.value == told.value


def test_a_partition_that_no_topic_has_needed_begins_as_in_any_ring() -> None:
    hand_over = handed_over()
    first = first_partition_value(hand_over.record, PartitionId(2))
    assert hand_over.first(instance_of(PartitionId(2))) == first
    assert hand_over.first(instance_of(PartitionId(4))) is None


@pytest.mark.parametrize(("brokers", "acceptors"), [(1, 1), (2, 1), (3, 3), (4, 3), (8, 5)])
def test_an_odd_number_of_brokers_agrees_about_the_cluster(brokers: int, acceptors: int) -> None:
    ids = [BrokerId(one) for one in range(1, brokers + 1)]
    state = state_of(
        [
            *FIRST[:2],
            *(BrokerRegistered(one, Incarnation(1), "a" * 16, f"ws://b{one}:1") for one in ids),
        ]
    )
    directories = {one: DirectoryId(f"d{one}") for one in ids}
    record = record_to_hand_over(state, 3, directories, ids, [])
    state.apply(HandedOver(encode_cluster(record)))
    hand_over = HandOver(handed_over_entries(state))
    value = hand_over.first(CLUSTER)
    assert value is not None
    assert value == hand_over.cluster.value
    assert [one.broker for one in value.acceptors] == ids[:acceptors]


def test_each_log_gets_the_topics_of_its_home_and_those_that_it_has() -> None:
    hand_over = handed_over()
    homes = set()
    for number in range(4):
        entries = hand_over.topic_entries(PartitionId(number))
        assert entries[-1] == TAKEN_OVER
        content = topics_of({key: value for key, value in entries if value is not None})
        assert content.is_taken_over
        homes |= set(content.topics)
        has = {one.topic for one in content.hosted.values()}
        assert has == {0: {"wide"}, 1: {"orders", "wide"}}.get(number, set())
        for one in content.topics.values():
            assert one.creator == ("ann" if one.topic.topic == "orders" else "")
    assert homes == {"orders", "wide"}


# --- what has to be done before --------------------------------------------------------------


def refused(*more: Entry, live: Iterable[int] = BROKERS, prepared: Iterable[int] = BROKERS) -> str:
    directories = {BrokerId(one): DirectoryId(f"d{one}") for one in prepared}
    with pytest.raises(RefusedError) as found:
        record_to_hand_over(
            state_of([*FIRST, *more]), 3, directories, [BrokerId(one) for one in live], []
        )
    assert found.value.status is Status.INVALID_OPTION
    return str(found.value)


def test_brokers_that_are_away_or_not_prepared_are_named() -> None:
    assert "broker 3 is away: start it, or remove it" in refused(live=(2, 7))
    assert "broker 7 is not prepared: start it with --join" in refused(prepared=(2, 3))


def test_what_does_not_go_over_is_named() -> None:
    prices = attrs.evolve(topic("prices", 0), kind=TopicKind.RELAY)
    assert "topic prices is in memory" in refused(TopicCreated(prices))
    nobody = attrs.evolve(RECORD, version=3, in_sync=[], lost=[THREE])
    assert "no replica of partition 1 is in sync" in refused(PartitionDecided(nobody))
    emptied = BrokerRegistered(BrokerId(2), Incarnation(8), "c" * 16, "ws://b2:1", replaced=True)
    lost = attrs.evolve(RECORD, version=3, lost=[TWO])
    assert "counts on what broker 2 has lost" in refused(emptied, PartitionDecided(lost))


def test_a_cluster_without_brokers_or_with_too_many_is_refused() -> None:
    with pytest.raises(RefusedError, match="no broker has joined") as found:
        record_to_hand_over(ClusterState(), 3, {}, [], [])
    assert found.value.status is Status.NO_BROKER
    many = [
        BrokerRegistered(BrokerId(100 + one), Incarnation(1), "d" * 16, f"ws://c{one}:1")
        for one in range(GROWTH_MEMBERS_MAX)
    ]
    assert f"hands over to {GROWTH_MEMBERS_MAX} brokers at most" in refused(*many)
    long = [
        BrokerRegistered(BrokerId(100 + one), Incarnation(1), "d" * 16, f"ws://{'x' * 280}:{one}")
        for one in range(GROWTH_MEMBERS_MAX - len(BROKERS))
    ]
    everybody = (*BROKERS, *(one.broker for one in long))
    why = refused(*long, live=everybody, prepared=everybody)
    assert "the addresses of the brokers are too long" in why
    last = BrokerRegistered(BrokerId(BROKER_ID_MAX), Incarnation(1), "d" * 16, "ws://c:1")
    record_to_hand_over(
        state_of([*FIRST, last]),
        3,
        {**DIRECTORIES, BrokerId(BROKER_ID_MAX): DirectoryId("e")},
        {*DIRECTORIES, BrokerId(BROKER_ID_MAX)},
        [],
    )


def test_a_deleted_topic_that_a_broker_still_has_is_waited_for() -> None:
    deleted = TopicDeleted("orders", ORDERS.topic_id, [BrokerId(3)])
    with pytest.raises(NotReadyError, match="broker 3 has not removed the deleted topic orders"):
        record_to_hand_over(state_of([*FIRST, deleted]), 3, DIRECTORIES, DIRECTORIES, [])
