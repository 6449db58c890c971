"""A broker at a register that the test plays: which orders it carries out, and how it joins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from octopi.environment import Disk
from octopi.errors import ConnectionLostError, ProtocolError, RefusedError, Status
from octopi.roles.broker.identity import BrokerIdentity
from octopi.roles.broker.node import BrokerOptions, run_broker
from octopi.transport.connection import Connection
from octopi.transport.server import serve
from octopi.wire import messages as m
from octopi.wire.endpoints import MEMBERSHIP
from tests.kit.cluster import eventually, system_environment
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import SECRETS

CLUSTER = "00c1a5735eed0001"
LIFE = m.RegisterGeneration(1, "first")
PARTITION = m.PartitionRecord(0, 1, 0, 1, 1, [1, 2], [1, 2])
TOPIC = m.TopicRecord("orders", "1" * 16, [0], m.TopicOptions())


@attrs.define
class Register:
    """What a register hears, and how it answers."""

    url: str = ""
    answer: Callable[[m.Join], m.RegisterGeneration | None] = lambda _: LIFE
    """The generation to admit the broker with; None: the connection ends instead."""
    standings: dict[int, list[m.ReplicaReport]] = attrs.field(factory=dict)
    """By incarnation; messages of an incarnation that has ended may still come."""
    joins: list[m.Join] = attrs.field(factory=list)
    confirmed: list[m.RegisterGeneration] = attrs.field(factory=list)
    """The generations whose orders were carried out."""
    refuses: Callable[[m.Join], bool] = lambda _: False
    """Whether to say that a question is malformed."""
    orders: Callable[[Connection], Awaitable[None]] | None = None
    """What it orders behind the usual."""


class Session:
    """One broker's connection to it."""

    def __init__(self, register: Register, connection: Connection, tasks: trio.Nursery) -> None:
        self._register = register
        self._connection = connection
        self._tasks = tasks
        self._standings: list[m.ReplicaReport] = []

    def handle(self, message: object) -> None:
        match message:
            case m.Inventory():
                self._standings += message.standings
            case m.Join():
                self._register.standings[message.incarnation] = self._standings
                self._register.joins.append(message)
                if self._register.refuses(message):
                    raise RefusedError("that is no question", Status.MALFORMED_MESSAGE)
                self._tasks.start_soon(self._answer, message)

    async def _answer(self, join: m.Join) -> None:
        life = self._register.answer(join)
        if life is not None:
            connection = self._connection
            connection.post(m.Joined(join.request, CLUSTER, 1, life))
            here = m.BrokerInfo(1, join.address, join.incarnation, True, 1)
            order = m.InstallPartitions(connection.next_request(), [PARTITION], [here])
            await connection.request(order, m.OrderCarriedOut, 10)
            topics = m.InstallTopics(connection.next_request(), [TOPIC])
            await connection.request(topics, m.OrderCarriedOut, 10)
            self._register.confirmed.append(life)
            if self._register.orders is not None:
                await self._register.orders(connection)
        await self._connection.close()

    def token_refreshed(self) -> None:
        pass

    def closed(self) -> None:
        pass


@asynccontextmanager
async def played_register() -> AsyncIterator[tuple[trio.Nursery, Register]]:
    async with trio.open_nursery() as nursery:
        environment, register = system_environment(nursery), Register()

        async def run(*, task_status: trio.TaskStatus[str]) -> None:
            await serve(
                environment,
                "127.0.0.1:0",
                role="register",
                agent="test",
                sessions={
                    MEMBERSHIP: lambda connection, tasks: Session(register, connection, tasks)
                },
                stop=trio.Event(),
                secrets=SECRETS,
                task_status=task_status,
            )

        register.url = await nursery.start(run)
        yield nursery, register
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def broker(
    nursery: trio.Nursery, register: Register, directory: Path, disk: Disk | None = None
) -> AsyncIterator[None]:
    """A broker that tries to join, killed at the end of the block."""
    environment = system_environment(nursery)
    environment = attrs.evolve(environment, disk=disk or environment.disk)
    options = BrokerOptions("127.0.0.1:0", str(directory), [register.url], SECRETS)
    async with trio.open_nursery() as lives:

        async def run() -> None:
            await run_broker(environment, options, stop=trio.Event())

        lives.start_soon(run)
        yield
        lives.cancel_scope.cancel()


async def test_a_broker_carries_out_no_order_of_an_older_or_second_register(
    tmp_path: Path,
) -> None:
    lives = [
        m.RegisterGeneration(5, "a"),
        m.RegisterGeneration(4, "b"),
        m.RegisterGeneration(5, "c"),
        m.RegisterGeneration(5, "a"),
        m.RegisterGeneration(9, "d"),
    ]
    async with played_register() as (nursery, register):
        waiting = iter(lives)
        register.answer = lambda _: next(waiting, None)
        async with broker(nursery, register, tmp_path):
            await eventually(lambda: len(register.joins) > len(lives))
        assert register.confirmed == [lives[0], lives[3], lives[4]]
        told = [join.register for join in register.joins[: len(lives) + 1]]
        assert told == [None, lives[0], lives[0], lives[0], lives[0], lives[4]]


async def test_a_broker_remembers_the_register_generation_over_a_restart(tmp_path: Path) -> None:
    async with played_register() as (nursery, register):
        for _ in range(2):
            before = len(register.joins)
            async with broker(nursery, register, tmp_path):
                await eventually(lambda: len(register.joins) > before)  # noqa: B023
                await eventually(lambda: bool(register.confirmed))
        assert (register.joins[0].register, register.joins[-1].register) == (None, LIFE)


async def test_an_incarnation_names_the_earlier_ones_that_the_register_may_know(
    tmp_path: Path,
) -> None:
    async with played_register() as (nursery, register):

        async def live(life: m.RegisterGeneration | None) -> m.Join:
            """An incarnation that is admitted, or doesn't hear whether it is; its last request."""
            before, confirmed = len(register.joins), len(register.confirmed)
            register.answer = lambda _: life
            async with broker(nursery, register, tmp_path):
                await eventually(lambda: len(register.joins) > before)
                if life is not None:
                    await eventually(lambda: len(register.confirmed) > confirmed)
            return register.joins[before]

        first = await live(LIFE)
        unheard = [await live(None) for _ in range(3)]
        last = await live(LIFE)
        after = await live(LIFE)
    nonces = [one.nonce for one in (first, *unheard, last, after)]
    assert len(set(nonces)) == len(nonces)
    assert [one.ancestors for one in unheard] == [nonces[:1], nonces[:2], nonces[:3]]
    assert last.ancestors == nonces[:4]
    assert after.ancestors == [last.nonce]


def test_a_bounded_number_of_unanswered_incarnations_is_named() -> None:
    identity = BrokerIdentity(CLUSTER, 1, 1, "known", "page cache")
    for number in range(200):
        identity = identity.next_incarnation(1, str(number))
    assert identity.incarnation == 201
    assert identity.ancestors == ["known", *(str(number) for number in range(136, 199))]
    joined = identity.joined(m.Joined(1, CLUSTER, 1, LIFE), "page cache")
    assert (joined.ancestors, joined.register) == ([], LIFE)


@pytest.mark.parametrize(
    ("twice", "named"),
    [
        (lambda one: m.InstallPartitions(one, [PARTITION, PARTITION], []), "partition 0 2 times"),
        (lambda one: m.InstallTopics(one, [TOPIC, TOPIC]), "topic orders 2 times"),
        (
            lambda one: m.RemoveTopics(one, [m.RemovedTopic("orders", TOPIC.topic_id)] * 2),
            f"creation of a topic {TOPIC.topic_id} 2 times",
        ),
    ],
    ids=["partitions", "topics", "removed"],
)
async def test_an_order_that_names_something_twice_is_refused_and_the_broker_joins_again(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    twice: Callable[[int], m.InstallPartitions | m.InstallTopics | m.RemoveTopics],
    named: str,
) -> None:
    async with played_register() as (nursery, register):

        async def orders(connection: Connection) -> None:
            with pytest.raises(ConnectionLostError):
                await connection.request(twice(connection.next_request()), m.OrderCarriedOut, 10)
            register.orders = None

        register.orders = orders
        async with broker(nursery, register, tmp_path):
            await eventually(lambda: len(register.confirmed) > 1)
    assert any(named in str(vars(one)) for one in caplog.records)


@pytest.mark.parametrize(
    "joined", [m.Joined(1, CLUSTER, 2, LIFE), m.Joined(1, CLUSTER[::-1], 1, LIFE)]
)
def test_an_answer_of_a_register_does_not_change_the_identity_of_a_broker(joined: m.Joined) -> None:
    identity = BrokerIdentity(CLUSTER, 1, 1, "known", "page cache")
    with pytest.raises(ProtocolError, match="let in broker"):
        identity.joined(joined, "page cache")


async def test_a_broker_that_has_joined_outlives_the_refusal_of_a_malformed_question(
    tmp_path: Path,
) -> None:
    async with played_register() as (nursery, register):
        register.refuses = lambda _: len(register.joins) == 2
        async with broker(nursery, register, tmp_path):
            await eventually(lambda: len(register.confirmed) > 1)
    assert len({join.incarnation for join in register.joins}) == 1


async def test_a_broker_remembers_a_power_failure_until_a_register_has_heard_of_it(
    tmp_path: Path,
) -> None:
    disk = MemoryDisk()
    async with played_register() as (nursery, register):
        async with broker(nursery, register, tmp_path, disk):
            await eventually(lambda: bool(register.confirmed))
        disk.crash(keep_page_cache=False)
        stored = disk.calls.count("replace_file")
        async with broker(nursery, Register("ws://127.0.0.1:1"), tmp_path, disk):
            await eventually(lambda: disk.calls.count("replace_file") > stored)
        disk.crash(keep_page_cache=True)
        async with broker(nursery, register, tmp_path, disk):
            await eventually(lambda: 3 in register.standings)
        (standing,) = register.standings[3]
        assert not standing.intact


async def test_a_topic_whose_name_an_older_one_has_here_is_refused_until_that_is_removed(
    tmp_path: Path,
) -> None:
    newer = attrs.evolve(TOPIC, topic_id="2" * 16)
    older = m.RemovedTopic(TOPIC.topic, TOPIC.topic_id)
    answers: list[list[m.Undone]] = []

    async def order(connection: Connection) -> None:
        for message in (
            partial(
                m.InstallTopics,
                topics=[newer, attrs.evolve(newer, topic="other", topic_id="3" * 16)],
            ),
            partial(m.RemoveTopics, topics=[older]),
            partial(m.InstallTopics, topics=[newer]),
        ):
            asked = message(connection.next_request())
            answers.append((await connection.request(asked, m.OrderCarriedOut, 10)).undone)

    async with played_register() as (nursery, register):
        register.orders = order
        async with broker(nursery, register, tmp_path):
            await eventually(
                lambda: len(answers) >= 3
            )  # the broker asks for orders again and again
    (undone,) = answers[0]
    assert (undone.partition, undone.topic_id) == (None, newer.topic_id)
    assert "older topic of that name" in undone.reason
    assert answers[1:3] == [[], []]
