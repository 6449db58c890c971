"""The change of one producer to a later generation of a topic (`octopi.coordination.generations`).

1. The topic is described with a later generation, and the producer's route is dropped: messages
   wait in `Producer.prepare`.
2. Each of the senders settles what it has sent to its log, and keeps the rest.
3. When all have, what is left goes to the logs that its keys choose now, oldest first, and so do
   messages from then on.

Without 2 a message may be stored in both logs, and a key's messages come in another order.
"""

from __future__ import annotations

from collections.abc import Callable

from octopi.clients.leader_lookup import generation_of
from octopi.clients.news import News
from octopi.clients.producing.batches import Batch, MovedMessage
from octopi.clients.producing.log_sender import LogSender
from octopi.clients.producing.topic_route import TopicRoute
from octopi.errors import ConditionFailedError, NotDeliveredError, RefusedError
from octopi.wire.messages import TopicInfo


class TopicSwitch:
    """The change of one topic, from step 1 on."""

    def __init__(self, info: TopicInfo) -> None:
        self.info = info
        """The newest description of the topic."""
        self.senders: dict[LogSender, None] = {}
        """Those that go by a former generation."""
        self.is_over = News()

    def described(self, info: TopicInfo) -> None:
        """The topic may have got another generation meanwhile."""
        if generation_of(info) > generation_of(self.info):
            self.info = info

    @property
    def is_drained(self) -> bool:
        """Whether all that was sent is settled where it was sent."""
        return all(one.session.is_drained for one in self.senders)

    def take_waiting(self) -> list[tuple[LogSender, Batch]]:
        """What the senders have left, oldest first; what one of them has stays in order."""
        left = [(one, batch) for one in self.senders for batch in one.session.take_waiting()]
        return sorted(left, key=lambda pair: pair[1].deadline)


def reroute(route: TopicRoute, former: LogSender, batch: Batch) -> None:
    """Have the messages of *batch*, which were to go by *former*, go by *route*."""
    try:
        parts, moved = _split(batch, _choice(route, former, batch))
    except (ConditionFailedError, NotDeliveredError) as error:
        former.session.reject(batch, error)
        return
    batch.moved = moved
    batch.drop_messages()
    for sender, part in parts.items():
        sender.session.put(part)
    former.moved(batch)


def _choice(
    route: TopicRoute, former: LogSender, batch: Batch
) -> Callable[[bytes | None], LogSender]:
    """By which sender a message with a key goes.

    Raises:
      NotDeliveredError: if the program named a partition that takes no messages any more.
      ConditionFailedError: if the log of the condition does not get the message.
    """
    topic, partition = former.topic, former.partition
    if batch.pinned:
        try:
            pinned = route.sender_for(None, partition)
        except RefusedError as error:
            raise NotDeliveredError(f"{topic}/{partition}: {error.args[0]}") from error
        return lambda key: pinned
    if batch.condition is not None and route.sender_for(batch.builder.key(0), None) is not (
        route.senders[route.places[partition]] if partition in route.places else None
    ):
        raise ConditionFailedError(
            f"{topic}/{partition}: the topic got other partitions, and the message belongs to "
            "another log now: read on, and decide by the end of that one"
        )
    unkeyed = route.sender_for(None, None)
    if len(batch) and batch.builder.key(0) is None:
        route.partitioner.move_on()
    return lambda key: unkeyed if key is None else route.sender_for(key, None)


def _split(
    batch: Batch, choose: Callable[[bytes | None], LogSender]
) -> tuple[dict[LogSender, Batch], list[MovedMessage]]:
    """A batch for each sender that gets messages of *batch*, and where each message is."""
    parts: dict[LogSender, Batch] = {}
    moved: list[MovedMessage] = []
    builder = batch.builder
    for number in range(len(builder)):
        sender = choose(builder.key(number))
        part = parts.get(sender)
        if part is None:
            part = parts[sender] = Batch(
                batch.deadline,
                batch.begun_at,
                sealed=True,
                urgent=True,
                condition=batch.condition,
                pinned=batch.pinned,
            )
        start = part.last_position = part.builder.add_from(builder, number)
        moved.append(MovedMessage(sender, part, len(part) - 1, start, part.builder.size_bytes))
    return parts, moved
