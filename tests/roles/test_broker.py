"""A broker with its register, over real sockets and files, asked message by message."""

from pathlib import Path

import pytest
import trio

from octopi.errors import Status
from octopi.identifiers import ProducerId
from octopi.limits import BATCH_BYTES_MAX, INDEX_INTERVAL_BYTES, RECORDS_PER_PRODUCE_MAX
from octopi.record import NO_REQUEST, Scan, encode_opaque, request_id_v1, scan
from octopi.roles.broker import received_records
from octopi.storage.flush_policy import FlushOptions
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.cluster import describe, running_cluster
from tests.kit.probes import batch, fetch, fetch_all, produce, refusal_of, values


async def test_a_produced_batch_is_fetched_and_stored_byte_for_byte(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            first = await produce(broker, topic, batch(0, b"one", b"two"))
            second = await produce(broker, topic, batch(2, b"three"))
            assert (first.offset, second.offset) == (0, len(batch(0, b"one", b"two")))
            fetched = await fetch(broker, topic, 0)
            assert values(fetched.records) == [b"one", b"two", b"three"]
            directory = tmp_path / f"broker-1/logs/{topic.partitions[0].partition}/orders"
            (segment,) = directory.glob("*.log")
            assert segment.read_bytes() == fetched.records
            assert fetched.highwater == len(fetched.records)


async def test_a_repeated_batch_is_stored_once_and_gets_its_first_receipt_also_after_a_restart(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker(flush=FlushOptions(messages=1))
        topic = await describe(cluster, "orders")
        async with cluster.connection(broker.url) as connection:
            for number in range(3):
                await produce(connection, topic, batch(2 * number, b"x", b"y"))
            again = await produce(connection, topic, batch(2, b"x", b"y"))
            assert again.duplicate
        await cluster.kill(broker)
        broker = await cluster.start_broker()
        topic = await describe(cluster, "orders")
        async with cluster.connection(broker.url) as connection:
            once_more = await produce(connection, topic, batch(2, b"x", b"y"))
            assert once_more.duplicate
            assert once_more.offset == again.offset
            assert once_more.epoch == again.epoch
            following = await produce(connection, topic, batch(6, b"z"))
            assert following.epoch > again.epoch
            assert values(await fetch_all(connection, topic)) == [b"x", b"y"] * 3 + [b"z"]


async def test_a_gap_a_fenced_producer_and_an_unknown_one_are_told_apart(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, batch(0, b"a", epoch=1))
            statuses = [
                (await refusal_of(produce(broker, topic, records))).status
                for records in (
                    batch(5, b"b", epoch=1),
                    batch(1, b"b", epoch=0),
                    batch(1, b"b", producer=ProducerId(b"b" * 16)),
                )
            ]
            assert statuses == [
                Status.SEQUENCE_GAP,
                Status.PRODUCER_FENCED,
                Status.UNKNOWN_PRODUCER,
            ]
            assert values((await fetch(broker, topic, 0)).records) == [b"a"]


async def test_bad_records_are_refused_with_their_status_and_nothing_is_stored(
    tmp_path: Path,
) -> None:
    good = batch(0, b"value")
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            for records, status in (
                (b"", Status.MALFORMED_RECORD),
                (b"garbage" * 20, Status.MALFORMED_RECORD),
                (good[:-1], Status.MALFORMED_RECORD),
                (good[:20], Status.MALFORMED_RECORD),
                (b"\0\0\0\xff" + good[4:], Status.MALFORMED_RECORD),
                (b"\xff\xff\xff\xff" + good[4:], Status.MALFORMED_RECORD),
                (flipped, Status.RECORD_CHECKSUM),
                (good + flipped, Status.RECORD_CHECKSUM),
                (good + batch(7, b"other"), Status.MALFORMED_RECORD),
            ):
                assert (await refusal_of(produce(broker, topic, records))).status == status
            assert (await fetch(broker, topic, 0)).highwater == 0
            await produce(broker, topic, good)


@pytest.mark.parametrize("smallest", [batch(0, b""), encode_opaque(NO_REQUEST, b"")])
async def test_a_produce_of_too_many_records_is_refused_before_all_of_them_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smallest: bytes
) -> None:
    counts: list[int] = []

    def counted(records: bytes, count_max: int) -> Scan:
        found = scan(records, count_max)
        counts.append(found.count)
        return found

    monkeypatch.setattr(received_records, "scan", counted)
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            for count in (RECORDS_PER_PRODUCE_MAX + 1, BATCH_BYTES_MAX // len(smallest)):
                refused = await refusal_of(produce(broker, topic, smallest * count))
                assert refused.status == Status.MESSAGE_TOO_LARGE
            assert (await fetch(broker, topic, 0)).highwater == 0
            many = batch(0, *[b""] * RECORDS_PER_PRODUCE_MAX)
            await produce(broker, topic, many)
            assert (await fetch(broker, topic, 0)).highwater == len(many)
    assert max(counts) <= RECORDS_PER_PRODUCE_MAX + INDEX_INTERVAL_BYTES // len(smallest) + 1


async def test_records_of_version_1_are_stored_unchanged(tmp_path: Path) -> None:
    records = encode_opaque(request_id_v1("localhost", 80, 1), b"payload")
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, records)
            assert (await fetch(broker, topic, 0)).records == records


async def test_wrong_offsets_are_refused_with_the_range_in_words(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, batch(0, b"one", b"two"))
            end = len(batch(0, b"one", b"two"))
            inside = await refusal_of(fetch(broker, topic, 5))
            beyond = await refusal_of(fetch(broker, topic, end + 1))
            assert inside.status == Status.OFFSET_INSIDE_RECORD
            assert beyond.status == Status.OFFSET_OUT_OF_RANGE
            assert str(end) in str(beyond)
            subscribe = m.Subscribe(
                broker.next_request(), "orders", topic.partitions[0].partition, 5, 1000
            )
            refused = await refusal_of(broker.request(subscribe, m.Subscribed, 5))
            assert refused.status == Status.OFFSET_INSIDE_RECORD


async def test_only_the_register_calls_a_topic_unknown(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        lie = m.TopicInfo("clicks", "", topic.partitions, m.TopicOptions())
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            refused = await refusal_of(produce(broker, lie, batch(0, b"x")))
            assert refused.status == Status.NOT_LEADER
        unknown = await refusal_of(describe(cluster, "clicks", create=False))
        assert unknown.status == Status.UNKNOWN_TOPIC
        illegal = await refusal_of(describe(cluster, "../../etc/passwd"))
        assert illegal.status == Status.INVALID_TOPIC


class Subscriber:
    """Collects what a reading delivers."""

    def __init__(
        self, connection: Connection, topic: m.TopicInfo, offset: int, credit: int
    ) -> None:
        self.connection = connection
        self.request = connection.next_request()
        self.data = b""
        self.ended: list[object] = []
        self._more = trio.Event()
        connection.ask(
            m.Subscribe(self.request, topic.topic, topic.partitions[0].partition, offset, credit),
            self._take,
        )

    def _take(self, answer: object) -> None:
        if isinstance(answer, m.Delivery):
            assert answer.highwater >= answer.offset + len(answer.records)
            self.data += answer.records
        elif not isinstance(answer, m.Subscribed):
            self.ended.append(answer)
        self._more.set()
        self._more = trio.Event()

    def grant(self, until: int) -> None:
        self.connection.post(m.Credit(self.request, until))

    async def wait_for(self, size_bytes: int) -> None:
        with trio.fail_after(5):
            while len(self.data) < size_bytes and not self.ended:
                await self._more.wait()

    async def wait_ended(self) -> object:
        with trio.fail_after(5):
            while not self.ended:
                await self._more.wait()
        return self.ended[0]


async def test_a_reading_delivers_stored_and_new_records(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, batch(0, b"before"))
            subscriber = Subscriber(broker, topic, 0, 1_000_000)
            await subscriber.wait_for(1)
            assert values(subscriber.data) == [b"before"]
            arrived_bytes = len(subscriber.data)
            await produce(broker, topic, batch(1, b"after"))  # it may arrive before its answer
            await subscriber.wait_for(arrived_bytes + 1)
            assert values(subscriber.data) == [b"before", b"after"]


async def test_credit_is_a_position_beyond_which_nothing_is_delivered(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            one = len(batch(0, b"value"))
            for number in range(5):
                await produce(broker, topic, batch(number, b"value"))
            subscriber = Subscriber(broker, topic, 0, 2 * one)
            await subscriber.wait_for(2 * one)
            subscriber.grant(one)  # late and smaller: no effect
            subscriber.grant(2 * one + 1)  # a record that begins below it comes whole
            await subscriber.wait_for(3 * one)
            await fetch(broker, topic, 0)  # whatever was on its way has arrived by now
            assert len(subscriber.data) == 3 * one
            subscriber.grant(1_000_000)
            await subscriber.wait_for(5 * one)
            assert len(values(subscriber.data)) == 5


async def test_a_reading_delivers_nothing_after_its_end(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            subscriber = Subscriber(broker, topic, 0, 1_000_000)
            await produce(broker, topic, batch(0, b"one"))
            await subscriber.wait_for(1)
            broker.post(m.Unsubscribe(subscriber.request))
            assert isinstance(await subscriber.wait_ended(), m.Done)
            await produce(broker, topic, batch(1, b"two"))
            assert values(subscriber.data) == [b"one"]


async def test_a_fetch_waits_for_records_and_ends_empty_when_none_come(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            assert (await fetch(broker, topic, 0, wait_ms=20)).records == b""
            results: list[bytes] = []

            async def wait_for_one() -> None:
                results.append((await fetch(broker, topic, 0, wait_ms=5000)).records)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_one)
                await produce(broker, topic, batch(0, b"one"))
            assert values(results[0]) == [b"one"]


async def test_offsets_are_found_by_time_and_from_the_end(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        one = len(batch(0, b"v"))
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            for number in range(10):
                await produce(broker, topic, batch(number, b"v"))

            async def find(at: str, value: int = 0) -> int:
                message = m.FindOffset(
                    broker.next_request(), "orders", topic.partitions[0].partition, at, value
                )
                return (await broker.request(message, m.FoundOffset, 5)).offset

            assert await find("earliest") == 0
            assert await find("latest") == 10 * one
            assert await find("timestamp", 4000) == 4 * one
            assert await find("timestamp", 4001) == 5 * one
            assert await find("timestamp", 99_000) == 10 * one
            assert await find("last", 3) == 7 * one
            assert await find("last", 99) == 0
            assert await find("boundary", 4 * one + 1) == 4 * one
            assert await find("boundary", 99 * one) == 10 * one
            assert (await refusal_of(find("noon"))).status == Status.INVALID_OPTION


async def test_a_topic_that_flushes_before_ack_answers_only_once_records_are_durable(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        async with cluster.connection(cluster.register.url) as register:
            message = m.CreateTopic(
                register.next_request(), "safe", 1, None, m.TopicOptions(flush_before_ack=True)
            )
            topic = (await register.request(message, m.TopicDescription, 5)).topic
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            receipts = [await produce(broker, topic, batch(n, b"x")) for n in range(3)]
            assert [receipt.offset for receipt in receipts] == [
                n * len(batch(0, b"x")) for n in range(3)
            ]


async def test_a_broker_recovers_nothing_after_a_clean_stop_and_loses_nothing_after_a_kill(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        for end, life in ((cluster.stop, 0), (cluster.kill, 1), (cluster.kill, 2)):
            broker = await cluster.start_broker()
            topic = await describe(cluster, "orders")
            async with cluster.connection(broker.url) as connection:
                await produce(connection, topic, batch(life, b"life %d" % life))
            await end(broker)
        broker = await cluster.start_broker()
        topic = await describe(cluster, "orders")
        async with cluster.connection(broker.url) as connection:
            assert values(await fetch_all(connection, topic)) == [b"life 0", b"life 1", b"life 2"]


async def test_a_deleted_topic_is_gone_and_a_new_one_of_its_name_is_empty(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as broker:
            await produce(broker, topic, batch(0, b"old"))
            subscriber = Subscriber(broker, topic, 0, 1_000_000)
            async with cluster.connection(cluster.register.url) as register:
                await register.request(m.DeleteTopic(register.next_request(), "orders"), m.Done, 5)
            ended = await subscriber.wait_ended()
            assert isinstance(ended, m.Failure)
            assert ended.status == Status.NOT_LEADER
            again = await describe(cluster, "orders")
            assert again.topic_id != topic.topic_id
            assert (await fetch(broker, again, 0)).highwater == 0
