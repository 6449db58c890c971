"""Leaders die or hang while a blocking program sends to them one by one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import octopi
import octopi.blocking
from harness.processes import NodeProcess, node_processes

pytestmark = pytest.mark.process

COUNT = 1500


@contextmanager
def cluster(directory: Path) -> Iterator[tuple[str, dict[int, NodeProcess]]]:
    """A register's address, and three brokers."""
    with node_processes(directory) as nodes:
        register = nodes.register()
        yield register.url, {n: nodes.broker(register, f"broker-{n}") for n in (1, 2, 3)}


def leader_of(client: octopi.blocking.Client, topic: str) -> int:
    leader = client.describe_topic(topic).partitions[0].leader
    assert leader is not None
    return int(leader)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_leader_that_goes_costs_neither_a_message_nor_a_repeat(tmp_path: Path, end: str) -> None:
    with cluster(tmp_path) as (url, brokers), octopi.blocking.connect(url) as client:
        client.create_topic("orders", min_insync=1)
        seen: list[octopi.Message] = []
        receipts: list[octopi.Receipt] = []

        def consume() -> None:
            with client.consumer("orders", start="earliest") as consumer:
                for message in consumer:
                    seen.append(message)
                    if len(seen) == COUNT:
                        return

        consuming = threading.Thread(target=consume)
        consuming.start()
        with client.producer() as producer:
            for number in range(COUNT):
                if number == COUNT // 3:
                    broker = brokers[leader_of(client, "orders")]
                    threading.Timer(0.02, broker.signal, [GONE[end]]).start()
                receipts.append(producer.send("orders", b"%d" % number))
            assert producer.acknowledged_count == COUNT
            direct = producer._direct.acknowledged_count
            while producer._direct.acknowledged_count == direct:  # until it is direct again
                producer.send("orders", b"more")
        consuming.join()
        assert [one.value for one in seen] == [b"%d" % n for n in range(COUNT)]
        assert [one.offset for one in seen] == [one.offset for one in receipts]


GONE = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def test_leaders_that_are_killed_again_and_again_lose_and_double_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path) as (url, brokers), octopi.blocking.connect(url) as client:
        client.create_topic("orders")
        with client.producer() as producer:
            number = 0
            for _ in range(4):
                broker = brokers[leader_of(client, "orders")]
                killing = threading.Timer(0.05, broker.kill9)
                killing.start()
                for _ in range(400):
                    producer.send("orders", b"%d" % number)
                    number += 1
                killing.join()
                broker.restart()
        with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            assert [int(one.value) for one in consumer] == list(range(number))


def test_a_log_whose_only_broker_is_away_fails_at_the_delivery_timeout(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        with (
            octopi.blocking.connect(register.url) as client,
            client.producer(delivery_timeout_s=1) as producer,
        ):
            producer.send("alone", b"0")
            broker.signal(signal.SIGSTOP)
            with pytest.raises(octopi.OutcomeUnknownError):
                producer.send("alone", b"1")
            broker.signal(signal.SIGCONT)
            producer.send("alone", b"2")
