"""Clients that missed a change of leaders find the new one without the register."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.leader_route import LeaderCandidate, LeaderRoute
from octopi.errors import (
    NotDeliveredError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    RedirectLoopError,
    Status,
    UnknownTopicError,
    UnreachableError,
)
from octopi.identifiers import BrokerId, Epoch, Offset, PartitionId, TopicName
from octopi.limits import ADDRESSES_TOLD_MAX
from octopi.retry import reworded
from octopi.wire import messages as m
from tests.kit.probes import batch, produce, refusal_of
from tests.kit.world import (
    BROKER,
    REGISTER,
    VirtualClock,
    World,
    connection,
    describe,
    running_world,
)

BROKERS = [BROKER, "ws://broker-2:7100", "ws://broker-3:7100"]


@asynccontextmanager
async def three_brokers() -> AsyncIterator[tuple[World, octopi.Client]]:
    async with running_world() as world, world.client() as client:
        for url in BROKERS[1:]:
            await world.start_broker(url)
        await client.create_topic("orders")
        await trio.sleep(2)
        yield world, client


async def leader_of(world: World) -> str:
    return (await describe(world, "orders")).partitions[0].leader_address


async def test_a_broker_that_does_not_lead_names_the_leader_and_its_epoch(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, _):
        topic = await describe(world, "orders")
        place = topic.partitions[0]
        (other, *_) = [url for url in BROKERS if url != place.leader_address]
        async with connection(world, other) as broker:
            for question in (
                produce(broker, topic, batch(0, b"x")),
                broker.request(
                    m.FindOffset(broker.next_request(), "orders", place.partition, "latest", 0),
                    m.FoundOffset,
                    5,
                ),
                broker.request(
                    m.Fetch(broker.next_request(), "clicks", place.partition, Offset(0), 1, 0),
                    m.Fetched,
                    5,
                ),
            ):
                refused = await refusal_of(question)
                assert isinstance(refused, NotLeaderError)
                assert (refused.address, refused.epoch) == (place.leader_address, place.epoch)


async def test_a_producer_that_missed_a_fail_over_goes_on_while_the_register_is_down(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client), client.producer() as producer:
        await producer.send("orders", b"before")
        old = await leader_of(world)
        await world.kill(old)
        await trio.sleep(3)
        assert await leader_of(world) != old
        await world.kill(REGISTER)
        with trio.fail_after(5):
            receipt = await producer.send("orders", b"after")
        assert receipt.epoch > 1


async def test_fetches_find_the_new_leader_while_the_register_is_down(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        async with client.producer() as producer:
            receipt = await producer.send("orders", b"before")
        await client.fetch("orders", 0, partition=receipt.partition)
        await world.kill(await leader_of(world))
        await trio.sleep(3)
        await world.kill(REGISTER)
        for _ in range(3):
            with trio.fail_after(5):
                fetched = await client.fetch("orders", 0, partition=receipt.partition)
            assert [one.value for one in fetched.messages] == [b"before"]


@pytest.mark.parametrize("survivor", BROKERS)
async def test_a_consumer_reads_on_at_another_broker_while_the_register_is_down(
    survivor: str, autojump_clock: MockClock
) -> None:
    values = [b"%03d" % number + bytes(10_000) for number in range(100)]
    async with three_brokers() as (world, client):
        async with client.producer() as producer:
            for value in values:
                await producer.send("orders", value)
        await trio.sleep(1)
        async with client.consumer("orders", start="earliest", window_bytes=30_000) as consumer:
            read = [(await anext(consumer)).value]
            await world.kill(REGISTER)
            for url in BROKERS:
                if url != survivor:
                    await world.kill(url)
            with trio.fail_after(10):
                while len(read) < len(values):
                    read.append((await anext(consumer)).value)
        assert read == values


async def test_two_brokers_that_name_each_other_end_in_an_error_within_the_deadline(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        leader = await leader_of(world)
        (one, other) = [url for url in BROKERS if url != leader]

        def confuse(message: object) -> object:
            assert isinstance(message, m.Failure)
            names = other if message.address == one else one
            return m.Failure(message.request, 40, "ask there", names, Epoch(9))

        async with client.producer(delivery_timeout_s=5) as producer:
            await producer.send("orders", b"before")
            await world.kill(REGISTER)
            await world.kill(leader)
            world.net.fault(m.Failure, "change", times=10**9, change=confuse)
            began, questions = trio.current_time(), world.net.count(m.Produce)
            with pytest.raises((OutcomeUnknownError, NotDeliveredError), match="ask there") as got:
                await producer.send("orders", b"after")
            assert trio.current_time() - began < 6
            assert isinstance(got.value.__cause__, RedirectLoopError)
            assert {one, other} <= set(got.value.__cause__.tried)
            assert world.net.count(m.Produce) - questions < 100


# --- the route alone -------------------------------------------------------------------


class Register:
    """What a register says about a topic, if it is there."""

    def __init__(self, *addresses: str, epoch: int = 1) -> None:
        self.is_there = True
        self.asked = 0
        self.leads(addresses[0], epoch, list(addresses))

    def leads(self, address: str, epoch: int, readers: list[str]) -> None:
        place = m.PartitionInfo(
            PartitionId(0),
            Epoch(epoch),
            BrokerId(1),
            address,
            [BrokerId(1), BrokerId(2)],
            [BrokerId(1), BrokerId(2)],
            readers,
        )
        self.info = m.TopicInfo("orders", "id", [place], m.TopicOptions())

    async def describe(self, name: str, create: bool) -> m.TopicInfo:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if not self.is_there:
            raise UnreachableError("no node answers")
        return self.info

    def route(self) -> LeaderRoute:
        lookup = LeaderLookup(VirtualClock(), self.describe)
        return LeaderRoute(lookup, TopicName("orders"), PartitionId(0))


def told(address: str, epoch: int | None) -> NotLeaderError:
    return NotLeaderError("ask there", address=address, epoch=epoch)


async def test_a_redirect_is_followed_once_for_each_address_and_epoch() -> None:
    register = Register("a", "b")
    route = register.route()
    assert await route.find() == LeaderCandidate("a", 1, generation=1)
    assert route.redirected(told("b", 2))
    assert await route.find() == LeaderCandidate("b", 2, generation=1)
    assert not route.redirected(told("b", 2))
    assert not route.redirected(told("a", 1))  # an older epoch
    assert route.redirected(told("a", 2))
    assert await route.find() == LeaderCandidate("a", 2, generation=1)
    assert not route.redirected(told("c", 2))  # the third in a row
    assert register.asked == 1


async def test_a_redirect_in_circles_is_told_with_the_addresses_that_were_asked() -> None:
    route = Register("a", "b").route()
    await route.find()
    first = told("b", 1)
    assert route.redirected(first)
    assert route.reported(first) is first  # it is followed
    await route.find()
    back = told("a", 1)
    assert not route.redirected(back)
    loop = route.reported(back)
    assert isinstance(loop, RedirectLoopError)
    assert (loop.tried, loop.address, loop.epoch) == (("a", "b"), "a", 1)
    assert loop.retryable, "brokers learn who leads in a moment"
    assert "asked in turn: a, b" in str(loop)
    again = reworded(loop, "given up")
    assert isinstance(again, RedirectLoopError)
    assert again.tried == ("a", "b")
    route.arrived()
    assert not route.redirected(told("a", 1))
    assert not route.redirected(UnknownTopicError("none"))
    unknown = UnknownTopicError("none")
    assert route.reported(unknown) is unknown


async def test_only_the_last_addresses_of_a_long_search_are_told() -> None:
    route = Register("a").route()
    for epoch in range(2, 2 + 2 * ADDRESSES_TOLD_MAX):
        route.redirected(told(f"b{epoch}", epoch))
        await route.find()
    last = epoch
    assert not route.redirected(told(f"b{last}", last))
    loop = route.reported(told(f"b{last}", last))
    assert isinstance(loop, RedirectLoopError)
    assert len(loop.tried) == ADDRESSES_TOLD_MAX


async def test_a_question_that_brokers_send_in_circles_ends_with_the_list(
    autojump_clock: MockClock,
) -> None:
    async with three_brokers() as (world, client):
        leader = await leader_of(world)
        (one, other) = [url for url in BROKERS if url != leader]

        def confuse(message: object) -> object:
            assert isinstance(message, m.Failure)
            if message.status != Status.NOT_LEADER:
                return message
            names = other if message.address == one else one
            return m.Failure(message.request, 40, "ask there", names, Epoch(9))

        async with client.producer() as producer:
            receipt = await producer.send("orders", b"before")
        await world.kill(REGISTER)
        await world.kill(leader)
        world.net.fault(m.Failure, "change", times=10**9, change=confuse)
        with pytest.raises(RedirectLoopError, match="asked in turn") as got:
            await client.find_offset("orders", "latest", partition=receipt.partition)
        assert {one, other} <= set(got.value.tried)


async def test_an_error_without_an_address_or_epoch_is_no_redirect() -> None:
    route = Register("a").route()
    await route.find()
    assert not route.redirected(None)
    assert not route.redirected(NotReadyError("later", address="b"))
    assert not route.redirected(UnknownTopicError("none"))
    assert not route.redirected(told("", 7))
    assert route.redirected(told("b", None))


async def test_the_count_of_redirects_begins_anew_once_a_leader_was_reached() -> None:
    route = Register("a").route()
    await route.find()
    for epoch in range(2, 9):
        assert route.redirected(told("b", epoch))
        assert (await route.find()).epoch == epoch
        route.arrived()


async def test_while_the_register_is_away_brokers_are_asked_in_turn() -> None:
    register = Register("a", "b", "c")
    route = register.route()
    await route.find()
    register.is_there = False
    assert [(await route.find()).address for _ in range(4)] == ["a", "b", "c", "a"]
    assert route.redirected(told("b", 3))
    assert await route.find() == LeaderCandidate("b", 3, generation=1)
    register.is_there = True
    register.leads("c", 4, ["c"])
    assert await route.find() == LeaderCandidate("c", 4, generation=1)


async def test_without_any_broker_the_registers_absence_is_the_error() -> None:
    register = Register("a")
    register.is_there = False
    with pytest.raises(UnreachableError):
        await register.route().find()
