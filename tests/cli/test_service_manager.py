"""What a node tells systemd: sd_notify(3)."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from octopi.cli.service_manager import ServiceManager, with_service_manager

PID = 4242


@pytest.fixture
def told(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.setblocking(False)
        yield receiver


def messages(told: socket.socket) -> list[str]:
    """What came until now."""
    came = []
    while True:
        try:
            came.append(told.recv(4096).decode())
        except BlockingIOError:
            return came


@asynccontextmanager
async def running(manager: ServiceManager) -> AsyncIterator[ServiceManager]:
    """Tells *manager* what the block says, until its end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run, trio.Event())
        yield manager
        nursery.cancel_scope.cancel()


async def test_a_node_says_when_it_is_ready_and_when_it_stops(
    told: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    stop, announced = trio.Event(), list[str]()

    async def node(ready: object) -> None:
        assert messages(told) == []
        assert callable(ready)
        ready("ws://a:1\nREADY=0")
        await wait_all_tasks_blocked()
        assert messages(told) == ["READY=1\nSTATUS=broker at ws://a:1\\nREADY=0"]
        stop.set()
        await wait_all_tasks_blocked()
        assert messages(told) == ["STOPPING=1\nSTATUS=stopping"]

    await with_service_manager(node, announced.append, "broker", stop)
    assert announced == ["ws://a:1\nREADY=0"]


async def test_a_watchdog_is_pinged_three_times_as_often_as_it_wants(
    told: socket.socket, tmp_path: Path, autojump_clock: MockClock
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
    manager = ServiceManager.of({**environ, "WATCHDOG_PID": str(PID)}, PID)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.run, stop)
        await trio.sleep(25)
        assert messages(told) == ["WATCHDOG=1"] * 3
        stop.set()  # it is still watched while it stops
        await trio.sleep(10)
        assert messages(told) == ["STOPPING=1\nSTATUS=stopping", "WATCHDOG=1"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "changes",
    [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": ""}, {"WATCHDOG_USEC": "often"}],
    ids=["of another process", "none", "nonsense"],
)
async def test_a_watchdog_that_is_not_of_this_process_is_not_pinged(
    changes: dict[str, str], told: socket.socket, tmp_path: Path, autojump_clock: MockClock
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
    manager = ServiceManager.of(environ | changes, PID)
    with trio.move_on_after(100):
        await manager.run(trio.Event())
    assert messages(told) == []


async def test_a_socket_in_the_abstract_namespace_is_told() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")  # Linux picks an abstract address
        name = receiver.getsockname().removeprefix(b"\0").decode()
        receiver.setblocking(False)
        async with running(ServiceManager.of({"NOTIFY_SOCKET": f"@{name}"}, PID)) as manager:
            manager.ready("register")
            await wait_all_tasks_blocked()
        assert messages(receiver) == ["READY=1\nSTATUS=register"]


async def test_a_manager_that_is_busy_is_told_later(told: socket.socket, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others:
        others.setblocking(False)
        with suppress(BlockingIOError):
            for _ in range(10_000):
                others.sendto(b"STATUS=of others", address)
            pytest.fail("there is room for everything")
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000000"}
    async with running(ServiceManager.of(environ, PID)) as manager:
        manager.ready("register")
        await wait_all_tasks_blocked()
        assert set(messages(told)) == {"STATUS=of others"}
        heard: list[str] = []
        with trio.fail_after(5):
            while len(heard) < 2:
                await trio.lowlevel.wait_readable(told)
                heard += messages(told)
        assert sorted(heard) == ["READY=1\nSTATUS=register", "WATCHDOG=1"]


async def test_without_a_manager_nothing_is_sent_and_one_that_is_gone_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await ServiceManager.of({}, PID).run(trio.Event())
        assert caplog.messages == []
        await ServiceManager.of({"NOTIFY_SOCKET": str(tmp_path / "gone")}, PID).run(trio.Event())
    assert caplog.messages == ["the service manager can't be told"]
