"""Pipes on a cluster: each result is stored once, whoever dies meanwhile."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import octopi
from octopi.clients.piping import pipe_output
from octopi.limits import RETENTION_CHECK_INTERVAL_S
from octopi.wire import messages as m
from tests.kit.world import World, read_all, running_world, values


async def filled(world: World, count: int, *, partitions: int = 1) -> None:
    """Make both topics, and *count* messages in ``orders``."""
    async with world.client() as client, client.producer() as producer:
        await client.create_topic("orders", partitions=partitions)
        await client.create_topic("invoices", partitions=partitions)
        for number in range(count):
            await producer.submit("orders", b"%d" % number, key=b"%d" % number)


async def work(pipe: octopi.Pipe, results: int = 2, stop_at: int | None = None) -> None:
    """Send some results of each message, until that of *stop_at* is in hand."""
    async for order in pipe:
        for index in range(results):
            await pipe.send(b"%s.%d" % (order.value, index), key=order.key)
        if stop_at is not None and int(order.value) >= stop_at:
            return


def wanted(count: int, results: int = 2) -> list[bytes]:
    return [b"%d.%d" % (number, index) for number in range(count) for index in range(results)]


async def test_each_message_is_processed_and_its_results_are_stored_once(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world:
        await filled(world, 100)
        async with world.client() as client:
            async with client.pipe("orders", "billing", into="invoices") as pipe:
                await work(pipe, stop_at=99)
            stored = await read_all(client, "invoices")
            assert [one.value for one in stored] == wanted(100)
            assert stored[0].key == b"0"
            places = [one.headers["octopi-input"].split() for one in stored[:2]]
            assert [(one[5], one[6]) for one in places] == [(b"0", b"more"), (b"1", b"last")]
            async with client.subscription("orders", "billing") as again:
                with trio.move_on_after(1):
                    pytest.fail(f"{await anext(again)} was not marked")


async def test_a_pipe_goes_on_where_the_one_before_was(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 30)
        for stop_at in (9, 19, 29):
            async with client.pipe("orders", "billing", into="invoices") as pipe:
                await work(pipe, stop_at=stop_at)
        assert await values(client, "invoices") == wanted(30)


async def test_what_was_sent_for_a_message_that_failed_is_dropped_and_sent_by_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 3)

        async def fail_at_1() -> None:
            async with client.pipe("orders", "billing", into="invoices") as pipe:
                async for order in pipe:
                    await pipe.send(order.value)
                    _ = 1 // (1 - int(order.value))

        with pytest.raises(ZeroDivisionError):
            await fail_at_1()
        async with client.pipe("orders", "billing", into="invoices") as pipe:
            await work(pipe, results=1, stop_at=2)
        assert [one.split(b".")[0] for one in await values(client, "invoices")] == [
            b"0",
            b"1",
            b"2",
        ]


async def test_messages_without_results_are_passed(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 10)
        async with client.pipe("orders", "billing", into="invoices") as pipe:
            async for order in pipe:
                if int(order.value) % 3 == 0:
                    await pipe.send(order.value)
                if order.value == b"9":
                    break
        assert await values(client, "invoices") == [b"0", b"3", b"6", b"9"]


@pytest.mark.parametrize("message", [m.Produce, m.Produced, m.DescribeProducer, m.Attach, m.Mark])
@pytest.mark.parametrize("action", ["break before", "break after", "lose"])
async def test_results_are_stored_once_whatever_gets_lost_on_the_way(
    action: str, message: type, autojump_clock: MockClock
) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 20)
        async with client.pipe("orders", "billing", into="invoices") as pipe:
            await work(pipe, stop_at=4)
        world.net.fault(message, action)  # type: ignore[arg-type]
        async with client.pipe("orders", "billing", into="invoices") as pipe:
            await work(pipe, stop_at=19)
        assert await values(client, "invoices") == wanted(20)


async def test_two_members_share_the_logs_and_pass_them_on(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 60, partitions=4)

        async def member(stay_s: float) -> None:
            async with world.client() as own:
                with trio.move_on_after(stay_s):
                    async with own.pipe(
                        "orders",
                        "billing",
                        into="invoices",
                        mode="failover",
                        session_timeout_s=2,
                        release_timeout_s=1,
                    ) as pipe:
                        async for order in pipe:
                            await pipe.send(order.value, key=order.key)
                            await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(member, 3.0 + number)
                await trio.sleep(1.3)
        await member(20)
        found = sorted(map(int, await values(client, "invoices")))
        assert found == list(range(60))


async def test_a_broker_that_dies_again_and_again_loses_and_doubles_no_result(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 200)

        async def trouble() -> None:
            for _ in range(4):
                await trio.sleep(0.6)
                await world.restart()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            async with client.pipe("orders", "billing", into="invoices") as pipe:
                async for order in pipe:
                    await pipe.send(b"%s.0" % order.value)
                    await pipe.send(b"%s.1" % order.value)
                    await trio.sleep(0.02)
                    if order.value == b"199":
                        break
        assert await values(client, "invoices") == wanted(200)


async def test_a_member_that_was_replaced_stores_nothing_more(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client, world.client() as other:
        await filled(world, 5)

        async def replace() -> None:
            async with other.pipe("orders", "billing", into="invoices", take_over=True) as newer:
                async for again in newer:
                    await newer.send(b"new " + again.value)
                    if again.value == b"4":
                        return

        async def be_replaced() -> None:
            async with client.pipe("orders", "billing", into="invoices") as pipe:
                async for order in pipe:
                    await pipe.send(b"old " + order.value)
                    if order.value == b"2":
                        await replace()

        with pytest.raises(octopi.MemberFencedError):
            await be_replaced()
        found = await values(client, "invoices")
        assert [one.split()[1] for one in found] == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_program_waits_while_much_of_what_it_sent_is_not_stored(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_output, "PIPE_BUFFER_BYTES", 5_000)
    async with running_world() as world, world.client() as client:
        await filled(world, 200)
        greatest = 0
        async with client.pipe("orders", "billing", into="invoices") as pipe:
            async for order in pipe:
                [output] = pipe._outputs.values()
                greatest = max(greatest, output.log.waiting_bytes)
                await pipe.send(order.value + bytes(1_000))
                if order.value == b"199":
                    break
        assert len(await values(client, "invoices")) == 200
        assert 3_000 < greatest < 5_000


async def test_a_pipe_into_a_topic_in_which_nothing_can_be_written_says_so(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 1)
        with pytest.raises(octopi.UnknownTopicError):
            async with client.pipe("orders", "billing", into="missing"):
                pass


async def test_a_task_that_is_cancelled_while_it_asks_loses_no_message(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 20)
        async with client.pipe("orders", "billing", into="invoices", batch_bytes=1) as pipe:
            seen: list[bytes] = []
            while seen[-1:] != [b"19"]:
                with trio.move_on_after(0.0005):
                    order = await anext(pipe)
                    seen.append(order.value)
                    await pipe.send(order.value)
        assert seen == await values(client, "invoices") == [b"%d" % one for one in range(20)]


async def test_a_pipe_whose_last_result_retention_has_removed_goes_on_at_its_mark_if_told_so(
    autojump_clock: MockClock,
) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 5)
        await client.create_topic("short", segment_bytes=4096, retention_bytes=4096)
        async with client.pipe("orders", "billing", into="short") as pipe:
            await work(pipe, results=1, stop_at=4)
        async with client.producer() as producer:
            for _ in range(40):
                await producer.send("short", bytes(1000))
            await producer.send("orders", b"5")
        await trio.sleep(2 * RETENTION_CHECK_INTERVAL_S)
        assert b"4.0" not in await values(client, "short")

        async def go_on(*, from_mark: bool) -> None:
            async with client.pipe("orders", "billing", into="short", from_mark=from_mark) as pipe:
                await work(pipe, results=1, stop_at=5)

        with pytest.raises(octopi.RefusedError, match="from_mark=True"):
            await go_on(from_mark=False)
        await go_on(from_mark=True)
        assert (await values(client, "short"))[-1] == b"5.0"


async def test_misuse_is_told_at_once(autojump_clock: MockClock) -> None:
    async with running_world() as world, world.client() as client:
        await filled(world, 1)
        async with client.pipe("orders", "billing", into="invoices") as pipe:
            with pytest.raises(RuntimeError, match="no message is in hand"):
                await pipe.send(b"1")
            async for _ in pipe:
                with pytest.raises(octopi.InvalidOptionError, match="octopi-input"):
                    await pipe.send(b"1", headers={"octopi-input": b""})
                with pytest.raises(octopi.MalformedRecordError):
                    await pipe.send(bytes(9_000_000))
                break
        assert await values(client, "invoices") == []
