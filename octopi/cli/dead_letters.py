"""The dead letters of a queue: which ones wait, and sending them again, or dropping them.

They are messages of a topic of their own.  How far they are dealt with is the mark of an exclusive
subscription to that topic, `REPLAY`.  So replaying goes on where it ended, also after a crash, and
two can't replay at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs

from octopi import (
    Client,
    Message,
    Offset,
    PartitionId,
    Place,
    Position,
    TopicId,
    TopicName,
    UnknownSubscriptionError,
)
from octopi.cli.message_format import text_or_base64
from octopi.clients.subscribing.subscription_options import dead_letter_topic
from octopi.errors import UnknownTopicError

REPLAY: Final = "replay"
"""The subscription to a topic of dead letters whose marks say which ones are dealt with."""
_OURS: Final = "octopi-"
"""Headers that begin so say what happened to the message; all others are its own."""


@attrs.frozen
class WaitingLetters:
    """The dead letters that are neither replayed nor dropped, as they were at one moment."""

    topic: str
    """Where they are."""
    spans: Mapping[PartitionId, tuple[Offset, Offset]]
    """Begin and end of those in each log."""
    position: Position
    """Of the begins."""

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(end - begin for begin, end in self.spans.values())


def as_fields(message: Message) -> dict[str, Any]:
    """What a dead letter says, for JSON."""
    fields: dict[str, Any] = {
        "partition": message.partition,
        "offset": message.offset,
        "origin": header(message, "origin"),
        "attempts": header(message, "attempts"),
        "reason": header(message, "reason"),
        "timestamp_ms": message.timestamp_ms,
    }
    fields.update(text_or_base64("key", message.key))
    fields.update(text_or_base64("value", message.value))
    return fields


def header(message: Message, name: str) -> str:
    """One of the headers that say what happened to the message; empty: it isn't there."""
    return message.headers.get(_OURS + name, b"").decode(errors="replace")


async def waiting_letters(
    client: Client, topic: str, name: str, *, from_the_first: bool
) -> WaitingLetters:
    """The dead letters of the queue *name* of *topic* that wait now; *from_the_first*: all that are
    there, dealt with or not.

    Raises:
      UnknownTopicError: if there is no topic for them.
    """
    where = dead_letter_topic(topic, name)
    try:
        info = await client.describe_topic(where)
    except UnknownTopicError:
        raise UnknownTopicError(
            f"there is no topic {where}, so {name} of {topic} has no dead letters: either it is "
            "no queue, or its dead letters were deleted"
        ) from None
    marks: dict[int, int] = {}
    if not from_the_first:
        try:
            status = await client.admin.describe_subscription(where, REPLAY)
        except UnknownSubscriptionError:
            pass  # none was replayed or dropped yet
        else:
            marks = {one.partition: one.mark for one in status.logs}
    spans: dict[PartitionId, tuple[Offset, Offset]] = {}
    for place in info.partitions:
        found = await client.find_offset(where, "latest", partition=place.partition)
        begin = max(marks.get(place.partition, 0), found.log_start)
        spans[PartitionId(place.partition)] = (Offset(begin), found.offset)
    begins = {one: Place(begin) for one, (begin, _) in spans.items()}
    return WaitingLetters(
        where, spans, Position(TopicName(info.topic), TopicId(info.topic_id), begins)
    )


async def read_letters(client: Client, waiting: WaitingLetters, count_max: int) -> list[Message]:
    """The first *count_max* of them, by partition and offset."""
    letters: list[Message] = []
    if not waiting.size_bytes:
        return letters
    async with client.consumer(
        waiting.topic, start=waiting.position, stop_at_end=True, on_gap="skip"
    ) as consumer:
        async for letter in consumer:
            letters.append(letter)
            if len(letters) == count_max:
                break
    return sorted(letters, key=lambda one: (one.partition, one.offset))


async def deal_with_letters(
    client: Client,
    waiting: WaitingLetters,
    count_max: int | None,
    deal_with: Callable[[list[Message]], Awaitable[None]],
) -> int:
    """Give *deal_with* the dead letters that wait, in lists, and remember each list when it is
    done; at most *count_max* letters.

    Returns: how many.

    Raises:
      SubscriptionBusyError: if another one does this now.
    """
    count = 0
    if not waiting.size_bytes:
        return count
    async with client.subscription(
        waiting.topic, REPLAY, mark="manual", on_gap="skip", expires=None
    ) as subscription:
        # Another one may have dealt with them meanwhile.
        status = await client.admin.describe_subscription(waiting.topic, REPLAY)
        left = {
            one.partition
            for one in status.logs
            if one.mark < waiting.spans.get(one.partition, (0, 0))[1]
        }
        if not left:
            return count
        async for batch in subscription.batches():
            partition = batch[0].partition
            end = waiting.spans.get(partition, (Offset(0), Offset(0)))[1]
            wanted = [one for one in batch if one.offset < end]
            if count_max is not None:
                wanted = wanted[: count_max - count]
            if wanted:
                await deal_with(wanted)
                subscription.mark(wanted[-1])
                count += len(wanted)
            if len(wanted) < len(batch) or batch[-1].next_offset >= end:
                left.discard(partition)
            if not left or count == count_max:
                break
    return count


async def send_again(client: Client, topic: str, letters: list[Message]) -> None:
    """Send the messages that became *letters* to *topic*, each to its own partition, and wait until
    they are acknowledged.

    Raises:
      OctopiError: if one isn't.
    """
    async with client.producer(create_topics=False) as producer:
        for letter in letters:
            headers = {
                name: value for name, value in letter.headers.items() if not name.startswith(_OURS)
            }
            await producer.submit(
                topic, letter.value, key=letter.key, headers=headers, partition=letter.partition
            )
        await producer.flush()
