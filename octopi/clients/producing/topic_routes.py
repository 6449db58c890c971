"""The topics of one producer: where their messages go, and by which senders."""

from __future__ import annotations

from collections.abc import Callable

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.leader_lookup import generation_of
from octopi.clients.producing.log_sender import LogSender, SharedBySenders
from octopi.clients.producing.producer_options import ProducerOptions
from octopi.clients.producing.producer_session import ProducerSession
from octopi.clients.producing.topic_route import TopicRoute
from octopi.clients.producing.topic_switch import TopicSwitch, reroute
from octopi.errors import NotDeliveredError, OctopiError
from octopi.identifiers import PartitionId, topic_name
from octopi.retry import may_pass, retry
from octopi.tracing import generations as steps
from octopi.wire.messages import TopicInfo


class TopicRoutes:
    """The routes of one producer.

    Invariants: a topic has a route, or is being switched to a later generation, or neither; the
    sessions of a route's senders go by its generation.
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        shared: SharedBySenders,
        options: ProducerOptions,
        new_session: Callable[[str], ProducerSession],
    ) -> None:
        """*new_session* makes one for a log; its argument names the log in texts."""
        self.known: dict[str, TopicRoute] = {}
        """The topics whose messages are taken now."""
        self.senders: dict[tuple[str, int], LogSender] = {}
        """By topic and partition."""
        self._switches: dict[str, TopicSwitch] = {}
        self._cluster = cluster
        self._environment = cluster.environment
        self._shared = shared
        self._options = options
        self._new_session = new_session

    async def find(self, topic: str) -> None:
        """Wait until the topic has a route, or the producer is closed.

        Raises:
          InvalidTopicError, UnknownTopicError, RefusedError: as for `Producer.submit`.
          NotDeliveredError: if that is not so within the delivery time-out.
        """
        if (switch := self._switches.get(topic)) is not None:
            with self._environment.clock.timeout(self._options.delivery_timeout_s) as slow:
                await switch.is_over.wait()
            if slow.cancelled_caught:
                raise NotDeliveredError(
                    f"{topic}: the topic got other partitions, and what was sent before was not "
                    f"settled within {self._options.delivery_timeout_s:g} s"
                )
            return
        name = topic_name(topic)
        create, lookup = self._options.create_topics, self._cluster.lookup
        try:
            info = await retry(
                self._environment,
                self._options.delivery_timeout_s,
                f"find topic {name}",
                lambda: lookup.topic(name, create=create, follows_generations=True),
            )
        except OctopiError as error:
            if may_pass(error):
                raise NotDeliveredError(str(error)) from error
            raise
        if topic not in self.known and topic not in self._switches:
            self.known[topic] = self._route(info)

    def _route(self, info: TopicInfo) -> TopicRoute:
        senders = [self._sender(info, one.partition) for one in info.partitions]
        return TopicRoute(info, senders, self.first_place(info))

    def _sender(self, info: TopicInfo, partition: int) -> LogSender:
        name = topic_name(info.topic)
        sender = self.senders.get((name, partition))
        if sender is None:
            session = self._new_session(f"{name}/{partition}")
            sender = LogSender(self._cluster, self._shared, name, PartitionId(partition), session)
            self.senders[name, partition] = sender
        if sender.session.is_empty:
            sender.session.go_on(generation_of(info))
        return sender

    def first_place(self, info: TopicInfo) -> int:
        """With which of its partitions to begin."""
        return int(self._environment.randomness.random() * len(info.partitions))

    # --- later generations ---------------------------------------------------------------

    def described(self, info: TopicInfo) -> None:
        """The register described a topic again.  If it has a later generation now, or is another
        topic with other partitions, its route is not used any more."""
        route, switch = self.known.get(info.topic), self._switches.get(info.topic)
        if switch is not None:
            switch.described(info)
        elif route is None:
            return
        elif route.info.topic_id != info.topic_id:
            if _partitions(route.info) != _partitions(info):
                del self.known[info.topic]  # the next message makes a new one
        elif generation_of(info) > generation_of(route.info):
            del self.known[info.topic]
            switch = self._switches[info.topic] = TopicSwitch(info)
            switch.senders.update(dict.fromkeys(route.senders))
            for sender in route.senders:
                sender.supersede()

    def drained(self, sender: LogSender) -> None:
        """What *sender* sent by a former generation is settled."""
        switch = self._switches.get(sender.topic)
        if switch is None:
            # A session that something else drove until now (`LentSessions`) comes later.
            route = self.known.get(sender.topic)
            info = sender.topic_info if route is None else route.info
            if sender.session.is_empty or info is None:
                return
            switch = TopicSwitch(info)
        switch.senders[sender] = None
        if switch.is_drained:
            self._complete(sender.topic, switch)

    def _complete(self, topic: str, switch: TopicSwitch) -> None:
        self._switches.pop(topic, None)
        if (trace := self._environment.trace) is not None:
            partitions = [PartitionId(one) for one in _partitions(switch.info)]
            trace(steps.V3Settled(topic, partitions, generation_of(switch.info)))
        left = switch.take_waiting()
        route = self.known.get(topic)
        if route is None:
            for key in [key for key, one in self.senders.items() if one in switch.senders]:
                if key[1] not in _partitions(switch.info):
                    del self.senders[key]
            route = self._route(switch.info)
        for sender, batch in left:
            reroute(route, sender, batch)
        self.known[topic] = route
        for sender in route.senders:
            if topic in self._options.topics:
                sender.session.begin_life()
        for sender in dict.fromkeys([*switch.senders, *route.senders]):
            sender.pump()
        switch.is_over.tell()


def _partitions(info: TopicInfo) -> list[int]:
    return [one.partition for one in info.partitions]
