"""What the machines of relays say to each other is the same behind the wire; and the list of relays
says the same everywhere."""

from __future__ import annotations

import pytest

from octopi.errors import InvalidOptionError, ProtocolError, Status
from octopi.identifiers import BrokerId, Incarnation, Offset, PartitionId, TopicId, TopicName
from octopi.limits import RELAY_STREAMS_MAX, RELAY_STREAMS_TOLD_MAX
from octopi.relay.buffer import RelayTransaction, StreamPoint
from octopi.relay.digest import Digest
from octopi.relay.incarnations import RelayLife
from octopi.relay.message_ids import message_id
from octopi.relay.messages import (
    RelayAnswer,
    RelayAsk,
    RelayBeat,
    RelayCompare,
    RelayCompared,
    RelayFetch,
    RelayIncoming,
    RelayMessage,
    RelayPart,
    RelayRefused,
    RelayStart,
    RelayStatus,
    RelaySubmit,
    RelaySubmitted,
    RelayVote,
    RelayWritten,
    SubmitRefusal,
)
from octopi.relay.relay_set import RelaySet
from octopi.relay.timelines import NEVER, RelayEpoch, Timeline
from octopi.replication.producer_sequences import Refused
from octopi.roles.broker.relay.forms import Pages, RelayHead, RelayPaged, heard, told
from octopi.roles.broker.relay.mesh import PlacedStreams, RelayMesh
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode

A, B = BrokerId(1), BrokerId(2)
TOPIC = TopicId("00c1a5735eed0001")
EPOCH = RelayEpoch(Timeline(3, 12345), 7)
ID = message_id(1_000, b"node-a", 3)
POINT = StreamPoint(Offset(70), Digest(b"d" * 32))
START = StreamPoint(Offset(0), Digest(b"s" * 32))
LIVES = {A: RelayLife(Incarnation(3), 1), B: RelayLife(Incarnation(1))}
MEMBERS = RelaySet(PartitionId(5), [A, B, BrokerId(7)], 4)
NEWER = RelaySet(PartitionId(5), [A, B], 5)
HEAD = RelayHead(PartitionId(5), 1, 2)
TRANSACTIONS = (
    RelayTransaction(Offset(70), ID, A, b"records", Digest(b"e" * 32)),
    RelayTransaction(Offset(77), ID, B, b"more", Digest(b"f" * 32)),
)
PRODUCERS = ([b"p" * 16, 2, 9, [[5, 10], [7, 20]]],)

MESSAGES: list[RelayMessage] = [
    RelayBeat(RelayStatus.CHANGING, EPOCH, NEVER, frozenset({A, B}), 3, MEMBERS, NEWER, True),
    RelayBeat(RelayStatus.JOINING, NEVER, NEVER, frozenset(), 0, MEMBERS, MEMBERS),
    RelayIncoming(EPOCH, TOPIC, Offset(70), ID, A, b"records", POINT.digest),
    RelayWritten(EPOCH, TOPIC, POINT),
    RelayWritten(EPOCH, TOPIC, POINT, asks=True),
    RelayCompare(EPOCH, TOPIC, (START, POINT)),
    RelayCompared(EPOCH, TOPIC, None, START, POINT),
    RelayCompared(EPOCH, TOPIC, START, START, POINT),
    RelayFetch(EPOCH, TOPIC, Offset(70), Offset(81), True),
    RelayPart(EPOCH, TOPIC, Offset(70), TRANSACTIONS),
    RelayVote(EPOCH, NEVER, MEMBERS, LIVES, ((TOPIC, POINT, Offset(60)),)),
    RelayVote(EPOCH, EPOCH, MEMBERS, {}, ()),
    RelayStart(EPOCH, MEMBERS, LIVES, ((TOPIC, POINT),)),
    RelayStart(EPOCH, MEMBERS, LIVES, (), (TOPIC,)),
    RelayAsk(True),
    RelayAnswer(EPOCH, MEMBERS, LIVES, None),
    RelayAnswer(EPOCH, MEMBERS, LIVES, ((TOPIC, POINT),)),
    RelaySubmit(TOPIC, ID, b"records"),
    RelaySubmitted(EPOCH, TOPIC, ID, ID, Offset(70), POINT, False, Offset(60), 2),
    RelaySubmitted(EPOCH, TOPIC, ID, None, Offset(70), None, True, Offset(80), 3),
    RelayRefused(TOPIC, ID, SubmitRefusal.NOT_SEQUENCER, A),
    RelayRefused(TOPIC, ID, SubmitRefusal.BY_PRODUCER, None, Refused(Status.SEQUENCE_GAP, "a gap")),
]


def through_the_wire(message: RelayMessage) -> list[m.OfPartition]:
    found = [decode(encode(one), frozenset({type(one)})) for one in told(HEAD, message)]
    parts = [one for one in found if isinstance(one, m.OfPartition)]
    assert len(parts) == len(found)
    return parts


def put_together(parts: list[m.OfPartition], pages: Pages) -> list[object]:
    found: list[object] = []
    for one in parts:
        whole = pages.take(one) if isinstance(one, RelayPaged) else heard(one)
        found += [] if whole is None else [whole]
    return found


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_a_message_is_the_same_behind_the_wire(message: RelayMessage) -> None:
    parts = through_the_wire(message)
    assert [(one.partition, one.life, one.to) for one in parts] == [(5, 1, 2)] * len(parts)
    assert put_together(parts, Pages()) == [message]


def test_each_refusal_has_a_word_of_its_own() -> None:
    for one in SubmitRefusal:
        verdict = Refused(Status.SEQUENCE_GAP, "") if one is SubmitRefusal.BY_PRODUCER else None
        refused = RelayRefused(TOPIC, ID, one, None, verdict)
        assert put_together(through_the_wire(refused), Pages()) == [refused]


def test_the_table_of_producers_goes_along() -> None:
    part = RelayPart(EPOCH, TOPIC, Offset(70), (), PRODUCERS)
    [found] = put_together(through_the_wire(part), Pages())
    assert isinstance(found, RelayPart)
    assert found.producers is not None
    [(producer, epoch, following, batches)] = found.producers
    assert (producer, epoch, following) == (b"p" * 16, 2, 9)
    assert [tuple(one) for one in batches] == [(5, 10), (7, 20)]


@pytest.mark.parametrize("count", [0, RELAY_STREAMS_TOLD_MAX, RELAY_STREAMS_TOLD_MAX + 1, 5_000])
def test_a_vote_for_many_streams_comes_in_pages_and_is_one_vote(count: int) -> None:
    streams = tuple((TopicId(f"{one:016x}"), POINT, Offset(60)) for one in range(count))
    vote = RelayVote(EPOCH, EPOCH, MEMBERS, LIVES, streams)
    parts = through_the_wire(vote)
    assert len(parts) == max(1, -(-count // RELAY_STREAMS_TOLD_MAX))
    assert put_together(parts, Pages()) == [vote]


def test_pages_whose_rest_was_lost_are_forgotten() -> None:
    streams = tuple((TopicId(f"{one:016x}"), POINT) for one in range(5_000))
    old = through_the_wire(RelayStart(EPOCH, MEMBERS, LIVES, streams))
    new = RelayStart(EPOCH.next, MEMBERS, LIVES, streams[:1])
    assert put_together([*old[:-1], *through_the_wire(new)], Pages()) == [new]


def test_more_streams_than_a_partition_may_have_are_refused() -> None:
    full = m.packed_streams([(TOPIC, Offset(7), POINT.digest)] * RELAY_STREAMS_TOLD_MAX)
    page = m.StartTold(PartitionId(0), 0, 0, b"e" * 16, m.ToldSet(1, (A,)), (), full, b"", True)
    pages = Pages()
    for _ in range(RELAY_STREAMS_MAX // RELAY_STREAMS_TOLD_MAX + 1):
        assert pages.take(page) is None
    with pytest.raises(ProtocolError, match=f"at most {RELAY_STREAMS_MAX} streams"):
        pages.take(page)


def test_what_can_not_be_true_is_refused() -> None:
    refused = m.OrderRefused(PartitionId(0), 0, 0, TOPIC, ID, "by producer", None, 9_999, "")
    with pytest.raises(ProtocolError, match="no status"):
        heard(refused)
    twice = m.KnownProducer(b"p" * 16, 1, 9, [5, 5], [10, 20])
    part = m.PartTold(PartitionId(0), 0, 0, b"e" * 16, TOPIC, 0, (), (twice,))
    with pytest.raises(ProtocolError, match="grow"):
        heard(part)
    with pytest.raises(ProtocolError, match="no message about a relay partition"):
        heard(m.OfPartition(PartitionId(0), 0, 0))


# --- the list ------------------------------------------------------------------------------

LIST = {BrokerId(one): f"ws://host-{one}:7000" for one in (3, 1, 2, 4)}


def test_the_same_list_in_another_order_says_the_same() -> None:
    mesh = RelayMesh(LIST, 8, 3)
    again = RelayMesh(dict(sorted(LIST.items())), 8, 3)
    assert mesh.digest == again.digest
    assert [one.ranked for one in mesh.sets] == [one.ranked for one in again.sets]
    assert {len(one) for one in mesh.sets} == {3}
    assert {broker for one in mesh.sets for broker in one.ranked} == set(LIST)
    topic = TopicName("prices")
    assert mesh.topic_id(topic) == again.topic_id(topic)
    assert mesh.topic_id(topic) != mesh.topic_id(TopicName("scores"))
    assert mesh.partition_of(topic) in range(8)


@pytest.mark.parametrize(
    ("relays", "partitions", "replicas"),
    [
        ({**LIST, BrokerId(5): "ws://host-5:7000"}, 8, 3),
        ({**LIST, BrokerId(4): "ws://elsewhere:7000"}, 8, 3),
        (LIST, 9, 3),
        (LIST, 8, 4),
    ],
)
def test_another_list_has_another_digest(
    relays: dict[BrokerId, str], partitions: int, replicas: int
) -> None:
    assert RelayMesh(relays, partitions, replicas).digest != RelayMesh(LIST, 8, 3).digest


@pytest.mark.parametrize(
    ("relays", "partitions", "replicas", "why"),
    [
        ({A: "ws://a:1", B: "ws://b:1"}, 8, 3, "3 to 9, not 2"),
        ({BrokerId(one): f"ws://a:{one}" for one in range(1, 11)}, 8, 3, "3 to 9, not 10"),
        (LIST, 0, 3, "1 to 64 partitions"),
        (LIST, 65, 3, "1 to 64 partitions"),
        (LIST, 8, 2, "at least 3 members"),
        ({**LIST, BrokerId(5): "host"}, 8, 3, "5=host: it has to be ws"),
        ({**LIST, BrokerId(5): "ws://host-1:7000/"}, 8, 3, "the same address"),
    ],
)
def test_a_list_that_is_none_says_why(
    relays: dict[BrokerId, str], partitions: int, replicas: int, why: str
) -> None:
    with pytest.raises(InvalidOptionError, match=why):
        RelayMesh(relays, partitions, replicas)


def placed(**patterns: tuple[int, ...]) -> list[PlacedStreams]:
    return [
        PlacedStreams(pattern.replace("_", "*"), tuple(map(BrokerId, members)))
        for pattern, members in patterns.items()
    ]


def members_of(mesh: RelayMesh, topic: str) -> set[int]:
    number = mesh.partition_of(TopicName(topic))
    [found] = [one for one in mesh.sets if one.partition == number]
    return set(found.ranked)


def test_patterns_say_which_relays_hold_which_streams_and_the_first_one_counts() -> None:
    mesh = RelayMesh(LIST, 8, 3, placed(prices_=(1, 2, 3), p_=(2, 3, 4)))
    assert members_of(mesh, "prices") == {1, 2, 3}
    assert members_of(mesh, "prices.gold") == {1, 2, 3}
    assert members_of(mesh, "players") == {2, 3, 4}
    assert len(mesh.sets) == 10
    plain = RelayMesh(LIST, 8, 3)
    for name in ("orders", "games", "scores"):
        topic = TopicName(name)
        assert mesh.partition_of(topic) == plain.partition_of(topic)
        assert members_of(mesh, name) == members_of(plain, name)


def test_a_relay_that_no_pattern_names_holds_no_stream_if_they_match_all() -> None:
    mesh = RelayMesh(LIST, 8, 3, placed(prices_=(1, 2, 3), _=(3, 2, 1)))
    assert [one.partition for one in mesh.sets] == [0, 1]
    assert members_of(mesh, "prices.gold") == members_of(mesh, "anything") == {1, 2, 3}
    assert not any(BrokerId(4) in one for one in mesh.sets)


def test_relays_with_other_patterns_have_another_digest() -> None:
    digests = {
        RelayMesh(LIST, 8, 3, patterns).digest
        for patterns in (
            placed(),
            placed(a_=(1, 2, 3)),
            placed(a_=(1, 2, 4)),
            placed(a_=(1, 2, 3), b_=(1, 2, 3)),
            placed(b_=(1, 2, 3), a_=(1, 2, 3)),
        )
    }
    assert len(digests) == 5


@pytest.mark.parametrize(
    ("patterns", "why"),
    [
        (placed(a_=(1, 2, 9)), "relay 9 is not in --relay-peers"),
        (placed(a_=(1, 2)), "at least 3 members"),
        (placed(a_=(1, 2, 2)), "at least 3 members"),
        ([PlacedStreams("a/b", (BrokerId(1),) * 3)], "for any characters"),
        ([PlacedStreams(f"a{n}", tuple(LIST)) for n in range(57)], "at most 64 partitions"),
    ],
)
def test_patterns_that_place_nothing_say_why(patterns: list[PlacedStreams], why: str) -> None:
    with pytest.raises(InvalidOptionError, match=why):
        RelayMesh(LIST, 8, 3, patterns)
