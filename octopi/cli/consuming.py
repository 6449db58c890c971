"""Writes the messages of topics to a file: the work of `consume`.

Batches are written in a thread, so that the connection stays alive while the reader of the output
is slow.  A position is saved only after all messages before it are written: a consumer that resumes
there may see a message twice, but misses none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import attrs
import trio

from octopi import (
    Client,
    Consumer,
    DealtBatch,
    MemberFencedError,
    MessageBatch,
    MultiTopicConsumer,
    Position,
    Positions,
    QueueSubscription,
    Subscription,
)
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.message_format import for_terminal
from octopi.cli.rate_meter import RateMeter
from octopi.cli.running import Interruption
from octopi.clients.consuming.topic_selection import TopicSelection, starts_of
from octopi.environment import Disk
from octopi.errors import InvalidOptionError
from octopi.record import Message

Printer = Callable[[Sequence[Message]], bytes]
"""Formats messages for the output: a batch of a consumer, or a list."""

_WRITING_S: Final = 2.0
"""How long a batch of a subscription may be written after an interruption."""
_LEAVING_S: Final = 5.0
"""How long a member may go on after it, until its marks are confirmed and it has left."""

_T = TypeVar("_T")


async def check_start(
    client: Client, consumer: Consumer | MultiTopicConsumer, start: object
) -> None:
    """Check that *start*, if it is an offset, is not behind the end of the log that *consumer*
    reads.

    Raises:
      CommandError: if it is.
    """
    if not isinstance(start, int) or isinstance(consumer, MultiTopicConsumer):
        return
    topic = consumer.position.topic
    for partition in consumer.position.places:
        end = (await client.find_offset(topic, "latest", partition=partition)).offset
        if start > end:
            raise CommandError(
                f"--offset {start} is behind the end of {topic}/{partition}, which is {end}; on "
                "your side: start at latest, or at an offset that came with a message",
                ExitCode.REFUSED,
            )


def values_as_lines(messages: Sequence[Message]) -> bytes:
    """Each value, followed by a newline."""
    return b"\n".join(_values(messages)) + b"\n"


def values_for_terminal(messages: Sequence[Message]) -> bytes:
    """Each value on a line, with control characters escaped."""
    return b"".join([for_terminal(value) + b"\n" for value in _values(messages)])


def _values(messages: Sequence[Message]) -> list[bytes]:
    """The values of *messages*; a batch of a consumer needn't be decoded any further for them."""
    if isinstance(messages, MessageBatch):
        return messages.values()
    return [message.value for message in messages]


def one_by_one(formatter: Callable[[Message], bytes]) -> Printer:
    """A printer that formats each message with *formatter*."""
    return lambda messages: b"".join([formatter(message) for message in messages])


@attrs.frozen
class PositionFile:
    """The file that keeps a position between runs."""

    path: Path
    disk: Disk

    def load(self, topic: str | list[str]) -> Position | Positions | None:
        """The saved position, for a list of topics the saved positions; None if there is no file
        yet.

        Raises:
          CommandError: if the file does not hold that, or a position in another topic.
        """
        try:
            text = self.path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            text = "(no text)"
        try:
            if isinstance(topic, list):
                positions = Positions.parse(text)
                starts_of(positions, TopicSelection.of(topic))
                return positions
            position = Position.parse(text)
        except InvalidOptionError as error:
            raise CommandError(f"{self.path}: {error}", ExitCode.USAGE) from None
        if position.topic != topic:
            raise CommandError(
                f"{self.path} holds a position in topic {position.topic}, not in {topic}: "
                "use another file",
                ExitCode.USAGE,
            )
        return position

    async def save(self, position: Position | Positions) -> None:
        """Replace the file's content atomically and durably."""
        await self.disk.replace_file(str(self.path), f"{position}\n".encode())


@attrs.define
class Output:
    """Prints messages to the file *descriptor*, up to *count_max* of them."""

    descriptor: int
    printer: Printer
    meter: RateMeter
    count_max: int | None = None
    position_file: PositionFile | None = None
    warn: Callable[[str], None] = lambda text: None
    """Called with a text if records that were read are gone, or a topic is read no more."""
    _forks_count: int = 0
    """Number of forks that `warn` was called for."""
    _left_count: int = 0
    """Number of topics that were left and `warn` was called for."""
    _position: Position | Positions | None = None
    """The position behind the last written message."""
    _saved: Position | Positions | None = None

    @property
    def is_complete(self) -> bool:
        """Whether *count_max* messages were printed."""
        return self.count_max is not None and self.meter.messages >= self.count_max

    async def copy(
        self, consumer: Consumer | MultiTopicConsumer, save_interval_s: float = 1.0
    ) -> None:
        """Print the messages of *consumer* until it ends, *count_max* is reached, or the output is
        closed.

        Raises:
          OctopiError: whatever the consumer raises.
          OSError: if writing fails.
        """
        # Saved even without a message: the next run has to start at the same "latest".
        self._position = self._position_of(consumer)
        self.meter.start()
        try:
            save_at = trio.current_time()
            async for batch in consumer.batches():
                self._warn_of_losses(consumer)
                await self._print(batch, consumer)
                if self.is_complete:
                    break
                if trio.current_time() >= save_at:
                    await self._save()
                    save_at = trio.current_time() + save_interval_s
        except BrokenPipeError:
            pass  # the reader of the output closed it
        finally:
            self._warn_of_losses(consumer)
            with trio.CancelScope(shield=True):
                await self._save()

    async def copy_subscription(
        self, subscription: Subscription, interruption: Interruption
    ) -> None:
        """Print the messages of *subscription*, whose marks are manual, until *count_max* is
        reached, the output is closed or *interruption* comes.  What is written is marked.

        Raises:
          OctopiError: whatever the subscription raises.
          OSError: if writing fails.
        """

        async def print_and_mark(messages: list[Message]) -> None:
            wanted = self._wanted(messages)
            await self._print(wanted, None)
            try:
                subscription.mark(wanted[-1])
            except MemberFencedError as error:
                self.warn(f"{error.args[0]}: what was printed last may be printed there, too")

        await self._print_each(subscription.batches(), print_and_mark, interruption)

    async def copy_queue(self, queue: QueueSubscription, interruption: Interruption) -> None:
        """Print the messages that *queue* deals until *count_max* is reached, the output is closed
        or *interruption* comes.  What is written is acknowledged.

        Raises:
          OctopiError: whatever the queue raises.
          OSError: if writing fails.
        """

        async def print_and_acknowledge(batch: DealtBatch) -> None:
            wanted = self._wanted([one.message for one in batch])
            await self._print(wanted, None)
            if len(wanted) == len(batch):
                batch.acknowledge()
            else:
                for one in batch[: len(wanted)]:
                    one.acknowledge()

        await self._print_each(queue.batches(), print_and_acknowledge, interruption)

    async def _print_each(
        self,
        batches: AsyncIterator[_T],
        print_batch: Callable[[_T], Awaitable[None]],
        interruption: Interruption,
    ) -> None:
        """A wait for messages ends at the interruption; a write may take a moment longer."""
        interruption.grace_s = _LEAVING_S
        self.meter.start()
        with contextlib.suppress(BrokenPipeError):  # the reader of the output closed it
            while not self.is_complete:
                batch = None
                with interruption.bounds(0.0):
                    batch = await anext(batches, None)
                if batch is None:
                    break
                with interruption.bounds(_WRITING_S):
                    await print_batch(batch)

    def _wanted(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Those of *messages* that `count_max` leaves to be printed."""
        if self.count_max is None:
            return messages
        return messages[: self.count_max - self.meter.messages]

    def _position_of(self, consumer: Consumer | MultiTopicConsumer) -> Position | Positions | None:
        """The position of *consumer*; of several topics only if it is going to be saved."""
        if isinstance(consumer, MultiTopicConsumer):
            return None if self.position_file is None else consumer.positions
        return consumer.position

    def _warn_of_losses(self, consumer: Consumer | MultiTopicConsumer) -> None:
        for fork in consumer.forks[self._forks_count :]:
            self._forks_count += 1
            self.warn(str(fork.args[0]))
        if isinstance(consumer, MultiTopicConsumer):
            for one in consumer.left[self._left_count :]:
                self._left_count += 1
                self.warn(f"{one.topic} is not read: {one.why.args[0]}")

    async def _print(
        self, messages: Sequence[Message], consumer: Consumer | MultiTopicConsumer | None
    ) -> None:
        wanted = self._wanted(messages)
        data = self.printer(wanted)  # first: this decodes a batch, as a position needs it
        position = None if consumer is None else self._position_of(consumer)
        if position is not None and len(wanted) < len(messages):
            position = _behind(position, wanted[-1])

        def write() -> None:
            _write(self.descriptor, data)
            # In the thread, because the task may be cancelled after the write.
            self._position = position
            self.meter.add(len(wanted), len(data))

        await trio.to_thread.run_sync(write, abandon_on_cancel=True)

    async def _save(self) -> None:
        if (
            self.position_file is not None
            and self._position is not None
            and self._position != self._saved
        ):
            await self.position_file.save(self._position)
            self._saved = self._position


def _behind(position: Position | Positions, last: Message) -> Position | Positions:
    """*position*, but behind *last* in its log."""
    if isinstance(position, Positions):
        of_topic = _behind(position[last.topic], last)
        assert isinstance(of_topic, Position), "it is that of one topic"
        return Positions({**position, last.topic: of_topic})
    place = attrs.evolve(position.places[last.partition], offset=last.next_offset)
    return attrs.evolve(position, places={**position.places, last.partition: place})


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
