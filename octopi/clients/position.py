"""A consumer's place in a topic, and its form as text.

``v1:orders@5f0c...:0=1234,3=99``: version, topic, topic id, and for each partition the
offset of the next record to read.  Offsets are equal on every replica, so a position is
good at any of them, in another process and in another language.  The topic id keeps it
from pointing into the data of a topic that was deleted and created again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from octopi.clients.options import not_negative
from octopi.errors import InvalidOptionError
from octopi.identifiers import Offset, PartitionId, TopicId, TopicName

_FORM: Final = re.compile(
    r"v1:([A-Za-z0-9._-]+)@([0-9a-f]{1,64}):((?:[0-9]{1,10}=[0-9]{1,20}(?:,(?!$)|$))*)", re.ASCII
)


def _checked(offsets: Mapping[PartitionId, Offset]) -> Mapping[PartitionId, Offset]:
    for offset in offsets.values():
        not_negative(offset=offset)
    return dict(sorted(offsets.items()))


@attrs.frozen(hash=False)
class Position:
    """Where to go on reading a topic."""

    topic: TopicName
    topic_id: TopicId
    offsets: Mapping[PartitionId, Offset] = attrs.field(converter=_checked)
    """Partition -> offset of the next record.  A partition that isn't named: from its start."""

    def __str__(self) -> str:
        places = ",".join(f"{partition}={offset}" for partition, offset in self.offsets.items())
        return f"v1:{self.topic}@{self.topic_id}:{places}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The inverse of ``str(position)``.

        Raises:
          InvalidOptionError: if *text* is no position.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidOptionError(
                f"{text[:80]!r} is no position; one looks like 'v1:orders@5f0c2a...:0=1234,3=99'"
            )
        topic, topic_id, places = match.groups()
        offsets: dict[PartitionId, Offset] = {}
        for place in places.split(",") if places else []:
            partition, _, offset = place.partition("=")
            if int(partition) in offsets:
                raise InvalidOptionError(
                    f"position {text[:80]!r} names partition {partition} twice"
                )
            offsets[PartitionId(int(partition))] = Offset(int(offset))
        return cls(TopicName(topic), TopicId(topic_id), offsets)
