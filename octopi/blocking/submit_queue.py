"""Takes submitted messages to the thread of Trio, many at a time.

The program's threads queue messages here; one task takes whatever there is when it has its turn.
So the more messages there are, the fewer changes of threads each of them costs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import attrs

from octopi.blocking.trio_thread import TrioThread
from octopi.clients.news import News
from octopi.clients.producing.producer import Producer
from octopi.clients.producing.receipts import PendingReceipt
from octopi.errors import ClosedError, NotDeliveredError, OctopiError
from octopi.limits import KIB, MIB

QUEUE_BYTES_MAX: Final = 4 * MIB
"""How many bytes wait to be taken to the thread of Trio, before a thread has to wait."""

_MESSAGE_BYTES: Final = KIB
"""What a message counts beside its value."""


@attrs.define(eq=False)
class Submission:
    """One message on its way to the producer."""

    topic: str
    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes] | None
    timestamp: datetime | None
    partition: int | None
    expected_end: int | None = None
    pending: PendingReceipt | None = None
    """What the producer gave; None: it has not taken the message yet."""
    error: OctopiError | None = None
    """Why the producer did not take it."""
    is_error_told: bool = False

    @property
    def counted_bytes(self) -> int:
        """What it counts in the queue."""
        return len(self.value) + _MESSAGE_BYTES


class SubmitQueue:
    """The submitted messages of one producer that it has not taken."""

    def __init__(self, thread: TrioThread, producer: Producer) -> None:
        self._thread = thread
        self._producer = producer
        self._waiting: deque[Submission] = deque()
        self._putting = threading.Lock()
        self._put_bytes = self._taken_bytes = 0
        self._is_awake = False
        """Whether the task was told that there is something."""
        self._work = News()
        self._changed = News()
        """Told when messages were taken."""
        self._failed: deque[Submission] = deque(maxlen=1)
        """The first one that wasn't taken, and whose program doesn't know."""
        self._is_closed = False

    # --- in the program's threads ------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the producer has all messages."""
        return not self._waiting

    @property
    def is_full(self) -> bool:
        """Whether `put` would wait."""
        return self._put_bytes - self._taken_bytes >= QUEUE_BYTES_MAX

    def put(self, submission: Submission) -> None:
        """Queue a message; wait while there are too many."""
        while self.is_full:
            self._thread.call(self._until_half_full)
        with self._putting:
            self._put_bytes += submission.counted_bytes
            self._waiting.append(submission)
        if not self._is_awake:
            self._is_awake = True
            self._thread.post(self._work.tell)

    # --- in the thread of Trio ---------------------------------------------------------

    async def run(self) -> None:
        """Take messages until cancelled."""
        while True:
            while self._waiting:
                await self._prepare(self._waiting[0])
                self._take_prepared()
                if self._is_closed:
                    return
                self._changed.tell()
            self._is_awake = False
            if not self._waiting:
                await self._work.wait()

    async def _prepare(self, first: Submission) -> None:
        """Wait until the producer takes *first*, or note why it doesn't."""
        producer = self._producer
        try:
            if not producer.lent.is_settled:
                await producer.lent.settled()
            while not producer.is_prepared(first.topic):
                await producer.prepare(first.topic)
        except OctopiError as error:
            self._fail(first, error)

    def _take_prepared(self) -> None:
        """Take messages as long as the producer does so without waiting."""
        producer, waiting = self._producer, self._waiting
        while waiting:
            one = waiting[0]
            if one.error is None:
                if not producer.is_prepared(one.topic):
                    return
                try:
                    one.pending = producer.submit_nowait(
                        one.topic,
                        one.value,
                        key=one.key,
                        headers=one.headers,
                        timestamp=one.timestamp,
                        partition=one.partition,
                        expected_end=one.expected_end,
                    )
                except OctopiError as error:
                    self._fail(one, error)
            # Only now, so that each message is always here or in the producer's buffer.
            waiting.popleft()
            self._taken_bytes += one.counted_bytes

    def _fail(self, submission: Submission, error: OctopiError) -> None:
        submission.error = error
        if not self._failed:
            self._failed.append(submission)

    async def _until_half_full(self) -> None:
        while self._put_bytes - self._taken_bytes > QUEUE_BYTES_MAX // 2 and not self._is_closed:
            await self._changed.wait()

    async def drained(self) -> None:
        """Return when the producer has what was submitted before.

        Raises:
          ClosedError: if the producer was closed and has it not.
        """
        await self._until(lambda: not self._waiting)
        if not self._producer.lent.is_settled:
            await self._producer.lent.settled()

    async def taken(self, submission: Submission) -> None:
        """Return when the producer has taken *submission*, or hasn't.

        Raises:
          ClosedError: if it was queued when the producer was closed already.
        """
        await self._until(lambda: submission.pending is not None or submission.error is not None)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            if self._is_closed:
                raise ClosedError("the producer was closed")
            self._work.tell()  # a thread that was interrupted in `put` has not
            await self._changed.wait()

    def report(self) -> None:
        """Raise why a message was not taken, if the program doesn't know that.

        Raises:
          OctopiError: the first reason.
        """
        failed = list(self._failed)
        self._failed.clear()
        for one in failed:
            if one.error is not None and not one.is_error_told:
                raise one.error

    def close(self) -> None:
        """Take nothing more."""
        self._is_closed = True
        while self._waiting:
            self._fail(self._waiting.popleft(), NotDeliveredError("the producer was closed"))
        self._failed.clear()
        self._changed.tell()
