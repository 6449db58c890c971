"""The driver of `GenerationGates`: begins the readings of a topic's logs, and looks the topic up
when it got other partitions.

A reading ends at the sealed end of its log.  The consumer says so here when the program got all of
its messages.  Then the logs are begun whose gates that passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import trio

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.consuming.consumer_session import ConsumerSession
from octopi.clients.consuming.log_subscriber import (
    LogSubscriber,
    SubscriberListener,
    SubscriberOptions,
)
from octopi.clients.described_generations import generations_of
from octopi.errors import NotReadyError, RefusedError, Status, TopicReplacedError
from octopi.generation_gates import GenerationGates
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Place
from octopi.retry import retry
from octopi.wire.messages import TopicInfo

_BEGINNING = Place(Offset(0))


class GenerationFollower:
    """The readings of one topic."""

    def __init__(
        self,
        cluster: ClusterHandle,
        info: TopicInfo,
        starts: Mapping[PartitionId, Place],
        *,
        window_bytes: int,
        options: SubscriberOptions,
        listener: SubscriberListener,
        ends: Mapping[PartitionId, Offset] | None = None,
        partitions: Sequence[PartitionId] | None = None,
    ) -> None:
        """*info*: the topic.  *starts*: where to begin.  *ends*: nothing is read behind them; None:
        read without end.  *partitions*: read only these; None: all that the topic has and gets."""
        self.topic, self.topic_id = TopicName(info.topic), TopicId(info.topic_id)
        self._cluster, self._info = cluster, info
        self._window_bytes, self._options = window_bytes, options
        self._listener = listener
        self._partitions = partitions
        self._places = dict(starts)
        self.gates = GenerationGates(
            generations_of(info),
            {one: place.offset for one, place in starts.items()},
            ends=ends,
            partitions=partitions,
        )
        self._is_stale = False
        """Whether the topic has a newer generation than is known here."""
        self._changed = trio.Event()

    def begin(self, nursery: trio.Nursery) -> list[LogSubscriber]:
        """Begin the readings that can begin now, in tasks of *nursery*."""
        subscribers: list[LogSubscriber] = []
        for one in self.gates.begin():
            session = ConsumerSession(
                self.topic,
                one.partition,
                self.topic_id,
                self.place(one.partition),
                self._window_bytes,
                end=one.end,
            )
            subscriber = LogSubscriber(
                self._cluster, session, self._options, self._listener, self.gates.newest
            )
            subscribers.append(subscriber)
            nursery.start_soon(subscriber.run)
        self.gates.check_invariants()
        return subscribers

    def place(self, partition: PartitionId) -> Place:
        """Where the next reading of a log begins."""
        return self._places.get(partition, _BEGINNING)

    def ended(self, subscriber: LogSubscriber, *, is_stale: bool) -> None:
        """All that *subscriber* read was handed out.  *is_stale*: it ended because the topic got
        other partitions."""
        session = subscriber.session
        self._places[session.partition] = session.place
        self.gates.ended(session.partition, session.place.offset)
        # Another log may have come to its end before, and the topic was looked up.
        self._is_stale |= is_stale and subscriber.generation >= self.gates.newest
        self._changed.set()

    async def follow(self) -> None:
        """Return when there may be readings to begin.

        Raises:
          OctopiError: if the topic can't be followed any further.
        """
        await self._changed.wait()
        self._changed = trio.Event()
        if self._is_stale:
            self._check_follows()
            self._info = await self._look_up()
            self.gates.grew(generations_of(self._info))
            self._is_stale = False

    def _check_follows(self) -> None:
        """Raises:
        RefusedError: STALE_ROUTE, if the program chose partitions."""
        if self._partitions is not None:
            chosen = ", ".join(str(one) for one in self._partitions[:20])
            raise RefusedError(
                f"topic {self.topic} got other partitions, and this consumer reads only {chosen}: "
                "look at `octopi-node topics describe`, choose again, and go on with its position",
                Status.STALE_ROUTE,
            )

    async def _look_up(self) -> TopicInfo:
        """The topic with a newer generation than the newest known one.

        Raises:
          TopicReplacedError: if it is another creation of the topic.
          OctopiError: any error of the request to the register.
        """
        timeout_s, wrong = self._options.reconnect_timeout_s, self._info

        async def attempt() -> TopicInfo:
            nonlocal wrong
            wrong = await self._cluster.lookup.topic(
                self.topic, other_than=wrong, follows_generations=True
            )
            if wrong.topic_id != self.topic_id:
                raise TopicReplacedError(
                    f"{self.topic}: the topic was deleted and created again (id {self.topic_id}, "
                    f"now {wrong.topic_id}); start from earliest or latest"
                )
            if generations_of(wrong)[-1].number <= self.gates.newest:
                raise NotReadyError(f"the register doesn't say yet what {self.topic} has now")
            return wrong

        return await retry(
            self._cluster.environment,
            math.inf if timeout_s is None else timeout_s,
            f"look up topic {self.topic}",
            attempt,
        )
