"""Forks: streams that begin with a copy of what another stream holds up to some place.

A fork is a stream of its own: it inherits content, and no state of writers.  A stream that was
deleted stays known as *gone* while there is a fork of it, or a fork of such a fork: its name can't
be used again, and requests are told so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from octopi.identifiers import Offset, ProducerId, TopicId, TopicName, topic_name_fault
from octopi.limits import TEXT_BYTES_MAX
from octopi.model import StreamDefinition
from octopi.record import Message
from octopi.streams import content_types
from octopi.streams.definitions import content_type_of
from octopi.streams.offsets import BEGINNING, place_of
from octopi.streams.paths import source_topic
from octopi.streams.problems import conflict, invalid
from octopi.streams.writing import log_producer

FORKED_FROM: Final = "stream-forked-from"
FORK_OFFSET: Final = "stream-fork-offset"
SUB_OFFSET: Final = "stream-fork-sub-offset"

_REFERENCE_ZERO: Final = f"{0:016d}_{0:016d}"
"""How the protocol's reference server writes the beginning of a stream.  Its conformance suite
expects of every server to take that for a fork's offset, although offsets are opaque."""

_SUB_OFFSET: Final = re.compile(r"0|[1-9][0-9]{0,11}", re.ASCII)


@attrs.frozen
class ForkOrder:
    """What a request wants to be copied."""

    source: TopicName
    offset: str
    """Up to here; empty: to the end."""
    further: int = 0
    """How many values, or bytes of the next one, beyond that."""

    @property
    def text(self) -> str:
        """How it is noted; see `StreamDefinition.forked_from`."""
        return f"{self.source} {self.offset or '-'} {self.further}"

    @classmethod
    def parse(cls, text: str) -> ForkOrder:
        """The inverse of `text`.

        Raises:
          StreamProblem: if no order has such a text.
        """
        words = text.split()
        if len(words) < 3 or _SUB_OFFSET.fullmatch(words[2]) is None:
            raise invalid("no fork is noted so")
        source, offset, further = words[:3]
        if topic_name_fault(source):
            raise invalid("no fork is noted so: a topic's name comes first")
        if offset not in {"-", BEGINNING}:
            place_of(offset)
        return cls(TopicName(source), "" if offset == "-" else offset, int(further))


def order_of(headers: Mapping[str, str]) -> ForkOrder | None:
    """The fork that a request with *headers* wants; None: it wants none.

    Raises:
      StreamProblem: if they are malformed.
    """
    source, offset, further = (headers.get(one) for one in (FORKED_FROM, FORK_OFFSET, SUB_OFFSET))
    if source is None:
        if offset is not None or further is not None:
            raise invalid("Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From")
        return None
    if further is not None and _SUB_OFFSET.fullmatch(further) is None:
        raise invalid(f"Stream-Fork-Sub-Offset is a number such as 3, not {further[:40]!r}")
    if further not in {None, "0"} and offset is None:
        raise invalid("Stream-Fork-Sub-Offset needs Stream-Fork-Offset")
    if offset == _REFERENCE_ZERO:
        offset = BEGINNING
    if offset is not None and offset != BEGINNING:
        place_of(offset)
    return ForkOrder(source_topic(source), offset or "", int(further or 0))


def fork_definition(
    order: ForkOrder,
    wanted: StreamDefinition,
    source: StreamDefinition | None,
    *,
    names_type: bool,
) -> StreamDefinition:
    """The definition of a fork of *source*, as a request defines it.  *names_type*: whether the
    request has a content type.

    Raises:
      StreamProblem: if it wants another content type than the source has.
    """
    inherited = content_type_of(source)
    if names_type and not content_types.matches(wanted.content_type, inherited):
        raise conflict(f"the source's content is {inherited}, not {wanted.content_type}")
    lifetime = wanted if wanted.can_expire or source is None else source
    text = " ".join([order.text, *(source.ancestors if source is not None else [])])
    while len(text) > TEXT_BYTES_MAX:
        text = text.rpartition(" ")[0]
    return StreamDefinition(inherited, lifetime.ttl_s, lifetime.expires_at_ms, text)


def is_same_fork(one: StreamDefinition, other: StreamDefinition) -> bool:
    """Whether both begin with the same content of the same stream."""
    return one.forked_from.split()[:3] == other.forked_from.split()[:3]


def copier(topic_id: TopicId) -> ProducerId:
    """The producer of the records that a fork begins with."""
    return log_producer(topic_id, "\0fork")


def inherited(messages: list[Message], order: ForkOrder, *, is_json: bool) -> list[Message]:
    """The messages of a source, read from its beginning, that a fork begins with.

    Raises:
      StreamProblem: if the order names no place in the source.
    """
    if not order.offset:
        return messages
    end = Offset(0) if order.offset == BEGINNING else place_of(order.offset).place.offset
    before = [one for one in messages if one.next_offset <= end]
    behind = messages[len(before) :]
    if (before[-1].next_offset if before else 0) != end:
        raise invalid("Stream-Fork-Offset is no place in the source, or behind its end")
    if not order.further:
        return before
    behind = [one for one in behind if one.value]
    if is_json:
        if order.further > len(behind):
            raise invalid("Stream-Fork-Sub-Offset is beyond the values that follow")
        return before + behind[: order.further]
    if not behind or order.further > len(behind[0].value):
        raise invalid("Stream-Fork-Sub-Offset is beyond the content that follows")
    return [*before, behind[0]._replace(value=behind[0].value[: order.further])]
