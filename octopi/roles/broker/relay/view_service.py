"""What a relay tells of itself: how it takes part in its partitions, and its digests."""

from __future__ import annotations

from octopi.identifiers import Offset
from octopi.limits import RELAY_POINTS_MAX
from octopi.relay.anti_entropy import spread
from octopi.relay.member import RelayMember
from octopi.relay.timelines import NEVER
from octopi.roles.broker.relay.context import RelayContext
from octopi.transport.services import Service
from octopi.wire import messages as m


class RelayViewService(Service):
    """Describes relay partitions, and compares streams."""

    def __init__(self, context: RelayContext) -> None:
        super().__init__(
            {m.DescribeRelays: self._describe, m.DescribeRelayStream: self._describe_stream}
        )
        self._context = context
        self._serving = context.serving

    def _describe(self, message: m.DescribeRelays) -> None:
        now = self._context.environment.clock.now()
        found = [described(one.member, now) for one in self._serving.partitions if one.member]
        self._context.connection.post(m.RelayList(message.request, tuple(found)))

    def _describe_stream(self, message: m.DescribeRelayStream) -> None:
        topic = self._serving.named(message.topic)
        partition = self._serving.partitions[self._serving.mesh.partition_of(topic)]
        log = self._context.served(topic, partition.relay_set.partition)
        stream = partition.stream(log.topic_id)
        points: list[m.RelayDigest] = []
        if stream is not None and message.ends:
            held = [(end, stream.buffer.digest_at(Offset(end))) for end in message.ends]
            points = [m.RelayDigest(end, digest) for end, digest in held if digest is not None]
        elif stream is not None:
            until = min(Offset(message.end), stream.highwater)
            some = spread(stream.buffer.points(Offset(message.begin), until), RELAY_POINTS_MAX)
            points = [m.RelayDigest(one.end, one.digest) for one in some]
        self._context.connection.post(
            m.RelayStreamDescription(message.request, log.start, log.highwater, tuple(points))
        )


def described(member: RelayMember, now: float) -> m.RelayInfo:
    """How *member* takes part in its partition."""
    streams, epoch = member.streams, member.epoch
    is_in_epoch = epoch != NEVER
    return m.RelayInfo(
        partition=member.relay_set.partition,
        members=tuple(member.relay_set.ranked),
        heard=tuple(sorted(member.hearing.fresh(now))),
        state=m.RelayState[member.status.name],
        sequencer=member.sequencer if member.is_normal else None,
        generation=epoch.timeline.generation if is_in_epoch else 0,
        epoch=epoch.number if is_in_epoch else 0,
        emptied=member.life.emptied,
        streams=len(streams.by_topic),
        repairs=len(streams.repairs),
        held_bytes=sum(one.buffer.size_bytes for one in streams),
        uncommitted_bytes=sum(one.uncommitted_bytes for one in streams),
    )
