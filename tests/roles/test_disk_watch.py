"""A broker checks its disk once for all of its logs, and logs little about it."""

import errno
import logging
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from octopi.environment import DiskSpace, Environment
from octopi.errors import LogReadOnlyError
from octopi.limits import DISK_ROOM_BYTES_MIN, STATUS_INTERVAL_S
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.roles.broker.disk_watch import DiskWatch
from octopi.roles.broker.status_report import StatusReport
from octopi.wire.messages import BrokerStatus, ReplicaTrouble
from tests.kit.cluster import system_environment
from tests.kit.disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("data")
    return disk


@pytest.fixture
def watch(disk: MemoryDisk, nursery: trio.Nursery) -> DiskWatch:
    here = system_environment(nursery)
    return DiskWatch(Environment(SystemClock(), here.net, disk, SystemRandomness()), "data")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def test_a_full_disk_is_logged_once_when_it_fills_and_once_when_it_has_space(
    disk: MemoryDisk,
    watch: DiskWatch,
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    nursery.start_soon(watch.run)
    disk.capacity_bytes = DISK_ROOM_BYTES_MIN // 2
    for _ in range(60):
        watch.suspect()
        await trio.sleep(0.1)
    assert "takes nothing: No space left on device" in watch.trouble
    assert f"{DISK_ROOM_BYTES_MIN // 2} of {DISK_ROOM_BYTES_MIN // 2} bytes are free" in (
        watch.trouble
    )
    disk.capacity_bytes = None
    await trio.sleep(2)
    assert watch.trouble == ""
    assert said(caplog) == ["disk full", "disk has space again"]
    assert not disk.files("data")


async def test_a_failed_write_does_not_make_a_disk_with_room_count_as_full(
    disk: MemoryDisk,
    watch: DiskWatch,
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    nursery.start_soon(watch.run)
    disk.capacity_bytes = 2 * DISK_ROOM_BYTES_MIN
    before = len(disk.calls)
    for _ in range(100):
        watch.suspect()
        await trio.sleep(0.01)
    assert watch.trouble == ""
    assert said(caplog) == []
    assert disk.calls[before:].count("replace_file") <= 3


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
async def test_a_disk_fault_that_the_system_does_not_tell_is_found_by_writing(
    disk: MemoryDisk,
    watch: DiskWatch,
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    error_number: int,
) -> None:
    nursery.start_soon(watch.run)
    disk.fail(error_number, "replace_file", times=3)
    watch.suspect()
    await trio.sleep(0.1)
    assert watch.trouble
    await trio.sleep(3)
    assert watch.trouble == ""


async def test_a_disk_that_fails_for_many_logs_is_logged_seldom(
    watch: DiskWatch, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        for _ in range(50):
            watch.failed(LogReadOnlyError("Input/output error"))
        await trio.sleep(11)
    assert said(caplog) == ["disk failed"] * 3


def news(report: StatusReport, now: float, **told: object) -> BrokerStatus | None:
    usual: dict[str, object] = {"disk_trouble": "", "room": DiskSpace(5, 10), "troubles": {}}
    return report.news(now, **(usual | told))


def test_the_register_is_told_of_disk_changes_and_now_and_then_of_free_space() -> None:
    report = StatusReport()
    assert news(report, 0.0) == BrokerStatus("", 5, 10, [])
    assert news(report, 0.1) is None
    assert news(report, 0.2, room=DiskSpace(4, 10)) is None
    told = news(report, STATUS_INTERVAL_S, room=DiskSpace(4, 10))
    assert told == BrokerStatus("", 4, 10, [])
    now = STATUS_INTERVAL_S + 0.1
    told = news(report, now, disk_trouble="full", room=DiskSpace(0, 10))
    assert told == BrokerStatus("full", 0, 10, [])
    assert news(report, now, disk_trouble="still full", room=DiskSpace(0, 10)) is None
    told = news(report, now, room=DiskSpace(0, 10), troubles={3: "broken"})
    assert told == BrokerStatus("", 0, 10, [ReplicaTrouble(3, "broken")])
    told = news(report, now, room=DiskSpace(0, 10))
    assert told == BrokerStatus("", 0, 10, [ReplicaTrouble(3, "")])


def pages(report: StatusReport, troubles: dict[int, str]) -> Iterator[int]:
    while told := report.news(0.0, "", None, troubles):
        yield len(told.replicas)


def test_many_replicas_are_reported_in_pages() -> None:
    assert list(pages(StatusReport(), dict.fromkeys(range(2_500), "broken"))) == [1000, 1000, 500]
