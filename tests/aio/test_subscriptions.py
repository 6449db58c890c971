"""Durable subscriptions in programs of asyncio."""

from __future__ import annotations

import asyncio

import pytest

import octopi
import octopi.aio
from tests.aio.test_client import run

pytestmark = pytest.mark.process


async def fill(client: octopi.aio.Client, topic: str, count: int, partitions: int = 1) -> None:
    await client.create_topic(topic, partitions)
    async with client.producer() as producer:
        for number in range(count):
            await producer.submit(topic, b"%d" % number, key=b"%d" % number)


def test_the_next_member_continues_at_the_mark(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            await fill(client, "marked", 10)
            async with client.subscription("marked", "reader") as subscription:
                assert subscription.topic == "marked"
                async for message in subscription:
                    if message.value == b"3":
                        break
                assert subscription.claims
                assert subscription.claim == next(iter(subscription.claims.values()))
            async with client.subscription("marked", "reader", mark="manual") as subscription:
                batch = await subscription.next_batch()
                assert batch[0].value == b"4"
                subscription.mark(batch[1])
                await subscription.commit()
            async with client.subscription("marked", "reader") as subscription:
                async for batch in subscription.batches():
                    assert batch[0].value == b"6"
                    break
            status = await client.admin.describe_subscription("marked", "reader")
            assert status.members == []

    run(main)


def test_a_member_that_was_replaced_is_told(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            await fill(client, "replaced", 1)
            async with client.subscription("replaced", "reader", mark="manual") as first:
                await anext(first)
                waiting = asyncio.ensure_future(anext(first))
                async with client.subscription("replaced", "reader", take_over=True) as second:
                    with pytest.raises(octopi.MemberFencedError):
                        await waiting
                    assert (await anext(second)).value == b"0"

    run(main)


@pytest.mark.parametrize("is_at_work", [False, True])
def test_the_block_of_a_log_is_cancelled_when_the_log_is_lost(url: str, is_at_work: bool) -> None:
    async def main() -> None:
        topic = f"logs-{is_at_work}"
        seen: list[bytes] = []
        all_seen = asyncio.Event()

        async def work_off(log: octopi.aio.SubscribedLog) -> None:
            async with log:
                async for message in log:
                    seen.append(message.value)
                    if len(seen) == 20:
                        all_seen.set()
                    if is_at_work and all_seen.is_set():
                        await asyncio.sleep(3600)
                assert log.is_lost or log.is_ending
            assert log.is_lost
            await asyncio.sleep(0)  # it was the block that was cancelled, and not the task
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

        async with octopi.aio.connect(url) as client:
            await fill(client, topic, 20, partitions=3)
            async with client.subscription(topic, "group", mode="failover") as subscription:
                logs = subscription.logs()
                working = [asyncio.ensure_future(work_off(await anext(logs))) for _ in range(3)]
                await all_seen.wait()
                await client.admin.reset_subscription(topic, "group", "earliest", force=True)
                await asyncio.gather(*working)
                assert sorted(seen, key=int) == [b"%d" % n for n in range(20)]
                log = await anext(logs)
                async with log:
                    assert (await anext(log)).value in seen  # it comes again
                    log.mark(await anext(log))
                    await log.commit()
                assert log.claim > 1
                await client.admin.delete_subscription(topic, "group")
                with pytest.raises(octopi.UnknownSubscriptionError):
                    await anext(logs)

    run(main)


def test_waiting_for_a_log_may_go_on_after_a_timeout(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            await client.create_topic("log-by-log")
            async with client.subscription("log-by-log", "group", mode="failover") as member:
                logs = member.logs()
                async with await anext(logs) as log:
                    for _ in range(2):
                        with pytest.raises(TimeoutError):
                            await asyncio.wait_for(anext(logs), 0.05)
                    assert not log.is_lost

    run(main)


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_messages_of_a_queue_are_answered_by_many_tasks(url: str, mode: str) -> None:
    async def main() -> None:
        topic = f"queue-{mode}"
        seen: list[int] = []
        async with octopi.aio.connect(url) as client:
            await fill(client, topic, 100, partitions=2)
            opened = client.subscription(topic, "workers", mode=mode)  # type: ignore[call-overload]
            async with opened as queue:

                async def work() -> None:
                    while len(seen) < 100:
                        message = await anext(queue)
                        async with message:
                            if message.attempt == 1 and int(message.value) % 10 == 0:
                                message.release()
                            else:
                                seen.append(int(message.value))
                                if len(seen) == 100:
                                    done.set()

                done = asyncio.Event()
                workers = [asyncio.ensure_future(work()) for _ in range(5)]
                await done.wait()
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
                assert await queue.commit() == 0
                assert queue.stale_count == 0
            assert sorted(seen) == list(range(100))
            async with client.subscription(topic, "batches", mode="shared") as queue:
                count = 0
                async for batch in queue.batches():
                    async with batch:
                        count += len(batch)
                    if count == 100:
                        break

    run(main)


def test_marks_are_kept_for_a_program_that_reads_by_other_means(url: str) -> None:
    async def main() -> None:
        async with octopi.aio.connect(url) as client:
            await fill(client, "kept", 3)
            async with client.mark_keeper("kept", "query", member="one") as keeper:
                [(partition, place)] = keeper.places.items()
                assert place.offset == 0
                found = await client.find_offset("kept", octopi.last(1), partition=partition)
                assert (
                    await keeper.store({partition: octopi.Place(octopi.Offset(found.offset))}) == []
                )
                assert keeper.losses == []
            async with client.subscription("kept", "query", mode="failover") as subscription:
                assert (await anext(subscription)).value == b"2"

    run(main)
