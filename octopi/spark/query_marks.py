"""The place of a query in the durable subscription that its options name, in each of its topics.

A batch begins at the marks, and moves none.  A stream keeps the marks where it has come to, as the
only member of the subscription.  Spark doesn't tell a source which query it is for, so all streams
of one subscription have one name there: the newest of them takes the marks over, and the others are
told so.  The checkpoint of a stream stays what counts: a stream that has one goes on there, and
stores that as its marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from octopi.clients.subscribing.subscription_options import is_queue
from octopi.errors import HistoryForkedError, HistoryLostError, InvalidOptionError
from octopi.identifiers import TopicName
from octopi.logger import get_logger
from octopi.position import Anchor, Place
from octopi.spark.client_thread import OpenKeeper, Start, client_thread
from octopi.spark.logs import SourceLog
from octopi.spark.options import ReadOptions

MEMBER: Final = "spark"
"""What a stream is called in its subscription."""

_log = get_logger(__name__)


def beginning_at(options: ReadOptions, places: Mapping[SourceLog, Place]) -> ReadOptions:
    """*options* of a query that begins at *places*, and in other logs at their start."""
    offsets: dict[str, dict[int, int]] = {}
    anchors: dict[str, dict[int, Anchor]] = {}
    for log, place in places.items():
        offsets.setdefault(log.topic, {})[log.partition] = place.offset
        anchors.setdefault(log.topic, {})[log.partition] = place.anchor
    return attrs.evolve(options, starting=offsets, starting_anchors=anchors)


def marks(options: ReadOptions, logs: Iterable[SourceLog]) -> dict[SourceLog, Place]:
    """Where the marks of the subscription are.

    Raises:
      UnknownSubscriptionError: if a topic of *logs* doesn't have it.
      InvalidOptionError: if it is a queue.
    """
    thread, name = client_thread(options.connection), options.subscription
    by_name = {(log.topic, log.partition): log for log in logs}
    places = {}
    for topic in sorted({log.topic for log in by_name.values()}):
        status = thread.call(thread.client.admin.describe_subscription, topic, name)
        if is_queue(status.definition.mode):
            raise InvalidOptionError(
                f"{topic}: the subscription {name} has the mode {status.definition.mode}, in which "
                "messages are dealt one by one: it has no marks to begin at"
            )
        for one in status.logs:
            if (log := by_name.get((topic, one.partition))) is not None:
                places[log] = Place(one.mark, one.anchor)
    return places


class QueryMarks:
    """The marks that a stream keeps; in the process that plans it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._keepers: dict[TopicName, OpenKeeper] = {}

    def join(self, logs: Iterable[SourceLog], start: Start) -> None:
        """Have the marks of the topics of *logs*, and of no others.  *start*: where a subscription
        begins that is made now.

        Raises:
          SubscriptionBusyError: if a subscription has other members.
          OctopiError: what else `octopi.clients.client.Client.mark_keeper` raises.
        """
        thread, topics = client_thread(self._options.connection), {log.topic for log in logs}
        for topic in sorted(topics - self._keepers.keys()):
            name = self._options.subscription
            self._keepers[topic] = thread.open_keeper(topic, name, MEMBER, start)
        for topic in self._keepers.keys() - topics:
            self._keepers.pop(topic).close()

    def begin(self, logs: Iterable[SourceLog]) -> dict[SourceLog, Place]:
        """Where a stream without a checkpoint begins.

        Raises:
          HistoryLostError, HistoryForkedError: if records are gone that come next, or that were
              marked (unless ``failOnDataLoss=false``).
        """
        for opened in self._keepers.values():
            for loss in opened.keeper.losses:
                self._tell(loss)
        places = {}
        for log in logs:
            place = self._keepers[log.topic].keeper.places.get(log.partition)
            if place is not None:
                places[log] = place
        return places

    def store(self, places: Mapping[SourceLog, Place]) -> None:
        """The stream has processed all records before *places*; wait until the marks are there.

        Raises:
          HistoryForkedError: if a log has another history there (unless
              ``failOnDataLoss=false``).
          OctopiError: what else `octopi.clients.subscribing.mark_keeper.MarkKeeper.store` raises.
        """
        for topic, opened in self._keepers.items():
            reached = {log.partition: one for log, one in places.items() if log.topic == topic}
            for fork in opened.store(reached):
                self._tell(fork)

    def leave(self) -> None:
        """Keep the marks no more."""
        while self._keepers:
            self._keepers.popitem()[1].close()

    def _tell(self, loss: HistoryLostError | HistoryForkedError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        _log.warning("records are lost to this query's subscription", why=str(loss))
