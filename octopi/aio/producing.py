"""Producers and receipts for asyncio programs."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from octopi.aio.wrapping import Wrapper, calling
from octopi.clients.producing.producer import Producer
from octopi.clients.producing.receipts import PendingReceipt, Receipt


class AsyncioPendingReceipt(Wrapper[PendingReceipt]):
    """A message that was submitted.  Await it for its `Receipt`, any number of times; see
    `octopi.PendingReceipt`."""

    __slots__ = ()

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known, so that awaiting it doesn't wait."""
        return self._inner.is_settled

    async def receipt(self) -> Receipt:
        """Wait until the outcome is known, and return the receipt.

        Raises:
          NotDeliveredError: the message is certainly not stored.
          OutcomeUnknownError: it may or may not be stored.
        """
        return await self._inner.receipt_by(self._run.told)

    def __await__(self) -> Generator[Any, Any, Receipt]:
        return self.receipt().__await__()


class AsyncioProducer(Wrapper[Producer]):
    """Sends messages; see `octopi.Producer`, whose methods these are.  Made by
    `octopi.aio.Client.producer`; use it from any number of tasks of its loop."""

    __slots__ = ()

    @property
    def acknowledged_count(self) -> int:
        """The number of messages that are known to be committed."""
        return self._inner.acknowledged_count

    async def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        expected_end: int | None = None,
    ) -> Receipt:
        """Send a message and wait until it is committed; see `octopi.Producer.send`."""
        pending = await self.submit(
            topic,
            value,
            key=key,
            headers=headers,
            timestamp=timestamp,
            partition=partition,
            expected_end=expected_end,
        )
        return await pending.receipt()

    async def submit(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        expected_end: int | None = None,
    ) -> AsyncioPendingReceipt:
        """Queue a message.  Await the returned object for the receipt, if you need it; see
        `octopi.Producer.submit`."""
        inner = self._inner
        if not inner.is_prepared(topic):
            await self._prepare(topic)
        return AsyncioPendingReceipt(
            self._run,
            inner.submit_nowait(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                expected_end=expected_end,
            ),
        )

    def submit_nowait(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
        expected_end: int | None = None,
    ) -> AsyncioPendingReceipt:
        """`submit` from synchronous code of the loop; see `octopi.Producer.submit_nowait`.

        Raises:
          trio.WouldBlock: if `submit` would wait; the message was not taken.
        """
        return AsyncioPendingReceipt(
            self._run,
            self._inner.submit_nowait(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                expected_end=expected_end,
            ),
        )

    async def submit_many(
        self,
        topic: str,
        values: list[bytes],
        *,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> None:
        """Queue many messages without keys, all with the same headers and time stamp; see
        `octopi.Producer.submit_many`."""
        inner = self._inner
        for _ in inner.taking_many(topic, values, headers, timestamp, partition):
            await self._prepare(topic)

    async def _prepare(self, topic: str) -> None:
        """Wait until a message for *topic* can be taken, and let other tasks run."""
        await asyncio.sleep(0)
        self._inner.has_let_others_run()
        while not self._inner.is_prepared(topic):
            await self._run.call(partial(self._inner.prepare, topic))

    flush = calling(Producer.flush)
