"""What a relay tells of itself: how it takes part in its partitions, and its digests."""

from __future__ import annotations

from octopi.errors import NotLeaderError
from octopi.identifiers import Offset
from octopi.limits import RELAY_POINTS_MAX
from octopi.relay.anti_entropy import spread
from octopi.relay.member import RelayMember
from octopi.relay.timelines import NEVER
from octopi.roles.broker.relay.context import RelayContext, RelayServing
from octopi.transport.services import Service
from octopi.wire import messages as m


class RelayViewService(Service):
    """Describes relay partitions, and compares streams."""

    def __init__(self, context: RelayContext) -> None:
        super().__init__(
            {m.DescribeRelays: self._describe, m.DescribeRelayStream: self._describe_stream}
        )
        self._connection = context.connection
        self._serving = context.serving

    def _describe(self, message: m.DescribeRelays) -> None:
        self._connection.post(relay_list(self._serving, message.request))

    def _describe_stream(self, message: m.DescribeRelayStream) -> None:
        self._connection.post(stream_description(self._serving, message))


def relay_list(serving: RelayServing, request: int) -> m.RelayList:
    """How this relay takes part in its partitions."""
    now = serving.environment.clock.now()
    partitions = serving.partitions.values()
    return m.RelayList(
        request, tuple(described(one.member, now) for one in partitions if one.member)
    )


def stream_description(
    serving: RelayServing, message: m.DescribeRelayStream
) -> m.RelayStreamDescription:
    """The digests of a stream.

    Raises:
      RefusedError: if there is no such topic here.
      NotLeaderError: if this relay is part of no epoch of the partition.
    """
    place = serving.mesh.place(serving.named(message.topic))
    if place is None:
        raise NotLeaderError(f"this broker has no topic {message.topic[:200]} in memory")
    log = serving.served(message.topic, place.partition)
    stream = serving.partitions[place.partition].stream(log.topic_id)
    points: list[m.RelayDigest] = []
    if stream is not None and message.ends:
        held = [(end, stream.buffer.digest_at(Offset(end))) for end in message.ends]
        points = [m.RelayDigest(end, digest) for end, digest in held if digest is not None]
    elif stream is not None:
        until = min(Offset(message.end), stream.highwater)
        some = spread(stream.buffer.points(Offset(message.begin), until), RELAY_POINTS_MAX)
        points = [m.RelayDigest(one.end, one.digest) for one in some]
    return m.RelayStreamDescription(message.request, log.start, log.highwater, tuple(points))


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
