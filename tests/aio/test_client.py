"""Programs of asyncio produce to and consume from real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

import octopi
import octopi.aio
from harness.processes import node_processes

pytestmark = pytest.mark.process


def run(main: Callable[[], Awaitable[None]], within_s: float = 60.0) -> None:
    """Run *main* as a program of asyncio, in which nothing is left behind."""

    async def program() -> None:
        async with asyncio.timeout(within_s):
            await main()
        assert not trio.lowlevel.in_trio_run(), "the last client ends the run of Trio"
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(program(), debug=True)


def test_messages_that_were_sent_are_consumed_in_order(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            async with client.producer() as producer:
                receipt = await producer.send("in-order", b"0", key=b"k", headers={"h": b"v"})
                assert (receipt.topic, receipt.offset) == ("in-order", 0)
                pending = await producer.submit("in-order", b"1")
                await producer.submit_many("in-order", [b"2", b"3"])
                assert (await pending).offset == receipt.next_offset
                assert pending.is_settled
                assert await pending == await pending.receipt()
                producer.submit_nowait("in-order", b"4")
                await producer.flush()
                assert producer.acknowledged_count == 5
            async with client.consumer("in-order", start="earliest") as consumer:
                seen = []
                async for message in consumer:
                    seen.append(message.value)
                    if len(seen) == 3:
                        break  # and the rest stays where it is
                saved = consumer.position
            async with client.consumer("in-order", start=saved, stop_at_end=True) as consumer:
                assert [one.value async for one in consumer] == [b"3", b"4"]
                assert consumer.lag_bytes == 0
            assert seen == [b"0", b"1", b"2"]
            async with client.consumer("in-order", start="earliest", stop_at_end=True) as consumer:
                values = [one async for batch in consumer.batches() for one in batch.values()]
            assert values == [b"0", b"1", b"2", b"3", b"4"]

    run(main)


def test_a_consumer_gets_what_is_produced_later(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            await client.create_topic("later")
            async with (
                client.producer() as producer,
                client.consumer("later", start="earliest") as consumer,
            ):
                waiting = asyncio.ensure_future(anext(consumer))
                await asyncio.sleep(0.05)
                assert not waiting.done()
                await producer.send("later", b"now")
                assert (await waiting).value == b"now"

    run(main)


def test_requests_and_their_errors_cross(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url, name="asker") as client:
            info = await client.create_topic("asked", 2)
            assert await client.describe_topic("asked") == info
            assert "asked" in [one.topic for one in await client.topics()]
            with pytest.raises(octopi.TopicExistsError):
                await client.create_topic("asked")
            with pytest.raises(octopi.UnknownTopicError):
                async with client.consumer("missing"):
                    pytest.fail("the block is not entered")
            with pytest.raises(octopi.InvalidOptionError):
                async with client.producer(linger_s=-1):
                    pytest.fail("the block is not entered")
            async with client.producer() as producer:
                with pytest.raises(octopi.MalformedRecordError):
                    await producer.send("asked", bytes(2**24))
                with pytest.raises(trio.WouldBlock):
                    producer.submit_nowait("unheard-of", b"")
            assert (await client.admin.describe_cluster()).partition_count > 0
            [log, _] = await client.admin.describe_logs("asked")
            found = await client.find_offset("asked", "earliest", partition=log.log.partition)
            assert found.offset == 0
            fetched = await client.fetch("asked", 0, partition=log.log.partition)
            assert fetched.messages == []
            await client.delete_topic("asked")
        with pytest.raises(octopi.ClosedError):
            await client.topics()

    run(main)


def test_an_exception_of_a_block_comes_out_as_it_is(url: str) -> None:
    class OwnError(Exception):
        pass

    async def main() -> None:
        error = OwnError()
        with pytest.raises(OwnError) as caught:
            await fail(error)
        assert caught.value is error

    async def fail(error: OwnError) -> None:
        async with octopi.aio.connect(url) as client:
            try:
                async with client.producer() as producer:
                    pending = await producer.submit("blocks", b"never sent")
                    raise error
            finally:
                with pytest.raises(octopi.DeliveryError):
                    await pending

    run(main)


def test_no_node_is_an_unreachable_error() -> None:
    async def main() -> None:
        async with octopi.aio.connect("ws://127.0.0.1:9", request_timeout_s=0.3) as client:
            with pytest.raises(octopi.UnreachableError):
                await client.topics()
            async with client.producer(delivery_timeout_s=0.2) as producer:
                with pytest.raises(octopi.NotDeliveredError):
                    await producer.send("orders", b"")

    run(main)


def test_cancelled_waits_take_nothing_away(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            await client.create_topic("cancelled")
            async with (
                client.producer() as producer,
                client.consumer("cancelled", start="earliest") as consumer,
            ):
                for number in range(50):
                    # Cancelled before, while and after the message arrives.
                    waiting = asyncio.ensure_future(anext(consumer))
                    sending = asyncio.ensure_future(producer.send("cancelled", b"%d" % number))
                    await asyncio.sleep(number * 0.0001)
                    waiting.cancel()
                    [got, _] = await asyncio.gather(waiting, sending, return_exceptions=True)
                    if isinstance(got, asyncio.CancelledError):
                        got = await anext(consumer)
                    assert isinstance(got, octopi.Message)
                    assert got.value == b"%d" % number

    run(main)


def test_a_cancelled_send_leaves_its_message_queued(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client, client.producer() as producer:
            await producer.send("queued", b"first")
            sending = asyncio.ensure_future(producer.send("queued", b"second"))
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await producer.flush()
            assert producer.acknowledged_count == 2

    run(main)


def test_a_call_that_is_cancelled_has_ended_on_both_sides() -> None:
    async def main() -> None:
        for act in (ask, produce):
            async with octopi.aio.connect("ws://127.0.0.1:9") as client:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(act(client), 0.1)

    async def ask(client: octopi.aio.Client) -> None:
        await client.topics()  # would try for 15 s

    async def produce(client: octopi.aio.Client) -> None:
        async with client.producer() as producer:
            await producer.send("orders", b"")  # would try for 60 s

    run(main, within_s=5)


def test_a_flush_at_the_end_of_a_block_can_be_cancelled(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        with node_processes(tmp_path) as nodes:
            register = nodes.register()
            broker = nodes.broker(register)
            async with octopi.aio.connect(register.url) as client:
                receipts = []

                async def produce() -> None:
                    async with client.producer() as producer:
                        await producer.send("orders", b"")
                        broker.kill9()
                        receipts.append(await producer.submit("orders", b"never"))
                        submitted.set()

                submitted = asyncio.Event()
                producing = asyncio.ensure_future(produce())
                await submitted.wait()
                await asyncio.sleep(0)
                producing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await producing
                with pytest.raises(octopi.DeliveryError):
                    await receipts[0]

    run(main, within_s=20)


def test_many_tasks_share_a_producer(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client, client.producer() as producer:
            sends = [producer.send("shared", b"%d" % number) for number in range(500)]
            receipts = await asyncio.gather(*sends)
            assert len({one.offset for one in receipts}) == 500

    run(main)


def test_a_full_buffer_makes_producers_wait(url: str) -> None:
    async def main() -> None:
        async with (
            octopi.aio.connect(url) as client,
            client.producer(buffer_bytes=10_000, batch_bytes=5_000) as producer,
        ):
            await asyncio.gather(*(_submit(producer) for _ in range(3)))
            await producer.submit_many("full", [bytes(1000)] * 100)
            await producer.flush()
            assert producer.acknowledged_count == 400

    async def _submit(producer: octopi.aio.Producer) -> None:
        for _ in range(100):
            await producer.submit("full", bytes(1000))

    run(main)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_token_function_runs_in_the_loop(url: str, is_async: bool) -> None:
    loops = []

    def token() -> None:
        loops.append(asyncio.get_running_loop())

    async def slow_token() -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    async def main() -> None:
        async with octopi.aio.connect(url, token=slow_token if is_async else token) as client:
            await client.topics()
            assert loops == [asyncio.get_running_loop()]

    run(main)


def test_stored_records_are_read_and_appended(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            async with client.producer() as producer:
                for number in range(10):
                    receipt = await producer.send("stored", b"%d" % number)
            info = await client.describe_topic("stored")
            records = client.stored_records
            end = await records.find(receipt.topic, receipt.partition, "latest")
            reading = records.read(
                receipt.topic,
                octopi.TopicId(info.topic_id),
                receipt.partition,
                octopi.Place(octopi.Offset(0)),
                octopi.Offset(end.offset),
                window_bytes=100_000,
                skip_gaps=False,
            )
            async with reading as reader:
                taken = b""
                while chunks := await reader.chunks():
                    taken += b"".join(one.records for one in chunks)
            assert len(taken) == receipt.next_offset
            assert reader.gaps == []
            await records.append(receipt.topic, receipt.partition, taken)  # it has them already
            again = await records.find(receipt.topic, receipt.partition, "latest")
            assert again.offset == end.offset

    run(main)


def test_a_killed_leader_costs_neither_a_message_nor_a_repeat(tmp_path: Path) -> None:
    count = 1500

    async def main() -> None:
        with node_processes(tmp_path) as nodes:
            register = nodes.register()
            brokers = {n: nodes.broker(register, f"broker-{n}") for n in (1, 2, 3)}
            async with octopi.aio.connect(register.url) as client:
                info = await client.create_topic("orders")
                receipts: list[octopi.Receipt] = []
                seen: list[octopi.Message] = []
                enough = asyncio.Event()

                async def produce() -> None:
                    async with client.producer() as producer:
                        for number in range(count):
                            receipt = await producer.send("orders", b"%d" % number)
                            receipts.append(receipt)
                            if number == count // 3:
                                enough.set()

                async def consume() -> None:
                    async with client.consumer("orders", start="earliest") as consumer:
                        async for message in consumer:
                            seen.append(message)
                            if len(seen) == count:
                                return

                async def kill() -> None:
                    await enough.wait()
                    leader = info.partitions[0].leader
                    assert leader is not None
                    brokers[leader].kill9()

                async with asyncio.TaskGroup() as tasks:
                    for act in (produce, consume, kill):
                        tasks.create_task(act())
                assert [one.value for one in seen] == [b"%d" % n for n in range(count)]
                assert [one.offset for one in seen] == [one.offset for one in receipts]

    run(main, within_s=100)


def test_single_messages_and_batches_may_be_taken_in_turn(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            sent = [b"%d" % number for number in range(100)]
            async with client.producer() as producer:
                await producer.submit_many("taken-in-turn", sent)
            topic = "taken-in-turn"
            async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
                first = await anext(consumer)
                batch = await consumer.next_batch()
                assert batch is not None
                assert batch.offset == first.next_offset
                assert consumer.position.offsets == {batch.partition: batch.next_offset}
                assert [first.value, *batch.values()] == sent[: 1 + len(batch)]
                assert [one.value async for one in consumer] == sent[1 + len(batch) :]

    run(main)


def test_one_consumer_reads_several_topics(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            async with client.producer() as producer:
                for topic in ("several-0", "several.eu", "several.us"):
                    await producer.submit(topic, topic.encode())
            names = ["several-0", "several.*"]
            async with client.consumer(names, start="earliest", stop_at_end=True) as consumer:
                first = await consumer.next_batch()
                assert first is not None
                saved = consumer.positions
                rest = [one async for one in consumer]
                assert consumer.topics == ["several-0", "several.eu", "several.us"]
                assert (consumer.lag_bytes, consumer.left) == (0, [])
            assert sorted(one.value for one in [*first, *rest]) == [
                b"several-0",
                b"several.eu",
                b"several.us",
            ]
            async with client.consumer(names, start=saved, stop_at_end=True) as consumer:
                again = [one async for batch in consumer.batches() for one in batch.values()]
            assert sorted(again) == sorted(one.value for one in rest)

    run(main)
