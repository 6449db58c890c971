"""Durable subscriptions in blocking programs."""

from __future__ import annotations

import threading
import time

import pytest

import octopi
import octopi.blocking

pytestmark = pytest.mark.process


def fill(client: octopi.blocking.Client, topic: str, count: int, partitions: int = 1) -> None:
    client.create_topic(topic, partitions)
    with client.producer() as producer:
        for number in range(count):
            producer.submit(topic, b"%d" % number, key=b"%d" % number)


def test_the_next_member_continues_at_the_mark(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "marked", 10)
        with client.subscription("marked", "reader") as subscription:
            assert subscription.topic == "marked"
            for message in subscription:
                if message.value == b"3":
                    break
            assert subscription.claims
            assert subscription.claim == next(iter(subscription.claims.values()))
        with client.subscription("marked", "reader", mark="manual") as subscription:
            batch = subscription.next_batch()
            assert batch[0].value == b"4"
            subscription.mark(batch[1])
            subscription.commit()
        with client.subscription("marked", "reader") as subscription:
            for batch in subscription.batches():
                assert batch[0].value == b"6"
                break
        assert client.admin.describe_subscription("marked", "reader").members == []


def test_what_was_carried_and_not_taken_is_not_marked(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "carried", 100)
        seen = []
        for count in (1, 2, 30, 66):
            with client.subscription("carried", "reader") as subscription:
                seen += [next(subscription).value for _ in range(count)]
                if count == 30:
                    subscription.commit()  # and what was carried comes next
                    seen.append(next(subscription).value)
        assert seen == [b"%d" % n for n in range(100)]


def test_an_exception_in_the_block_marks_all_before_the_message_in_hand(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "failing", 10)

        def fail() -> None:
            with client.subscription("failing", "one") as member:
                for message in member:
                    1 / (int(message.value) - 4)

        with pytest.raises(ZeroDivisionError):
            fail()
        with client.subscription("failing", "one") as member:
            assert next(member).value == b"4"


def test_marks_follow_a_program_that_is_slow_within_a_list(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "slow", 10)
        with client.subscription("slow", "reader") as subscription:
            for _ in range(4):
                message = next(subscription)
            deadline = time.monotonic() + 20
            while True:
                [log] = client.admin.describe_subscription("slow", "reader").logs
                if log.mark == message.offset:
                    break
                assert time.monotonic() < deadline, "all before the message in hand is marked"
                time.sleep(0.05)


def test_a_member_that_was_replaced_is_told(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "replaced", 1)
        told = []

        def wait(first: octopi.blocking.Subscription) -> None:
            try:
                next(first)
            except octopi.MemberFencedError as error:
                told.append(error)

        with client.subscription("replaced", "reader", mark="manual") as first:
            next(first)
            waiting = threading.Thread(target=wait, args=(first,))
            waiting.start()
            with client.subscription("replaced", "reader", take_over=True) as second:
                waiting.join()
                assert told
                assert next(second).value == b"0"


def test_no_message_is_begun_that_another_member_may_have(url: str) -> None:
    """A list was carried to one member when another one took over."""
    with octopi.blocking.connect(url) as client:
        fill(client, "taken-over", 50)
        with client.subscription("taken-over", "reader") as first:
            assert next(first).value == b"0"
            assert next(first).value == b"1"
            with client.subscription("taken-over", "reader", take_over=True) as second:
                assert int(next(second).value) <= 2

                def go_on() -> None:
                    for _ in range(48):
                        next(first)
                        time.sleep(0.1)

                with pytest.raises(octopi.MemberFencedError):
                    go_on()


def test_members_of_a_group_share_the_logs_and_miss_nothing(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "group", 300, partitions=4)
        seen: list[int] = []
        lock = threading.Lock()

        def work() -> None:
            with client.subscription("group", "workers", mode="failover") as member:
                while True:
                    try:
                        with octopi.blocking.timeout(2):
                            message = next(member)
                    except TimeoutError:
                        return
                    with lock:
                        seen.append(int(message.value))

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert set(seen) == set(range(300))


def test_logs_are_worked_off_each_on_its_own_until_they_are_lost(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "logs", 20, partitions=3)
        seen: list[bytes] = []

        def work_off(log: octopi.blocking.SubscribedLog) -> None:
            with log:
                seen.extend(message.value for message in log)
            assert log.is_lost

        with client.subscription("logs", "group", mode="failover") as subscription:
            logs = subscription.logs()
            threads = [threading.Thread(target=work_off, args=(next(logs),)) for _ in range(3)]
            for thread in threads:
                thread.start()
            while len(seen) < 20:
                time.sleep(0.01)
            client.admin.reset_subscription("logs", "group", "earliest", force=True)
            for thread in threads:
                thread.join()
            assert sorted(seen, key=int) == [b"%d" % n for n in range(20)]
            log = next(logs)
            with log:
                assert next(log).value in seen  # it comes again
                log.mark(next(log))
                log.commit()
            assert log.claim > 1
            client.admin.delete_subscription("logs", "group")
            with pytest.raises(octopi.UnknownSubscriptionError):
                next(logs)


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_messages_of_a_queue_are_answered_by_many_threads(url: str, mode: str) -> None:
    topic = f"queue-{mode}"
    seen: list[int] = []
    with octopi.blocking.connect(url) as client:
        fill(client, topic, 100, partitions=2)
        opened = client.subscription(topic, "workers", mode=mode)  # type: ignore[call-overload]
        with opened as queue:

            def work() -> None:
                while len(seen) < 100:
                    try:
                        with octopi.blocking.timeout(0.5), next(queue) as message:
                            if message.attempt == 1 and int(message.value) % 10 == 0:
                                message.release()
                            else:
                                seen.append(int(message.value))
                    except TimeoutError:
                        continue

            workers = [threading.Thread(target=work) for _ in range(5)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert queue.commit() == 0
            assert queue.stale_count == 0
        assert sorted(seen) == list(range(100))
        with client.subscription(topic, "batches", mode="shared") as queue:
            count = 0
            for batch in queue.batches():
                with batch:
                    count += len(batch)
                if count == 100:
                    break


def test_a_message_whose_block_fails_is_dealt_again(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "again", 1)
        with client.subscription("again", "workers", mode="shared") as queue:
            with pytest.raises(ZeroDivisionError), next(queue) as message:
                1 / int(message.value)
            with next(queue) as message:
                assert message.attempt == 2
                with pytest.raises(octopi.InvalidOptionError):
                    message.release(delay_s=-1)
                message.extend()
                message.acknowledge()
                assert message.is_answered
            assert queue.commit() == 0


def test_marks_are_kept_for_a_program_that_reads_by_other_means(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        fill(client, "kept", 3)
        with client.mark_keeper("kept", "reader", member="one") as keeper:
            [(partition, place)] = keeper.places.items()
            fetched = client.fetch("kept", place.offset, partition=partition)
            after = fetched.messages[1].next_offset
            assert keeper.store({partition: octopi.Place(after)}) == []
            assert keeper.losses == []
        with client.mark_keeper("kept", "reader", member="one") as keeper:
            assert keeper.places[partition].offset == after
