"""What a relay is told of the streams of a partition: their bounds, and which are removed."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from octopi.identifiers import TopicId
from octopi.limits import RELAY_REMOVED_MAX
from octopi.relay.buffer import BufferBounds
from octopi.relay.memory import RelayMemory


@attrs.define
class StreamRules:
    """These rules, which outlive what the relay holds."""

    usual: BufferBounds = attrs.field(factory=BufferBounds)
    bounds: dict[TopicId, BufferBounds] = attrs.field(factory=dict)
    """Those that differ from the usual ones."""
    memory: RelayMemory = attrs.field(factory=RelayMemory)
    """The bound for all streams of the broker together."""
    removed: dict[TopicId, None] = attrs.field(factory=dict)
    """The streams that were removed last, the newest last.  Their ids are never used again."""

    def of(self, topic_id: TopicId) -> BufferBounds:
        """The bounds of a stream."""
        return self.bounds.get(topic_id, self.usual)

    def remove(self, topic_ids: Iterable[TopicId]) -> None:
        """Streams are removed for good."""
        for topic_id in topic_ids:
            self.removed[topic_id] = None
            self.bounds.pop(topic_id, None)
        while len(self.removed) > RELAY_REMOVED_MAX:
            del self.removed[next(iter(self.removed))]
