"""The schedule itself never takes the only copy of what was acknowledged."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import trio
from trio.testing import MockClock

from sim.real.ledger import Ledger
from tests.chaos.cluster import ChaosCluster
from tests.chaos.schedule import KINDS, RING_KINDS, Schedule
from tests.chaos.workload import Workload


class Cluster:
    """Three brokers and one partition; number 3 has a flipped bit in its log."""

    def __init__(self, data_dir: Path, in_sync: list[int]) -> None:
        self.in_sync = in_sync
        self.is_running = True
        self.starts = 0
        self.asked = 0
        """How often the register was asked."""
        self.when_asked: Callable[[], None] = lambda: None
        self.when_killed: Callable[[], None] = lambda: None
        self.log = data_dir / "logs/5/orders"
        self.log.mkdir(parents=True)
        checked = bytes(32) + b"value"
        head = struct.pack(">IBI", 5 + len(checked), 1, zlib.crc32(checked) ^ 1)
        (self.log / f"{0:020}.log").write_bytes(head + checked)
        self.data_dir = data_dir
        self.registers = ["register"]
        self.brokers = ["broker-3"]
        self.nodes = {"broker-3": self}
        self.ids = {"broker-3": 3}

    def kill9(self) -> None:
        self.is_running = False
        self.when_killed()

    def launch(self) -> None:
        self.starts += 1
        self.is_running = True

    def wait_ready(self, timeout_s: float) -> None:
        if not self.log.exists():  # it copies the log, and is in sync
            self.in_sync = [1, 2, 3]

    async def remake_topic(self) -> None:
        """Waits for the broker, as nothing is made on a partition that has no leader."""
        for _ in range(1000):
            if self.is_running:
                return
            await trio.sleep(0.1)
        raise AssertionError("the broker does not come back")

    async def cluster_info(self) -> SimpleNamespace:
        self.asked += 1
        self.when_asked()
        live = {1: True, 2: True, 3: self.is_running}
        return SimpleNamespace(
            brokers=[SimpleNamespace(broker=one, live=live[one]) for one in live],
            partitions=[SimpleNamespace(replicas=[1, 2, 3], in_sync=self.in_sync)],
        )


def schedule_of(cluster: Cluster) -> Schedule:
    every = cast(ChaosCluster, cluster), cast(Workload, cluster)
    return Schedule(*every, Ledger(), 1, ["damage"], lambda line: None)


async def test_a_log_with_flipped_bits_stays_while_its_broker_alone_is_in_sync(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, [3])

    def others_catch_up() -> None:
        if cluster.asked == 1000:
            assert cluster.log.exists()
            assert cluster.is_running
            cluster.in_sync = [2, 3]

    cluster.when_asked = others_catch_up
    schedule = schedule_of(cluster)
    await schedule._start_spoilt("broker-3")
    assert cluster.asked > 1000
    assert not cluster.log.exists()
    assert schedule.faults == []
    assert schedule.bounds.all_intact


async def test_a_log_with_flipped_bits_stays_when_others_fall_behind_just_before_the_kill(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, [2, 3])
    kills = 0

    def others_fall_behind() -> None:
        nonlocal kills
        kills += 1
        cluster.in_sync = [3] if kills == 1 else [2, 3]

    def others_catch_up() -> None:
        if kills == 1 and cluster.is_running:
            assert cluster.log.exists()
            cluster.in_sync = [2, 3]

    cluster.when_killed, cluster.when_asked = others_fall_behind, others_catch_up
    schedule = schedule_of(cluster)
    await schedule._start_spoilt("broker-3")
    assert kills == 2
    assert cluster.starts == 3
    assert not cluster.log.exists()


async def test_a_log_with_flipped_bits_that_no_other_broker_ever_copies_is_a_fault(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, [3])
    schedule = schedule_of(cluster)
    schedule._stopping.set()
    schedule.bounds.spoilt.add(3)
    await schedule._start_spoilt("broker-3")
    assert cluster.log.exists()
    [fault] = schedule.faults
    assert fault.startswith("broker-3 has flipped bits in ")
    assert not schedule.bounds.all_intact


async def test_a_broker_that_a_topic_waits_for_comes_back_while_the_topic_is_made_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, [3])
    await schedule_of(cluster).remake_topic(random.Random(1), ["broker-3"])
    assert cluster.starts == 1


async def test_without_a_register_a_majority_of_the_brokers_is_left_alone(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [3])
    cluster.registers = []
    cluster.brokers = [f"broker-{number}" for number in range(1, 6)]
    every = cast(ChaosCluster, cluster), cast(Workload, cluster)
    schedule = Schedule(*every, Ledger(), 1, list(KINDS), lambda line: None)
    assert {one.kind for one in schedule._faults} == set(RING_KINDS)
    assert min(one.brokers for one in schedule._faults) > 0
    randomness = random.Random(1)
    assert len(await schedule._take(randomness, 1)) == 1
    assert await schedule._take(randomness, 2) == []
    assert len(await schedule._take(randomness, 1)) == 1
    assert await schedule._take(randomness, 1) == []
