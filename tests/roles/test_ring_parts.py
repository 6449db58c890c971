"""The parts of a broker of the ring: its file, its connections, its options, what clients get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

import attrs
import pytest
import trio
import trio.testing

from octopi.agreement.values import first_value
from octopi.environment import Environment
from octopi.errors import (
    ConnectionLostError,
    InvalidOptionError,
    NotReadyError,
    StorageError,
)
from octopi.identifiers import BrokerId, ClusterId, DirectoryId, Incarnation, InstanceId, RingPoint
from octopi.limits import FOUNDERS_MAX, RING_WAITING_MAX
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.ring.cluster_record import encode_cluster, formed
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.replica_manager import ReplicaManager
from octopi.roles.broker.ring.admission import give_id
from octopi.roles.broker.ring.cluster_keeper import CLUSTER, ClusterKeeper
from octopi.roles.broker.ring.description import described
from octopi.roles.broker.ring.member import RingMember
from octopi.roles.broker.ring.node import run_ring_broker
from octopi.roles.broker.ring.options import RingOptions
from octopi.roles.broker.ring.peers import RingPeers
from octopi.roles.broker.ring.store import RingStore, StoredRing
from octopi.storage import checkpoint
from octopi.storage.flush_policy import FlushOptions
from octopi.wire import messages as m
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import MEMBER, SECRETS
from tests.kit.links import MemoryNet
from tests.ring.nodes import node

CLUSTER_ID = ClusterId("0123456789abcdef")


def chosen(change: int, *, cluster: ClusterId = CLUSTER_ID) -> m.ValueChosen:
    """A record of a cluster of three founders, after so many changes."""
    record = formed(cluster, 4, 3, (node(1), node(2), node(3)))
    for _ in range(change):
        record = record.with_next_id()
    value = first_value([node(number).identity for number in (1, 2, 3)], encode_cluster(record))
    ballot = m.Ballot(change + 1, BrokerId(1), Incarnation(1))
    return m.ValueChosen(CLUSTER, ballot, attrs.evolve(value, change=change))


def environment(disk: MemoryDisk | None = None, net: object = None) -> Environment:
    shown = cast(Any, net if net is not None else MemoryNet())
    return Environment(SystemClock(), shown, disk or MemoryDisk(), SystemRandomness())


# --- the file ----------------------------------------------------------------------------


async def test_what_a_broker_knows_of_the_ring_is_read_as_it_was_stored() -> None:
    store = RingStore(MemoryDisk(), "data")
    store._disk.make_directory("data")
    assert store.load() == StoredRing()
    content = StoredRing(
        is_admitted=True,
        was_member=True,
        point=RingPoint(7),
        cluster=chosen(2),
        known=(node(2), node(5, host="rack")),
    )
    for one in (content, StoredRing()):
        await store.store(one)
        assert store.load() == one


@pytest.mark.parametrize(
    "changed",
    [
        {"further": 1},
        {"point": "7"},
        {"cluster": b"\xa0"},
        {"known": [[1, 2]]},
        {"known": [[1, "d", 1 << 60, "", "ws://b:1", 1]]},
    ],
    ids=str,
)
async def test_a_damaged_file_is_refused_in_words(changed: dict[str, object]) -> None:
    disk = MemoryDisk()
    disk.make_directory("data")
    store = RingStore(disk, "data")
    await store.store(StoredRing())
    fields = checkpoint.load(disk, "data/ring")
    assert fields is not None
    await checkpoint.store(disk, "data/ring", {**fields, **changed})
    with pytest.raises(StorageError, match=r"data/ring is damaged: .*remove it"):
        store.load()


# --- the record of the cluster -----------------------------------------------------------


def keeper(learned: Callable[[], None] = lambda: None) -> ClusterKeeper:
    return ClusterKeeper(
        environment(), lambda to, message: None, lambda message: None, learned, lambda: None
    )


def test_only_newer_records_of_the_same_cluster_are_taken_over() -> None:
    news: list[int] = []
    known = keeper(lambda: news.append(1))
    known.learn(chosen(1))
    known.learn(chosen(1))
    known.learn(chosen(0))
    known.learn(chosen(5, cluster=ClusterId("f" * 16)))
    unreadable = chosen(6)
    unreadable = attrs.evolve(unreadable, value=attrs.evolve(unreadable.value, content=b"\x00"))
    known.learn(unreadable)
    assert known.chosen == chosen(1)
    assert len(news) == 1
    known.learn(chosen(2))
    assert known.chosen == chosen(2)
    assert len(news) == 2


def test_two_that_compare_their_records_both_have_the_newer_one_then() -> None:
    newer, older = keeper(), keeper()
    newer.learn(chosen(3))
    older.learn(chosen(1))
    answers: list[object] = []
    newer.compare(older.known_values(), answers.append)
    assert answers == [chosen(3)]
    answers.clear()
    older.compare(newer.known_values(), answers.append)
    assert answers == [older.known_values()]
    newer.compare(newer.known_values(), answers.append)
    assert len(answers) == 1, "they know the same"
    assert keeper().known_values().values == ()


async def test_nothing_is_changed_before_the_record_is_known() -> None:
    with pytest.raises(NotReadyError, match="does not know the record"):
        await keeper().change(lambda record: record)


# --- connections -------------------------------------------------------------------------


class Deaf:
    """A network on which nobody answers."""

    async def connect(self, url: str, path: str) -> NoReturn:
        await trio.sleep_forever()
        raise AssertionError


async def test_what_waits_for_a_broker_that_does_not_answer_is_bounded() -> None:
    answers: list[object] = []
    async with trio.open_nursery() as nursery:
        peers = RingPeers(
            environment(net=Deaf()), nursery, "test", MEMBER, lambda address, message: None
        )
        for number in range(RING_WAITING_MAX + 3):
            peers.ask("ws://deaf:1", m.FindHolder(number, RingPoint(1)), answers.append)
        assert len(answers) == 3
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [type(one) for one in answers] == [ConnectionLostError] * (RING_WAITING_MAX + 3)


# --- options and clients -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("join", "why"),
    [
        ((), "needs addresses"),
        (("a:1",), "ws://host:port"),
        (tuple(f"ws://b{number}:1" for number in range(FOUNDERS_MAX + 1)), "at most 9"),
        (("ws://" + "b" * 300 + ":1",), "at most"),
    ],
)
async def test_addresses_to_join_by_that_are_none_are_refused(
    join: tuple[str, ...], why: str
) -> None:
    options = RingOptions("a:1", "data", join, SECRETS)
    with pytest.raises(InvalidOptionError, match=why):
        await run_ring_broker(environment(), options, stop=trio.Event())


async def test_what_another_broker_asks_out_of_place_is_refused() -> None:
    async def remember(identity: BrokerIdentity) -> None:
        """Store nothing."""

    async with trio.open_nursery() as nursery:
        identity = BrokerIdentity("", None, Incarnation(1), "n", "cache")
        options = RingOptions("a:1", "data", ("ws://b:1",), SECRETS)
        around = environment()
        replicas = ReplicaManager(
            around,
            "data",
            Flusher(around.clock),
            nursery,
            FlushOptions(),
            "test",
            lost_power=False,
            catch_up_slowdown_max=0.5,
        )
        member = RingMember(around, options, "ws://a:1", identity, remember, nursery, replicas)
        ballot = m.Ballot(1, BrokerId(1), Incarnation(1))
        answers: list[object] = []
        # It does not know the first value yet, so it says nothing about it.
        member.receive(m.PrepareBallot(InstanceId(7), ballot), answers.append, nursery)
        assert answers == []
        with pytest.raises(NotReadyError, match="no place on the ring"):
            member.receive(m.AnnounceEpoch(0, 2), answers.append, nursery)
        with pytest.raises(NotReadyError, match="no place on the ring"):
            member.receive(m.Probe(1, node(2)), lambda answer: None, nursery)
        with pytest.raises(NotReadyError, match="no member"):
            await give_id(member.chord, member.keeper, m.Admit(1, "ws://c:1"))
        with pytest.raises(NotReadyError, match="no broker has answered"):
            await member.locate(RingPoint(1))
        member.receive(m.Introduce(4, "ws://c:1", ()), answers.append, nursery)
        assert answers == [
            m.Introduced(4, "ws://a:1", BrokerId(0), DirectoryId(""), "", Incarnation(1), (), None)
        ]
        shown = described(5, member, member.keeper)
        assert shown.waits_for == "no broker has answered yet"
