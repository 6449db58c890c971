"""A broker passes on to the register what only the register answers: once, and what comes back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from octopi.clients.background import background_tasks
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.identifiers import BrokerId, Offset, PartitionId
from octopi.limits import (
    ASK_CONNECT_S,
    ASK_TIMEOUT_S,
    ASKED_ORDERS_MAX,
    ASKS_IN_FLIGHT_MAX,
    ASKS_PER_CLIENT_MAX,
    DRAIN_TIMEOUT_S,
)
from octopi.record import encode_opaque
from octopi.roles.broker.peer_connection import AskingClient, PeerConnection
from octopi.roles.broker.register_addresses import RegisterAddresses
from octopi.transport.connection import Connection
from octopi.transport.handshake import open_node_connection
from octopi.transport.server import serve
from octopi.transport.services import Service, ServiceSession
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import PASSED_ON, PEER
from tests.kit.join_secrets import MEMBER, SECRETS
from tests.kit.links import MemoryNet
from tests.kit.world import BROKER, REGISTER, World, connection, running_world

ANYTHING = PASSED_ON | {m.Done, m.Failure, m.TopicDescription, m.TopicList}


def client() -> AskingClient:
    """A client of a broker without tokens."""
    return AskingClient(None, trio.Semaphore(ASKS_PER_CLIENT_MAX))


@attrs.define
class ScriptedRegister:
    """A register that does with each `Ask` what the test says."""

    on_ask: Callable[[Connection, m.Ask], None]
    asks: list[m.Ask] = attrs.field(factory=list)
    connections: list[Connection] = attrs.field(factory=list)

    def session(self, opened: Connection, tasks: trio.Nursery) -> ServiceSession:
        self.connections.append(opened)
        return ServiceSession("register", [_Scripted(self, opened)])


class _Scripted(Service):
    def __init__(self, script: ScriptedRegister, opened: Connection) -> None:
        super().__init__({m.Ask: self._take})
        self._script = script
        self._opened = opened

    def _take(self, ask: m.Ask) -> None:
        self._script.asks.append(ask)
        self._script.on_ask(self._opened, ask)


def silent(opened: Connection, ask: m.Ask) -> None:
    """Gives no answer."""


def answering(answer: object) -> Callable[[Connection, m.Ask], None]:
    """Gives *answer* to everything."""
    return lambda opened, ask: opened.post(m.Answer(ask.request, encode(answer)))


@asynccontextmanager
async def peer_of(
    on_ask: Callable[[Connection, m.Ask], None],
) -> AsyncIterator[tuple[PeerConnection, ScriptedRegister, World]]:
    """The asking part of a broker, and the register that it asks."""
    async with background_tasks() as nursery:
        world = World(nursery, MemoryNet(capacity=8))
        script = ScriptedRegister(on_ask)
        serving = partial(
            serve,
            world.environment(url=REGISTER),
            "register:7000",
            "register",
            "scripted",
            {PEER: script.session},
            stop=trio.Event(),
            secrets=SECRETS,
        )
        await nursery.start(serving)
        peer = PeerConnection(
            world.environment(url=BROKER), RegisterAddresses([REGISTER]), "broker", MEMBER
        )
        nursery.start_soon(peer.run)
        yield peer, script, world


# --- once, and unchanged ---------------------------------------------------------------


async def test_a_failure_comes_back_as_the_register_wrote_it(autojump_clock: MockClock) -> None:
    failed = m.Failure(7, Status.NOT_LEADER, "elsewhere", "ws://b:1", epoch=3, offset=99)
    async with peer_of(answering(failed)) as (peer, script, _):
        data = await peer.ask(m.DeleteTopic(7, "orders"), client())
        assert decode(data, ANYTHING) == failed
        assert [decode(one.message, PASSED_ON) for one in script.asks] == [
            m.DeleteTopic(7, "orders")
        ]


async def test_a_lost_answer_is_told_and_the_request_is_not_sent_again(
    autojump_clock: MockClock,
) -> None:
    def hang_up(opened: Connection, ask: m.Ask) -> None:
        if len(script.asks) == 1:
            world.net.kill(REGISTER)

    async with peer_of(hang_up) as (peer, script, world):
        with pytest.raises(RefusedError) as lost:
            await peer.ask(m.DeleteTopic(1, "orders"), client())
        assert lost.value.status == Status.ANSWER_LOST
        assert lost.value.retryable
        assert not lost.value.meaning.before_append
        await trio.sleep(2 * ASK_TIMEOUT_S)
        assert len(script.asks) == 1


async def test_a_register_that_gives_no_answer_is_given_up_in_time(
    autojump_clock: MockClock,
) -> None:
    async with peer_of(silent) as (peer, script, _):
        began = trio.current_time()
        with pytest.raises(RefusedError, match=r"delete_topic .* 15 s") as late:
            await peer.ask(m.DeleteTopic(1, "orders"), client())
        assert late.value.status == Status.ANSWER_LOST
        assert trio.current_time() - began == pytest.approx(ASK_TIMEOUT_S, abs=0.5)
        began = trio.current_time()
        with pytest.raises(RefusedError):
            await peer.ask(m.DrainBroker(2, BrokerId(1)), client())
        assert trio.current_time() - began == pytest.approx(DRAIN_TIMEOUT_S, abs=0.5)
        assert len(script.connections) == 1


async def test_without_a_register_the_client_is_told_soon_and_nothing_was_sent(
    autojump_clock: MockClock,
) -> None:
    async with peer_of(silent) as (peer, script, world):
        world.net.kill(REGISTER)
        for _ in range(3):
            began = trio.current_time()
            with pytest.raises(NotReadyError, match="can't reach its register"):
                await peer.ask(m.DescribeTopic(1, "orders", False), client())
            assert trio.current_time() - began <= ASK_CONNECT_S + 0.01
        assert script.asks == []


async def test_a_new_connection_is_opened_when_the_last_one_has_ended(
    autojump_clock: MockClock,
) -> None:
    async with peer_of(answering(m.Done(1))) as (peer, script, _):
        for count in (1, 1, 2):
            await peer.ask(m.DeleteTopic(1, "orders"), client())
            assert len(script.connections) == count
            if len(script.asks) == 2:
                await script.connections[0].close(1000, "a new life")
                await trio.sleep(0.1)


# --- bounds ----------------------------------------------------------------------------


async def test_a_client_has_only_so_many_requests_on_their_way(autojump_clock: MockClock) -> None:
    async with peer_of(silent) as (peer, script, world):
        one, other = client(), client()
        for number in range(30):
            world.nursery.start_soon(_ask_in_vain, peer, number, one)
        await trio.sleep(0.1)
        assert len(script.asks) == ASKS_PER_CLIENT_MAX
        world.nursery.start_soon(_ask_in_vain, peer, 99, other)
        await trio.sleep(0.1)
        assert len(script.asks) == ASKS_PER_CLIENT_MAX + 1
        assert peer.sizes() == {"passed on": ASKS_PER_CLIENT_MAX + 1}


async def test_a_broker_passes_on_only_so_many_at_a_time(autojump_clock: MockClock) -> None:
    async with peer_of(silent) as (peer, script, world):
        for _ in range(10):
            asking = client()
            for number in range(10):
                world.nursery.start_soon(_ask_in_vain, peer, number, asking)
        await trio.sleep(0.1)
        assert len(script.asks) == ASKS_IN_FLIGHT_MAX


async def test_those_that_wait_have_their_turn_when_others_are_answered(
    autojump_clock: MockClock,
) -> None:
    async with peer_of(answering(m.Done(1))) as (peer, script, _):
        asking = client()
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(peer.ask, m.DeleteTopic(number, "orders"), asking)
        numbers = [decode(one.message, PASSED_ON).request for one in script.asks]  # type: ignore[attr-defined]
        assert sorted(numbers) == list(range(100))


async def test_orders_that_last_keep_no_lookup_waiting_and_are_bounded(
    autojump_clock: MockClock,
) -> None:
    async with peer_of(silent) as (peer, script, world):
        for number in range(ASKED_ORDERS_MAX):
            world.nursery.start_soon(_drain_in_vain, peer, number)
        await trio.sleep(0.1)
        assert len(script.asks) == ASKED_ORDERS_MAX
        with pytest.raises(RefusedError) as refused:
            await peer.ask(m.DrainBroker(99, BrokerId(1)), client())
        assert refused.value.status == Status.TOO_MANY
        world.nursery.start_soon(_ask_in_vain, peer, 1, client())
        await trio.sleep(0.1)
        assert len(script.asks) == ASKED_ORDERS_MAX + 1


async def test_a_client_that_goes_away_gives_its_place_to_others(
    autojump_clock: MockClock,
) -> None:
    async with peer_of(silent) as (peer, script, _):
        asking = client()
        async with trio.open_nursery() as nursery:
            for number in range(ASKS_PER_CLIENT_MAX):
                nursery.start_soon(_ask_in_vain, peer, number, asking)
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        assert peer.sizes() == {"passed on": 0}
        script.on_ask = answering(m.Done(5))
        assert decode(await peer.ask(m.DeleteTopic(5, "a"), asking), ANYTHING) == m.Done(5)


async def _ask_in_vain(peer: PeerConnection, number: int, asking: AskingClient) -> None:
    with pytest.raises((RefusedError, NotReadyError)):
        await peer.ask(m.DescribeTopic(number, "orders", False), asking)


async def _drain_in_vain(peer: PeerConnection, number: int) -> None:
    with pytest.raises(RefusedError):
        await peer.ask(m.DrainBroker(number, BrokerId(1)), client())


# --- the register's side ---------------------------------------------------------------


@asynccontextmanager
async def node_connection(world: World) -> AsyncIterator[Connection]:
    """A connection of a broker that asks."""
    opened = await open_node_connection(world.environment(), REGISTER, PEER, "test", MEMBER)
    async with background_tasks() as nursery:
        await nursery.start(opened.run, lambda message: None)
        yield opened


async def asked(opened: Connection, message: object, **facts: object) -> object:
    """The register's answer to *message*, asked on behalf of somebody with these *facts*."""
    ask = m.Ask(opened.next_request(), encode(message), **facts)
    answer = await opened.request(ask, m.Answer, 5)
    return decode(answer.message, ANYTHING)


async def test_a_register_answers_what_is_passed_on_with_the_clients_number(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, node_connection(world) as opened:
        made = await asked(opened, m.CreateTopic(77, "orders", 1, None, m.TopicOptions()))
        assert isinstance(made, m.TopicDescription)
        assert made.request == 77
        missing = await asked(opened, m.DescribeTopic(78, "missing", False))
        assert isinstance(missing, m.Failure)
        assert (missing.request, missing.status) == (78, Status.UNKNOWN_TOPIC)


@pytest.mark.parametrize(
    "message",
    [
        m.Produce(1, "orders", PartitionId(0), b""),
        m.Authenticate(1, "token"),
        m.Ask(1, encode(m.DescribeCluster(1))),
        m.Heartbeat(),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_a_register_takes_nothing_else_on_behalf_of_a_client(
    message: object, autojump_clock: MockClock
) -> None:
    async with running_world() as world, node_connection(world) as opened:
        with pytest.raises(RefusedError) as refused:
            await asked(opened, message)
        assert refused.value.status == Status.WRONG_ENDPOINT
        assert isinstance(await asked(opened, m.ListTopics(1, "", 10)), m.TopicList)


async def test_a_register_answers_only_what_the_client_may_know(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, node_connection(world) as opened:
        for topic in ("orders", "secrets"):
            await asked(opened, m.CreateTopic(1, topic, 1, None, m.TopicOptions()))
        granted = [m.GrantedPatterns("subscribe", ["orders"])]
        listed = await asked(opened, m.ListTopics(2, "", 10), grants=granted)
        assert isinstance(listed, m.TopicList)
        assert [one.topic for one in listed.topics] == ["orders"]
        lazily = await asked(opened, m.DescribeTopic(3, "new", True), grants=granted)
        assert isinstance(lazily, m.Failure)
        assert lazily.status == Status.FORBIDDEN


async def test_a_register_notes_and_counts_topics_for_the_subject_that_asks(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running_world() as world, node_connection(world) as opened:
        who = {"subject": "ann", "topics_max": 1}
        first = await asked(opened, m.CreateTopic(1, "a", 1, None, m.TopicOptions()), **who)
        assert isinstance(first, m.TopicDescription)
        second = await asked(opened, m.CreateTopic(2, "b", 1, None, m.TopicOptions()), **who)
        assert isinstance(second, m.Failure)
        assert second.status == Status.QUOTA_EXCEEDED
        lines = [one for one in caplog.records if "came through a broker" in one.getMessage()]
        assert [vars(one)["by"] for one in lines] == ["ann", "ann"]
        other = await asked(
            opened, m.CreateTopic(3, "b", 1, None, m.TopicOptions()), subject="bob", topics_max=1
        )
        assert isinstance(other, m.TopicDescription)


async def test_grants_that_are_none_are_refused(autojump_clock: MockClock) -> None:
    async with running_world() as world, node_connection(world) as opened:
        with pytest.raises(RefusedError) as refused:
            await asked(opened, m.DescribeCluster(1), grants=[m.GrantedPatterns("rule", ["*"])])
        assert refused.value.status == Status.INVALID_OPTION


async def test_a_register_bounds_the_orders_of_one_broker(autojump_clock: MockClock) -> None:
    async with running_world() as world, node_connection(world) as opened:
        await world.start_broker("ws://broker-2:7100")
        made = await asked(opened, m.CreateTopic(1, "orders", 1, None, m.TopicOptions()))
        assert isinstance(made, m.TopicDescription)
        await world.kill("ws://broker-2:7100")
        await trio.sleep(10)  # the other replica is not in sync any more, so each move lasts
        statuses: list[int] = []

        def take(answer: object) -> None:
            if isinstance(answer, m.Failure):
                statuses.append(answer.status)

        partition = made.topic.partitions[0].partition
        for _ in range(ASKED_ORDERS_MAX + 1):
            move = m.MoveReplica(1, partition, BrokerId(1), BrokerId(2))
            opened.ask(m.Ask(opened.next_request(), encode(move)), take)
        await trio.sleep(0.5)
        assert statuses == [Status.TOO_MANY]
        assert isinstance(await asked(opened, m.ListTopics(1, "", 10)), m.TopicList)


# --- through a broker ------------------------------------------------------------------


async def test_a_broker_answers_under_the_clients_own_numbers(autojump_clock: MockClock) -> None:
    async with (
        running_world() as world,
        connection(world, BROKER) as one,
        connection(world, BROKER) as other,
    ):
        created = m.CreateTopic(1, "orders", 1, None, m.TopicOptions())
        made = await one.request(created, m.TopicDescription, 5)
        described = await other.request(m.DescribeTopic(1, "orders", False), m.TopicDescription, 5)
        assert (made.request, described.request) == (1, 1)
        assert made.topic.topic_id == described.topic.topic_id


async def test_a_broker_that_stops_still_answers_what_it_was_asked_before(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        await world.start_broker("ws://broker-2:7100")
        async with connection(world, BROKER) as opened:
            answers: list[object] = []
            for number in range(1, 9):
                name = f"topic-{number}"
                opened.ask(m.CreateTopic(number, name, 1, None, m.TopicOptions()), answers.append)
            world.nodes[BROKER].stop.set()
            await world.nodes[BROKER].ended.wait()
            assert len([one for one in answers if isinstance(one, m.TopicDescription)]) == 8


async def test_a_list_that_waits_for_the_register_holds_up_no_reading(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, connection(world, BROKER) as opened:
        created = m.CreateTopic(1, "orders", 1, None, m.TopicOptions())
        made = await opened.request(created, m.TopicDescription, 5)
        partition = made.topic.partitions[0].partition
        world.net.kill(REGISTER)
        listed: list[object] = []
        opened.ask(m.ListTopics(2, "", 10), listed.append)
        began = trio.current_time()
        stored = m.Produce(3, "orders", partition, encode_opaque(bytes(32), b"value"))
        await opened.request(stored, m.Produced, 5)
        fetch = m.Fetch(4, "orders", partition, Offset(0), 1000, 0)
        assert (await opened.request(fetch, m.Fetched, 5)).records
        assert trio.current_time() - began < ASK_CONNECT_S / 2
        await trio.sleep(2 * ASK_CONNECT_S)
        (refused,) = listed
        assert isinstance(refused, m.Failure)
        assert refused.status in {Status.NOT_READY, Status.ANSWER_LOST}
