"""Blocking programs produce to and consume from real nodes."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

import octopi
import octopi.blocking
from harness.processes import node_processes

pytestmark = pytest.mark.process


def test_messages_that_were_sent_are_consumed_in_order(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            receipt = producer.send("in-order", b"0", key=b"k", headers={"h": b"v"})
            assert (receipt.topic, receipt.offset) == ("in-order", 0)
            pending = producer.submit("in-order", b"1")
            producer.submit_many("in-order", [b"2", b"3"])
            assert pending.receipt().offset == receipt.next_offset
            assert pending.is_settled
            assert pending.receipt() == pending.receipt()
            producer.submit_nowait("in-order", b"4")
            producer.flush()
            assert producer.acknowledged_count == 5
        with client.consumer("in-order", start="earliest") as consumer:
            seen = []
            for message in consumer:
                seen.append(message.value)
                assert consumer.position.places[message.partition].offset == message.next_offset
                if len(seen) == 3:
                    break  # and the rest stays where it is
            saved = consumer.position
        with client.consumer("in-order", start=saved, stop_at_end=True) as consumer:
            assert [one.value for one in consumer] == [b"3", b"4"]
            assert consumer.lag_bytes == 0
        assert seen == [b"0", b"1", b"2"]
        with client.consumer("in-order", start="earliest", stop_at_end=True) as consumer:
            values = [value for batch in consumer.batches() for value in batch.values()]
        assert values == [b"0", b"1", b"2", b"3", b"4"]


def test_single_messages_and_batches_may_be_taken_in_turn(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            sent = [b"%d" % number for number in range(100)]
            producer.submit_many("taken-in-turn", sent)
        with client.consumer("taken-in-turn", start="earliest", stop_at_end=True) as consumer:
            first = next(consumer)
            batch = consumer.next_batch()
            assert batch is not None
            assert batch.offset == first.next_offset
            assert consumer.position.offsets == {batch.partition: batch.next_offset}
            assert [first.value, *batch.values()] == sent[: 1 + len(batch)]
            assert [one.value for one in consumer] == sent[1 + len(batch) :]


def test_what_a_thread_sends_and_submits_by_turns_is_stored_in_that_order(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            for number in range(0, 300, 3):
                producer.submit("by-turns", b"%d" % number)
                producer.submit_many("by-turns", [b"%d" % (number + 1)])
                producer.send("by-turns", b"%d" % (number + 2))
        with client.consumer("by-turns", start="earliest", stop_at_end=True) as consumer:
            assert [one.value for one in consumer] == [b"%d" % n for n in range(300)]


def test_a_consumer_gets_what_is_produced_later(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        client.create_topic("later")
        with client.producer() as producer, client.consumer("later", start="earliest") as consumer:
            found: list[bytes] = []
            waiting = threading.Thread(target=lambda: found.append(next(consumer).value))
            waiting.start()
            time.sleep(0.05)
            assert found == []
            producer.send("later", b"now")
            waiting.join()
            assert found == [b"now"]


def test_requests_and_their_errors_cross(url: str) -> None:
    with octopi.blocking.connect(url, name="asker") as client:
        info = client.create_topic("asked", 2)
        assert client.describe_topic("asked") == info
        assert "asked" in [one.topic for one in client.topics()]
        with pytest.raises(octopi.TopicExistsError):
            client.create_topic("asked")
        with pytest.raises(octopi.UnknownTopicError), client.consumer("missing"):
            pytest.fail("the block is not entered")
        with pytest.raises(octopi.InvalidOptionError), client.producer(linger_s=-1):
            pytest.fail("the block is not entered")
        with client.producer() as producer:
            for send in (producer.send, producer.submit):
                with pytest.raises(octopi.MalformedRecordError):
                    send("asked", bytes(2**24))
                with pytest.raises(octopi.RefusedError):
                    send("asked", b"", partition=10**6)
                with pytest.raises(octopi.InvalidTopicError):
                    send("not a name", b"")
                with pytest.raises(TypeError):
                    send("asked", "text")  # type: ignore[arg-type]
            with pytest.raises(trio.WouldBlock):
                producer.submit_nowait("unheard-of", b"")
        assert client.admin.describe_cluster().partition_count > 0
        [log, _] = client.admin.describe_logs("asked")
        found = client.find_offset("asked", "earliest", partition=log.log.partition)
        assert found.offset == 0
        assert client.fetch("asked", 0, partition=log.log.partition).messages == []
        client.delete_topic("asked")
    with pytest.raises(octopi.ClosedError):
        client.topics()


def test_an_exception_of_a_block_comes_out_as_it_is(url: str) -> None:
    class OwnError(Exception):
        pass

    error, receipts = OwnError(), []

    def fail() -> None:
        with octopi.blocking.connect(url) as client, client.producer(linger_s=60) as producer:
            receipts.append(producer.submit("blocks", b"never sent"))
            raise error

    with pytest.raises(OwnError) as caught:
        fail()
    assert caught.value is error
    with pytest.raises(octopi.ClosedError):
        receipts[0].receipt()


def test_a_producer_whose_block_is_left_delivers_what_was_submitted(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer(linger_s=60) as producer:
            for number in range(100):
                producer.submit("left", b"%d" % number)
        with client.consumer("left", start="earliest", stop_at_end=True) as consumer:
            assert len(list(consumer)) == 100
        with pytest.raises(octopi.ClosedError):
            producer.send("left", b"too late")
        with pytest.raises(octopi.ClosedError):
            producer.submit("left", b"too late")


def test_no_node_is_an_unreachable_error() -> None:
    with octopi.blocking.connect("ws://127.0.0.1:9", request_timeout_s=0.3) as client:
        with pytest.raises(octopi.UnreachableError):
            client.topics()
        with client.producer(delivery_timeout_s=0.2) as producer:
            with pytest.raises(octopi.NotDeliveredError):
                producer.send("orders", b"")
            with pytest.raises(octopi.NotDeliveredError):
                producer.submit("orders", b"")


def test_a_call_ends_when_its_time_is_up() -> None:
    with octopi.blocking.connect("ws://127.0.0.1:9") as client:
        began = time.monotonic()
        with pytest.raises(TimeoutError), octopi.blocking.timeout(0.1):
            client.topics()  # would try for 15 s
        with client.producer() as producer:
            with pytest.raises(TimeoutError), octopi.blocking.timeout(0.1):
                producer.send("orders", b"")  # would try for 60 s
            timeout = octopi.blocking.timeout
            with pytest.raises(TimeoutError), timeout(60), timeout(0.1), timeout(60):
                producer.send("orders", b"")
        assert time.monotonic() - began < 5


def test_a_wait_whose_time_is_up_takes_no_message_away(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        client.create_topic("timed")
        with client.producer() as producer, client.consumer("timed", start="earliest") as consumer:
            for number in range(50):
                # The time is up before, while and after the message arrives.
                sending = threading.Timer(0.001, producer.send, ("timed", b"%d" % number))
                sending.start()
                try:
                    with octopi.blocking.timeout(number * 0.0002):
                        got = next(consumer)
                except TimeoutError:
                    got = next(consumer)
                sending.join()
                assert got.value == b"%d" % number


def test_a_send_whose_time_is_up_leaves_its_message_queued(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        with octopi.blocking.connect(register.url) as client:
            with client.producer() as producer:
                for number in range(3):
                    producer.send("queued", b"%d" % number)
                broker.kill9()
                with pytest.raises(TimeoutError), octopi.blocking.timeout(0.3):
                    producer.send("queued", b"3")
                with pytest.raises(TimeoutError), octopi.blocking.timeout(0.3):
                    producer.send("queued", b"not taken, since it waits for its turn behind that")
                pending = producer.submit("queued", b"4")
                broker.restart()
                producer.send("queued", b"5")
                assert pending.is_settled
                assert producer.acknowledged_count == 6
            with client.consumer("queued", start="earliest", stop_at_end=True) as consumer:
                assert [one.value for one in consumer] == [b"%d" % n for n in range(6)]


def test_many_threads_share_a_producer(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:

            def work(name: int) -> None:
                for number in range(60):
                    if number % 7 == 3:
                        producer.submit("shared", b"%d %d" % (name, number))
                    else:
                        producer.send("shared", b"%d %d" % (name, number))

            workers = [threading.Thread(target=work, args=(name,)) for name in range(6)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            producer.flush()
            assert producer.acknowledged_count == 360
        with client.consumer("shared", start="earliest", stop_at_end=True) as consumer:
            seen = [tuple(map(int, one.value.split())) for one in consumer]
    for name in range(6):
        assert [number for one, number in seen if one == name] == list(range(60))


def test_a_full_buffer_makes_producers_wait(url: str) -> None:
    with (
        octopi.blocking.connect(url) as client,
        client.producer(buffer_bytes=10_000, batch_bytes=5_000) as producer,
    ):

        def submit() -> None:
            for _ in range(1000):
                producer.submit("full", bytes(1000))

        workers = [threading.Thread(target=submit) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.submit_many("full", [bytes(1000)] * 100)
        producer.flush()
        assert producer.acknowledged_count == 3100


def test_messages_of_a_deleted_topic_are_reported_when_they_are_not_awaited(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        client.create_topic("deleted")
        with client.producer(create_topics=False, delivery_timeout_s=2) as producer:
            producer.submit("deleted", b"kept")
            producer.flush()
            client.delete_topic("deleted")
            producer.submit("deleted", b"lost")
            with pytest.raises(octopi.OctopiError):
                producer.flush()
            producer.flush()  # each failure is reported once


@pytest.mark.parametrize("is_async", [False, True])
def test_a_token_function_may_wait(url: str, is_async: bool) -> None:
    called = []

    def token() -> None:
        called.append(threading.current_thread())
        time.sleep(0.01)

    async def slow_token() -> None:
        await trio.sleep(0.01)
        called.append(threading.current_thread())

    with octopi.blocking.connect(url, token=slow_token if is_async else token) as client:
        client.topics()
        assert called != [threading.main_thread()]
        assert len(called) == 1


def test_stored_records_are_read_and_appended(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            for number in range(10):
                receipt = producer.send("stored", b"%d" % number)
        info = client.describe_topic("stored")
        records = client.stored_records
        end = records.find(receipt.topic, receipt.partition, "latest")
        reading = records.read(
            receipt.topic,
            octopi.TopicId(info.topic_id),
            receipt.partition,
            octopi.Place(octopi.Offset(0)),
            octopi.Offset(end.offset),
            window_bytes=100_000,
            skip_gaps=False,
        )
        with reading as reader:
            taken = b""
            while chunks := reader.chunks():
                taken += b"".join(one.records for one in chunks)
        assert len(taken) == receipt.next_offset
        assert reader.gaps == []


def test_one_consumer_reads_several_topics(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            for topic in ("several-0", "several.eu", "several.us"):
                producer.submit(topic, topic.encode())
        names = ["several-0", "several.*"]
        with client.consumer(names, start="earliest", stop_at_end=True) as consumer:
            first = consumer.next_batch()
            assert first is not None
            saved = consumer.positions
            rest = list(consumer)
            assert consumer.topics == ["several-0", "several.eu", "several.us"]
            assert (consumer.lag_bytes, consumer.left) == (0, [])
        assert len([*first, *rest]) == 3
        with client.consumer(names, start=saved, stop_at_end=True) as consumer:
            again = [value for batch in consumer.batches() for value in batch.values()]
        assert sorted(again) == sorted(one.value for one in rest)


def test_several_clients_work_in_one_process(url: str) -> None:
    with (
        octopi.blocking.connect(url) as one,
        octopi.blocking.connect(url) as other,
        one.producer() as producer,
        other.consumer("two", create=True) as consumer,
    ):
        producer.send("two", b"across")
        assert next(consumer).value == b"across"


def test_a_failure_in_a_block_whose_client_was_closed_comes_out_as_it_is(url: str) -> None:
    with octopi.blocking.connect(url) as client, client.producer() as producer:
        producer.send("closed-before", b"0")
    failure = ValueError("the program's own")
    closed = ExitStack()
    client = closed.enter_context(octopi.blocking.connect(url))

    def work() -> None:
        with client.consumer("closed-before", start="earliest") as consumer:
            assert next(consumer).value == b"0"
            closed.close()
            raise failure

    with pytest.raises(ValueError, match="the program's own") as raised:
        work()
    assert raised.value is failure
