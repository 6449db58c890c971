"""Produces lines to a topic, for `produce`, `import` and `demo`.

Reading, submitting and waiting for acknowledgements happen at the same time, in memory bounded by
the producer's buffer and one piece of input.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Final, TypeAlias

import attrs
import trio

import octopi
from octopi.cli.failures import CommandError, ExitCode, explain
from octopi.cli.json_messages import Outgoing, parse_message
from octopi.cli.line_splitter import BadLineError, LineSplitter, pieces
from octopi.cli.rate_meter import RateMeter
from octopi.cli.rendering import counted
from octopi.clients.producing.batches import Batch, Stored
from octopi.clients.producing.receipts import batch_of
from octopi.errors import OctopiError, RecordError
from octopi.limits import RECORD_BYTES_MAX
from octopi.record import NO_HEADERS, STRUCTURED_BYTES_MIN

_LATE_S_MAX: Final = 0.1
_JSON_LINE_BYTES_MAX: Final = 7 * RECORD_BYTES_MAX
"""A byte is at most six bytes of JSON (``\\u0000``), and names and numbers need a few."""

Portion: TypeAlias = tuple[Iterable[bytes | Outgoing], int]
"""Some lines or messages, and how many bytes of the input they are."""


@attrs.frozen
class LineOptions:
    """How lines become messages."""

    key: bytes | None = None
    """The key of every message."""
    key_separator: bytes = b""
    """The separator after a line's key; empty: lines have no keys."""
    headers: Mapping[str, bytes] = NO_HEADERS
    """The headers of every message, unless it has one of that name itself."""
    as_json: bool = False
    """Whether a line is a JSON object."""
    partition: int | None = None
    expected_end: int | None = None
    """Where the log has to end for the first message; each further one has to lie behind the one
    before it.  None: messages are appended wherever the log ends."""
    rate: float = math.inf
    """The largest number of messages per second."""
    skip: int = 0
    """How many lines to leave out at the beginning."""
    unit: str = "line"
    """What a line is called in errors."""


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
        self._is_plain = not options.as_json and not options.key_separator
        """Whether lines are values, and all else is the same for all messages."""
        self._taken = options.skip
        """The number of lines that were taken or skipped."""
        self.end: int | None = options.expected_end
        """Where the log has to end for the next message; None: anywhere."""
        self._first_lines: dict[Batch, int] = {}
        """The first line of each batch that is not known to be stored, in their order."""

    async def produce(self, descriptor: int) -> None:
        """Read the file *descriptor* to its end, and wait until every line is acknowledged.

        Raises:
          CommandError: if a line is no message, after the lines before it are acknowledged; or if
              producing failed.  The text says how to go on.
          OSError: if reading fails.
        """
        await self.produce_portions(self._lines_of(descriptor))

    async def produce_lines(self, lines: list[bytes]) -> None:
        """Produce *lines*, which may contain newlines, and wait until they are acknowledged.

        Raises:
          CommandError: as for `produce`.
        """
        skip = self._options.skip
        check_skip(skip, len(lines), self._options.unit)

        async def portions() -> AsyncGenerator[Portion, None]:
            yield lines[skip:], sum(map(len, lines[skip:]))

        await self.produce_portions(portions())

    async def produce_portions(self, portions: AsyncGenerator[Portion, None]) -> None:
        """Produce everything in *portions*, and wait until it is acknowledged.  What is to be
        skipped is not in them.

        Raises:
          As for `produce`; and whatever *portions* raises.
        """
        self._meter.start()
        self._next_at = trio.current_time()
        try:
            try:
                async with aclosing(portions):
                    async for items, size_bytes in portions:
                        await self._submit(items, size_bytes)
            except BadLineError as error:
                await self._producer.flush()
                raise CommandError(f"{error}; {self._after_bad_line()}") from None
            await self._producer.flush()
        except CommandError:
            raise
        except OctopiError as error:
            explanation = explain(error)
            raise CommandError(
                f"{explanation.line}; {self.how_to_go_on()}", explanation.code
            ) from (error)
        self._meter.stop()

    @property
    def is_all_acknowledged(self) -> bool:
        """Whether everything is acknowledged that was taken."""
        self._forget_stored()
        return not self._first_lines

    def how_to_go_on(self) -> str:
        """What to say when this ended early."""
        self._forget_stored()
        first = next(iter(self._first_lines.values()), self._taken + 1)
        unit = self._options.unit
        go_on = f"--skip {first - 1} goes on there" if first > 1 else "begin again"
        text = f"{unit} {first:,} is the first that was not acknowledged: {go_on}"
        if first <= self._taken:
            text += f" ({unit}s from there on may be stored already, and would be stored twice)"
        if self.end is not None:
            text += f", with --expected-end {self.end} if the log still ends there"
        return text

    async def _lines_of(self, descriptor: int) -> AsyncGenerator[Portion, None]:
        options = self._options
        overhead_bytes = STRUCTURED_BYTES_MIN + len(options.key or b"")
        bound = _JSON_LINE_BYTES_MAX if options.as_json else RECORD_BYTES_MAX - overhead_bytes
        splitter = LineSplitter(bound, options.skip)
        async with aclosing(pieces(descriptor)) as source:
            async for piece in source:
                yield splitter.feed(piece), len(piece)
        yield splitter.finish(), 0
        check_skip(options.skip, splitter.count, options.unit)

    async def _submit(self, items: Iterable[bytes | Outgoing], size_bytes: int) -> None:
        topic, submit, options = self._topic, self._producer.submit, self._options
        partition, first_lines = options.partition, self._first_lines
        has_rate, is_plain = options.rate != math.inf, self._is_plain
        before = self._taken
        newest: Batch | None = None
        for item in items:
            if has_rate:
                await self._wait_for_turn()
            if is_plain and isinstance(item, bytes):
                value, key, headers, timestamp = item, options.key, options.headers, None
            else:
                value, key, headers, timestamp = self._message(item)
            if self.end is not None:
                receipt = await self._producer.send(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    timestamp=timestamp,
                    partition=partition,
                    expected_end=self.end,
                )
                self.end = receipt.next_offset
                self._taken += 1
                continue
            try:
                pending = await submit(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    timestamp=timestamp,
                    partition=partition,
                )
            except RecordError as error:
                raise self._bad_line(error) from None
            self._taken += 1
            batch = batch_of(pending)
            if batch is not newest:
                newest = batch
                first_lines.setdefault(batch, self._taken)
        self._meter.add(self._taken - before, size_bytes)
        if self._forget_stored():
            await self._producer.flush()  # which raises the failure

    def _message(self, item: bytes | Outgoing) -> Outgoing:
        """*item* as a message.

        Raises:
          BadLineError: if it is none.
        """
        options = self._options
        if isinstance(item, Outgoing):
            return item
        if options.as_json:
            try:
                message = parse_message(item)
            except ValueError as error:
                raise self._bad_line(error) from None
            if not options.headers:
                return message
            return message._replace(headers={**options.headers, **message.headers})
        before, found, after = item.partition(options.key_separator)
        key, value = (before, after) if found else (None, item)
        return Outgoing(value, key, options.headers)

    def _bad_line(self, why: Exception) -> BadLineError:
        return BadLineError(f"{self._options.unit} {self._taken + 1:,} is no message: {why}")

    def _after_bad_line(self) -> str:
        count = self._taken - self._options.skip
        before = f"{counted(count, 'message')} before it {'was' if count == 1 else 'were'}"
        unit = self._options.unit
        return (
            f"the {before} produced: correct it and go on with --skip "
            f"{self._taken}, or leave this {unit} out with --skip {self._taken + 1}"
        )

    def _forget_stored(self) -> bool:
        """Forget batches that are stored; return whether another one has failed."""
        first_lines = self._first_lines
        for batch in [one for one in first_lines if one.moved is not None]:
            # The topic got other partitions: none of its lines comes before its first one.
            line = first_lines.pop(batch)
            for to in batch.moved or []:
                first_lines[to.batch] = min(line, first_lines.get(to.batch, line))
            self._first_lines = first_lines = dict(
                sorted(first_lines.items(), key=lambda pair: pair[1])
            )
        for batch in [one for one in first_lines if isinstance(one.outcome, Stored)]:
            del first_lines[batch]
        return any(batch.outcome is not None for batch in first_lines)

    async def _wait_for_turn(self) -> None:
        now = trio.current_time()
        # The pace makes up for a sleep that was a little too long, but not for a long pause.
        self._next_at = max(self._next_at + 1 / self._options.rate, now - _LATE_S_MAX)
        if self._next_at > now:
            await trio.sleep_until(self._next_at)


def check_skip(skip: int, count: int, unit: str) -> None:
    """Check that an input of *count* lines had the *skip* ones that were left out.

    Raises:
      CommandError: if it had not.
    """
    if skip > count:
        raise CommandError(
            f"--skip {skip}: the input has only {counted(count, unit)}, and nothing was produced",
            ExitCode.USAGE,
        )
