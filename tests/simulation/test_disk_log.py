"""The real log on a simulated disk: the machine stops at every edge of every call, in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from octopi.identifiers import Offset
from octopi.record import scan, whole_records_end
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.faults import DiskFault, Tear
from octopi.simulation.disk.image import Fate
from octopi.storage.log_options import LogOptions
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.verification import Finding, Kind, verify_log
from tests.storage.building import DIRECTORY, NOW_MS, append, batch, open_log, read_all, recover_log

OPTIONS = LogOptions(segment_bytes_max=8_000, retention_bytes=6_000)


class Stopped(BaseException):
    """The machine has stopped."""


Stop = Callable[[SimulatedDisk], None]


class Machine:
    """Stops at the edge with a given number."""

    def __init__(self, stop_at: int, stop: Stop) -> None:
        self.disk = SimulatedDisk()
        self.disk.sync_s = 0.0
        self.disk.attach(lambda *_: None).make_directory("/data")
        self.disk.settle()
        self.edges = 0
        self.stopped_at = ""
        self._stop_at = stop_at
        self._stop = stop

    def effect(self, operation: str, edge: str, path: str) -> None:
        if self.edges == self._stop_at:
            self.stopped_at = f"{operation} {edge} {path}"
            self._stop(self.disk)
        if self.stopped_at:
            raise Stopped
        self.edges += 1


class Life:
    """What the user of a log does, and knows."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.data = bytearray()
        """What was appended, from offset 0."""
        self.attempted = b""
        """What is being appended."""
        self.flushed_end = 0
        """As a careful user stores it: put back before a truncation."""
        self.cut: list[bytes] = []
        """The whole content before each truncation since the last flush."""
        self.start_max = 0

    async def live(self) -> None:
        disk = self.machine.disk.attach(self.machine.effect)
        log = open_log(disk, OPTIONS)
        for number in range(8):
            self.append(log, batch(bytes([number]) * 1_500, b"w" * number, sequence=number))
            if number in {1, 4}:
                await self.flush(log)
        self.truncate(log, log.find_last(5, log.end))
        for number in range(8, 14):
            self.append(log, batch(bytes([number]) * 1_500, sequence=number))
        await self.flush(log)
        self.start_max = log.end
        log.apply_retention(NOW_MS, below=log.end)
        self.append(log, batch(b"last"))
        await self.flush(log)
        log.close()

    def append(self, log: SegmentedLog, data: bytes) -> None:
        self.attempted = data
        log.append(data, scan(data), NOW_MS)
        self.data += data
        self.attempted = b""

    async def flush(self, log: SegmentedLog) -> None:
        end = await log.flush()
        assert end == len(self.data)
        self.flushed_end = end
        self.cut.clear()

    def truncate(self, log: SegmentedLog, offset: Offset) -> None:
        self.flushed_end = min(self.flushed_end, offset)
        self.cut.append(bytes(self.data))
        del self.data[offset:]
        log.truncate(offset)

    def check(self) -> None:
        """Open the log again, twice: nothing promised is missing, and the rest is a beginning
        of what was written, and reported if it was cut."""
        disk = self.machine.disk.attach(lambda *_: None)
        for finding in verify_log(disk, DIRECTORY, Offset(self.flushed_end)):
            assert not isinstance(finding, Finding) or finding.kind is not Kind.DAMAGE
        files = self.machine.disk.files(DIRECTORY)
        there = sum(len(disk.read_file(path)) for path in files if path.endswith(".log"))
        log, recovery = recover_log(disk, OPTIONS, recovery_point=self.flushed_end)
        assert log.fault is None
        assert log.start <= self.start_max
        assert log.end >= self.flushed_end
        found = read_all(log)
        possible = [bytes(self.data + self.attempted), *self.cut]
        assert any(one[log.start :].startswith(found) for one in possible)
        assert there == len(found) + recovery.cut_bytes
        assert recovery.why or not recovery.cut_bytes
        log.close()
        again, recovery = recover_log(disk, OPTIONS, recovery_point=self.flushed_end)
        assert (recovery.cut_bytes, recovery.why) == (0, "")
        assert read_all(again) == found
        append(again, batch(b"goes on"))
        assert whole_records_end(read_all(again)) == len(found) + len(batch(b"goes on"))
        again.close()


def every_edge(stop: Stop) -> Iterator[Machine]:
    number = 0
    while True:
        machine = Machine(number, stop)
        yield machine
        if not machine.stopped_at:
            return
        number += 1


@pytest.mark.parametrize("fate", Fate)
async def test_a_log_survives_a_power_failure_at_every_edge(fate: Fate) -> None:
    randomness = Random(fate.value)
    edges = 0
    for machine in every_edge(lambda disk: disk.lose_power(randomness, [fate])):
        await live_and_check(machine)
        edges += 1
    assert edges > 100


async def test_a_log_survives_mixed_power_failures_at_every_edge() -> None:
    randomness = Random(1)
    for _ in range(3):
        for machine in every_edge(lambda disk: disk.lose_power(randomness)):
            await live_and_check(machine)


@pytest.mark.slow
async def test_a_log_survives_power_failures_at_every_edge_of_its_recovery() -> None:
    randomness = Random(1)
    recoveries = edges = 0
    for machine in every_edge(lambda disk: disk.lose_power(randomness)):
        life = await live(machine)
        left = machine.disk.snapshot()
        for second in every_edge(lambda disk: disk.lose_power(randomness)):
            second.disk.restore(left)
            life.machine = second
            with suppress(Stopped):
                disk = second.disk.attach(second.effect)
                log, recovery = recover_log(disk, OPTIONS, recovery_point=life.flushed_end)
                await log.flush()
                log.close()
                recoveries += bool(recovery.cut_bytes)
            life.check()
            edges += 1
    assert recoveries > 10
    assert edges > 1_000


async def test_a_log_survives_the_end_of_its_process_at_every_edge() -> None:
    for machine in every_edge(lambda disk: disk.end_life()):
        machine.disk.inject(DiskFault("append", Tear(0.3), ".log", times=1_000))
        life = await live_and_check(machine)
        log = open_log(machine.disk.attach(lambda *_: None), OPTIONS)
        assert log.end >= len(life.data)


async def live(machine: Machine) -> Life:
    """A life that ends at the machine's edge, or well."""
    life = Life(machine)
    with suppress(Stopped):
        await life.live()
    return life


async def live_and_check(machine: Machine) -> Life:
    life = await live(machine)
    try:
        life.check()
    except BaseException as error:
        error.add_note(f"stopped at {machine.stopped_at}")
        raise
    return life
