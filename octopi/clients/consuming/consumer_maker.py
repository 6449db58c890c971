"""The part of a client that makes consumers, which are imported when the first one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Literal, overload

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.start_position import Start
from octopi.errors import InvalidOptionError
from octopi.limits import CONSUMER_WINDOW_BYTES, RECONNECT_TIMEOUT_S

if TYPE_CHECKING:
    from octopi.clients.consuming.consumer import Consumer
    from octopi.clients.consuming.multi_topic_consumer import MultiTopicConsumer


class ConsumerMaker:
    """Makes consumers of one topic, and of several."""

    def __init__(self, cluster: ClusterHandle) -> None:
        self._cluster = cluster

    @overload
    def consumer(
        self,
        topic: str,
        *,
        start: Start = "latest",
        partitions: Sequence[int] | None = None,
        window_bytes: int = CONSUMER_WINDOW_BYTES,
        on_gap: Literal["raise", "skip"] = "raise",
        on_fork: Literal["raise", "resume"] = "raise",
        stop_at_end: bool = False,
        reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
        wait_for_topic: float | None = None,
        create: bool = False,
        proven: bool = False,
    ) -> AbstractAsyncContextManager[Consumer]: ...

    @overload
    def consumer(
        self,
        topic: list[str] | tuple[str, ...],
        *,
        start: Start | Mapping[str, Start] = "latest",
        partitions: None = None,
        window_bytes: int = CONSUMER_WINDOW_BYTES,
        on_gap: Literal["raise", "skip"] = "raise",
        on_fork: Literal["raise", "resume"] = "raise",
        stop_at_end: bool = False,
        reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
        wait_for_topic: float | None = None,
        create: bool = False,
        proven: bool = False,
    ) -> AbstractAsyncContextManager[MultiTopicConsumer]: ...

    def consumer(
        self,
        topic: str | list[str] | tuple[str, ...],
        *,
        start: Start | Mapping[str, Start] = "latest",
        partitions: Sequence[int] | None = None,
        window_bytes: int = CONSUMER_WINDOW_BYTES,
        on_gap: Literal["raise", "skip"] = "raise",
        on_fork: Literal["raise", "resume"] = "raise",
        stop_at_end: bool = False,
        reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
        wait_for_topic: float | None = None,
        create: bool = False,
        proven: bool = False,
    ) -> AbstractAsyncContextManager[Consumer] | AbstractAsyncContextManager[MultiTopicConsumer]:
        """A consumer of *topic*, for the block; with a list, one of several topics.

        *start*: see `octopi.clients.consuming.start_position.Start`.  ``"latest"`` means the
        messages that are committed after the block was entered.  *partitions*: read only these;
        None: all.  *window_bytes*: the size of the records held or on their way, per partition.
        *on_gap*: what to do when retention has removed the next record; ``"skip"`` continues
        behind the gap and adds it to `Consumer.gaps`.  *on_fork*: what to do when records that were
        read are gone from the log; ``"resume"`` continues at the last common offset with the
        records that the log has now, and adds the fork to `Consumer.forks`.
        *stop_at_end*: stop at the present end of the log, instead of waiting for more.
        *reconnect_timeout_s*: raise an error when no broker was available for this long; None:
        never.  *wait_for_topic*: how long (seconds) to wait for a missing topic; None: not at all.
        *create*: create a missing topic, with default options, instead of waiting for it.  If the
        topic did not exist when the block was entered, ``"latest"`` and `octopi.last` mean its
        beginning, so no message is missed.  *proven*: compute the digests of a relay topic from
        what arrives, and compare them with those that relays state.

        A list has names and patterns, in which ``*`` stands for any characters.  Then *start* is
        one for all topics, or a mapping from names to starts, such as
        `MultiTopicConsumer.positions` or its text; a topic that it doesn't name is read from its
        start, or from what it says for ``"*"``.  Topics that match a pattern later are read from
        their beginning.  *wait_for_topic* and *create* are for those that are named.

        Raises:
          InvalidTopicError: if *topic* is no legal name, or no pattern.
          UnknownTopicError: if there is no such topic; after *wait_for_topic*.
          RefusedError: UNKNOWN_PARTITION, if the topic doesn't have one of *partitions*.
              FORBIDDEN, if the token doesn't grant what is needed.
          InvalidOptionError: if an option is out of its range or *start* doesn't fit; if there are
              more topics than one consumer reads.
          TopicReplacedError: if *start* is a position in an older creation of the topic.
        """
        from octopi.clients.consuming.opening import ConsumerOptions, open_topic
        from octopi.clients.consuming.topic_opener import open_topics
        from octopi.clients.consuming.topic_selection import TopicSelection, starts_of

        options = ConsumerOptions(
            window_bytes=window_bytes,
            on_gap=on_gap,
            on_fork=on_fork,
            stop_at_end=stop_at_end,
            reconnect_timeout_s=reconnect_timeout_s,
            wait_for_topic=wait_for_topic,
            create=create,
            proven=proven,
        )
        if isinstance(topic, str):
            if isinstance(start, Mapping):
                raise InvalidOptionError("start is a mapping, which is for several topics")
            return open_topic(self._cluster, topic, start, partitions, options)
        if partitions is not None:
            raise InvalidOptionError("partitions are those of one topic: leave them out")
        selection = TopicSelection.of(topic)
        return open_topics(self._cluster, selection, starts_of(start, selection), options)
