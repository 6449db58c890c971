"""Apache Kafka: one broker, or three with three replicas; the client is confluent-kafka
(librdkafka).

``OCTOPI_BENCH_KAFKA_JARS`` names a directory with ``kafka_2.13``, ``kafka-tools`` and the jars that
they need.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.client import Gate, age_s, spread, stamped
from benchmarks.kafka_broker import jar_version, kafka_cluster
from benchmarks.systems import Serving, not_installed

TITLE: Final = "Apache Kafka"
KINDS: Final = frozenset({"produce", "consume", "queue", "request", "latency"})
JARS: Final = "OCTOPI_BENCH_KAFKA_JARS"
BATCH_BYTES: Final = 1 << 20
LINGER_MS: Final = 5
_POLLED_EVERY: Final = 1_000
_TIMEOUT_S: Final = 60.0


def missing() -> str | None:
    """Why this system can't be measured; None: it can."""
    if not os.environ.get(JARS):
        return (
            f"the variable {JARS} doesn't name a directory of Kafka's jars (`libs` of its release, "
            "or the Maven artifacts kafka_2.13 and kafka-tools with their dependencies)"
        )
    return not_installed(
        "java",
        {"confluent_kafka": "confluent-kafka"},
        "Debian: apt-get install openjdk-17-jre-headless",
    )


@contextmanager
def serving(directory: Path, replicas: int, flush_before_ack: bool) -> Iterator[Serving]:
    """Run the brokers within the block."""
    jars = Path(os.environ[JARS])
    options = {"default.replication.factor": replicas, "min.insync.replicas": replicas}
    if flush_before_ack:
        options["log.flush.interval.messages"] = 1
    with kafka_cluster(jars, directory / "brokers", replicas, options) as brokers:
        yield Serving(
            ",".join(one.address for one in brokers),
            {f"kafka-{number + 1}": one.pid for number, one in enumerate(brokers)},
            jar_version(jars),
            f"acks=all, batches of {BATCH_BYTES >> 20} MiB, {LINGER_MS} ms of lingering; "
            "neither for single messages and end to end",
        )


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    parameters.pop("flush_before_ack", None)  # this is a setting of the brokers
    roles = {
        "produce": _produce,
        "consume": _consume,
        "work_off": _work_off,
        "request": _request,
        "pace": _pace,
        "receive": _receive,
    }
    return roles[role](access, **parameters)  # type: ignore[operator,no-any-return]


def make_topic(address: str, topic: str, replicas: int) -> None:
    """Create *topic* with one partition, if there is none."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})  # its futures need it to stay alive
    try:
        admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _producer(address: str, linger_ms: int) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": linger_ms,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
        }
    )


def _send(producer: Any, topic: str, value: bytes, failures: list[object]) -> None:
    def failed(error: object, _: object) -> None:
        failures.append(error)

    while True:
        try:
            producer.produce(topic, value, on_delivery=failed)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def _flush(producer: Any, failures: list[object]) -> None:
    if producer.flush(_TIMEOUT_S) or failures:
        raise RuntimeError(f"Kafka did not accept all messages: {failures[:1]}")


def _produce(
    access: Gate, address: str, topic: str, size: int, count: int, replicas: int = 1
) -> None:
    value, failures = bytes(size), list[object]()
    make_topic(address, topic, replicas)
    producer = _producer(address, LINGER_MS)
    _send(producer, topic, value, failures)
    _flush(producer, failures)
    access.wait()
    for number in range(count):
        _send(producer, topic, value, failures)
        if number % _POLLED_EVERY == 0:
            producer.poll(0)
    _flush(producer, failures)


def _request(
    access: Gate, address: str, topic: str, size: int, count: int, replicas: int = 1
) -> dict[str, float]:
    value, failures = bytes(size), list[object]()
    make_topic(address, topic, replicas)
    producer = _producer(address, 0)
    _send(producer, topic, value, failures)
    _flush(producer, failures)
    latencies = []
    access.wait()
    for _ in range(count):
        began = time.perf_counter()
        _send(producer, topic, value, failures)
        _flush(producer, failures)
        latencies.append(time.perf_counter() - began)
    return spread(latencies)


def _pace(access: Gate, address: str, topic: str, size: int, count: int, rate: int) -> None:
    failures: list[object] = []
    make_topic(address, topic, 1)
    producer = _producer(address, 0)
    access.wait()
    begin = time.perf_counter()
    for number in range(count):
        wait_s = begin + number / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        _send(producer, topic, stamped(size), failures)
        producer.poll(0)
    _flush(producer, failures)


def _consumer(address: str, topic: str) -> Any:
    """A consumer that has found the leader and doesn't read yet."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"bench-{topic}",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 16 * BATCH_BYTES,
            "queued.max.messages.kbytes": 256 * 1024,
        }
    )
    consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_TIMEOUT_S)
    return consumer


def _read_all(consumer: Any, topic: str) -> None:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])


def _consume(access: Gate, address: str, topic: str, size: int, count: int) -> None:
    consumer = _consumer(address, topic)
    access.wait()
    _read_all(consumer, topic)
    seen, deadline = 0, time.monotonic() + _TIMEOUT_S
    while seen < count and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=0.05):
            seen += len(message.value() or b"") == size
    consumer.close()
    if seen < count:
        raise RuntimeError(f"Kafka gave {seen} of {count} messages")


def _work_off(
    access: Gate,
    address: str,
    topic: str,
    size: int,
    count: int,
    group: str,
) -> None:
    """Consume as a share group, which Kafka has since 4.2.  Each poll acknowledges the messages of
    the poll before."""
    from confluent_kafka import ShareConsumer
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": address})
    earliest = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[earliest])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_TIMEOUT_S)
    with ShareConsumer({"bootstrap.servers": address, "group.id": group}) as consumer:
        consumer.subscribe([topic])
        access.wait()
        seen, deadline = 0, time.monotonic() + _TIMEOUT_S
        while seen < count and time.monotonic() < deadline:
            seen += sum(len(one.value() or b"") == size for one in consumer.poll(0.05))
        consumer.commit_sync(_TIMEOUT_S)
    if seen < count:
        raise RuntimeError(f"Kafka gave {seen} of {count} messages")


def _receive(access: Gate, address: str, topic: str, size: int, count: int) -> dict[str, float]:
    make_topic(address, topic, 1)
    consumer = _consumer(address, topic)
    _read_all(consumer, topic)
    consumer.poll(1.0)  # after this it waits for messages
    latencies: list[float] = []
    access.wait()
    deadline = time.monotonic() + _TIMEOUT_S
    while len(latencies) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            latencies.append(age_s(message.value()))
    consumer.close()
    return spread(latencies)
