"""Produces lines to a topic, for `produce` and `demo`.

Reading, submitting and waiting for acknowledgements happen at the same time, in memory bounded by
the producer's buffer and one piece of input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import aclosing
from typing import Final

import attrs
import trio

import octopi
from octopi.cli.failures import CommandError
from octopi.cli.line_splitter import LineSplitter, LineTooLongError, pieces
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted
from octopi.limits import RECORD_BYTES_MAX
from octopi.record import STRUCTURED_BYTES_MIN

_LATE_S_MAX: Final = 0.1


@attrs.frozen
class LineOptions:
    """How lines become messages."""

    key: bytes | None = None
    """The key of every message."""
    key_separator: bytes = b""
    """The separator after a line's key; empty: lines have no keys."""
    partition: int | None = None
    rate: float = math.inf
    """The largest number of messages per second."""


class LineProducer:
    """Produces the lines of one input to *topic*."""

    def __init__(
        self, producer: octopi.Producer, topic: str, options: LineOptions, meter: RateMeter
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._options = options
        self._meter = meter
        self._next_at = 0.0

    async def produce(self, descriptor: int) -> None:
        """Read the file *descriptor* to its end, and wait until every line is acknowledged.

        Raises:
          CommandError: if a line is too long; the lines before it are acknowledged.
          OctopiError: any error of producing.
          OSError: if reading fails.
        """
        overhead_bytes = STRUCTURED_BYTES_MIN + len(self._options.key or b"")
        splitter = LineSplitter(RECORD_BYTES_MAX - overhead_bytes)
        self._meter.start()
        self._next_at = trio.current_time()
        try:
            async with aclosing(pieces(descriptor)) as source:
                async for piece in source:
                    await self._submit(splitter.feed(piece), len(piece))
            await self._submit(splitter.finish(), 0)
        except LineTooLongError as error:
            await self._producer.flush()
            before = counted(splitter.count, "message")
            raise CommandError(f"{error}; the {before} before it were produced") from None
        await self._producer.flush()
        self._meter.stop()

    async def _submit(self, lines: Iterable[bytes], piece_bytes: int) -> None:
        topic, submit, options = self._topic, self._producer.submit, self._options
        key, separator, partition = options.key, options.key_separator, options.partition
        count = 0
        for line in lines:
            if options.rate != math.inf:
                await self._wait_for_turn()
            if separator:
                before, found, after = line.partition(separator)
                line_key, value = (before, after) if found else (None, line)
                await submit(topic, value, key=line_key, partition=partition)
            else:
                await submit(topic, line, key=key, partition=partition)
            count += 1
        self._meter.add(count, piece_bytes)

    async def _wait_for_turn(self) -> None:
        now = trio.current_time()
        # The pace makes up for a sleep that was a little too long, but not for a long pause.
        self._next_at = max(self._next_at + 1 / self._options.rate, now - _LATE_S_MAX)
        if self._next_at > now:
            await trio.sleep_until(self._next_at)
