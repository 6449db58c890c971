"""Messages that are begun and not finished: what a node keeps of them is bounded over all its
connections, and others are still heard."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from trio.testing import wait_all_tasks_blocked

from octopi.environment import NonBlockingStream
from octopi.limits import (
    CONNECTIONS_MAX,
    KIB,
    MEMORY_ALLOWANCE_BYTES,
    MEMORY_BUDGET_BYTES,
    MESSAGE_BYTES_MAX,
    MIB,
)
from octopi.operating_system import SystemClock
from octopi.transport.frame_reader import BINARY, frame_head
from octopi.transport.framed_link import RECEIVE_BYTES, FramedLink
from octopi.transport.memory_budget import MemoryBudget
from octopi.transport.memory_pool import UNFINISHED, MemoryAccount, Pool
from octopi.transport.receive_budget import ReceiveBudget

MASK = b"\1\2\3\4"


class Sender(NonBlockingStream):
    """A peer whose frame has been sent as far as *sent_bytes* of its payload."""

    def __init__(self, size_bytes: int, sent_bytes: int) -> None:
        self._head = frame_head(BINARY, size_bytes, MASK)
        self._left_bytes = sent_bytes
        self._more = trio.Event()
        self.read_bytes = 0

    def send(self, size_bytes: int) -> None:
        """So much more has been sent."""
        self._left_bytes += size_bytes
        self._more.set()
        self._more = trio.Event()

    def receive_nowait(self, bytes_max: int) -> bytes | None:
        data = self._head or bytes(min(bytes_max, self._left_bytes))
        if not self._head:
            self._left_bytes -= len(data)
        self._head = b""
        self.read_bytes += len(data)
        return data or None

    def receive_into(self, place: memoryview) -> int | None:
        raise NotImplementedError

    def cut(self) -> None:
        raise NotImplementedError

    async def wait_readable(self) -> None:
        await self._more.wait()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        raise NotImplementedError

    def send_nowait(self, parts: Sequence[bytes | memoryview]) -> int:
        raise NotImplementedError

    async def wait_writable(self) -> None:
        raise NotImplementedError

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        raise NotImplementedError

    async def wait_send_all_might_not_block(self) -> None:
        raise NotImplementedError

    async def send_eof(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def listen(
    nursery: trio.Nursery, stream: Sender, account: MemoryAccount, heard: list[int] | None = None
) -> None:
    """Take what comes; sizes of messages go to *heard*."""
    link = FramedLink(stream, b"", SystemClock(), nursery, masks=None, peer="p", path="/v1/client")
    link.meter(ReceiveBudget(account))

    def take(message: bytes | memoryview) -> bool:
        if heard is not None:
            heard.append(len(message))
        return True

    nursery.start_soon(link.receive_all, take)


async def test_ten_thousand_half_sent_messages_stay_within_the_budget() -> None:
    budget = MemoryBudget()
    streams = [Sender(MESSAGE_BYTES_MAX, MIB) for _ in range(CONNECTIONS_MAX)]
    async with trio.open_nursery() as nursery:
        for number, stream in enumerate(streams):
            memory = budget.connection(f"stranger {number}", is_peer=False)
            listen(nursery, stream, memory.incoming)
        await wait_all_tasks_blocked()
        kept_bytes = sum(one.read_bytes for one in streams)
        assert 16 * MIB < kept_bytes < MEMORY_BUDGET_BYTES * 3 // 8
        assert budget.messages.held_bytes <= kept_bytes
        assert budget.messages.waiting_count > CONNECTIONS_MAX * 9 // 10
        nursery.cancel_scope.cancel()


async def test_many_connections_of_one_subject_leave_others_half_of_the_memory() -> None:
    shared = Pool(8 * MIB, allowance_bytes=MEMORY_ALLOWANCE_BYTES)
    heard: list[int] = []
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            listen(nursery, Sender(16 * MIB, MIB), MemoryAccount(shared, "crowd"))
        await wait_all_tasks_blocked()
        assert shared.used_bytes <= shared.total_bytes // 2 + RECEIVE_BYTES
        listen(nursery, Sender(MIB, MIB), MemoryAccount(shared, "somebody"), heard)
        await wait_all_tasks_blocked()
        assert heard == [MIB]
        nursery.cancel_scope.cancel()


async def test_one_large_message_at_a_time_is_read_when_all_memory_is_used() -> None:
    shared = Pool(2 * MIB, allowance_bytes=MEMORY_ALLOWANCE_BYTES, loan_bytes=17 * MIB)
    MemoryAccount(shared, "crowd").charge(UNFINISHED, 3 * MIB)
    heard: list[int] = []
    async with trio.open_nursery() as nursery:
        for number in range(10):
            stream = Sender(MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX)
            listen(nursery, stream, MemoryAccount(shared, str(number)), heard)
        await wait_all_tasks_blocked()
        assert heard == [MESSAGE_BYTES_MAX] * 10
        assert shared.used_bytes <= 3 * MIB
        assert shared.borrower is None
        nursery.cancel_scope.cancel()


async def test_small_messages_are_read_when_all_memory_is_used() -> None:
    shared = Pool(MIB, allowance_bytes=MEMORY_ALLOWANCE_BYTES)
    MemoryAccount(shared, "crowd").charge(UNFINISHED, 2 * MIB)
    heard: list[int] = []
    async with trio.open_nursery() as nursery:
        slow = Sender(400, 200)
        listen(nursery, slow, MemoryAccount(shared, "a"), heard)
        large = Sender(64 * KIB, 64 * KIB)
        listen(nursery, large, MemoryAccount(shared, "b"), heard)
        await wait_all_tasks_blocked()
        assert heard == []
        slow.send(200)
        await wait_all_tasks_blocked()
        assert heard == [400]
        assert large.read_bytes <= 2 * MEMORY_ALLOWANCE_BYTES
        nursery.cancel_scope.cancel()


async def test_a_waiting_message_is_read_when_others_release_their_memory() -> None:
    shared = Pool(MIB, allowance_bytes=MEMORY_ALLOWANCE_BYTES)
    crowd = MemoryAccount(shared, "crowd")
    crowd.charge(UNFINISHED, 2 * MIB)
    heard: list[int] = []
    async with trio.open_nursery() as nursery:
        account = MemoryAccount(shared, "a")
        listen(nursery, Sender(300 * KIB, 300 * KIB), account, heard)
        await wait_all_tasks_blocked()
        assert heard == []
        crowd.close()
        await wait_all_tasks_blocked()
        assert heard == [300 * KIB]
        assert account.held_bytes == 0
        nursery.cancel_scope.cancel()
    assert shared.held_bytes == 0


async def test_a_reader_that_is_cancelled_while_it_waits_for_memory_holds_none() -> None:
    shared = Pool(MIB, allowance_bytes=MEMORY_ALLOWANCE_BYTES)
    crowd = MemoryAccount(shared, "crowd")
    crowd.charge(UNFINISHED, 2 * MIB)
    async with trio.open_nursery() as nursery:
        account = MemoryAccount(shared, "a")
        listen(nursery, Sender(300 * KIB, 300 * KIB), account)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert shared.waiting_count == 0
    crowd.close()
    assert account.held_bytes <= 2 * MEMORY_ALLOWANCE_BYTES
