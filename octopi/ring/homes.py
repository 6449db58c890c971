"""What the internal log ``~topics`` of a partition says, in a cluster without a register.

====================  ============================================================================
key                   value
====================  ============================================================================
``t/`` topic          in the log of the topic's home: its record, its creator, and what is still to
                      be done (`TopicState`).  Without a value: it was deleted everywhere
``h/`` topic id       in the log of each partition of the topic: its record.  The partition's
                      replicas have a log of it.  Without a value: they have none any more
``e/`` home           in the log of a partition: the newest order of that home that was carried out
                      here.  Orders that come late are refused by it
``r/register``        in the log of a partition that a register handed over: all its topics stand
                      before this
====================  ============================================================================

A topic's *home* is the partition that consistent hashing chooses among the first partitions of the
cluster, whose number never changes.  No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum, unique
from typing import Any, Final, TypeAlias

import attrs
from cattrs.preconf.cbor2 import make_converter

from octopi.coordination.consistent_hash import HashCircle
from octopi.identifiers import Epoch, PartitionId, TopicId, TopicName
from octopi.model import TopicRecord
from octopi.stored import topic_fields
from octopi.wire.codec import fault_in

Entry: TypeAlias = tuple[str, Mapping[str, Any] | None]
"""A key, and its value; None: the key is removed."""

TAKEN_OVER: Final[Entry] = ("r/register", {"topics": "taken over"})
"""What says that the topics of a partition that a register handed over are all in its log."""

_CONVERTER: Final = make_converter(forbid_extra_keys=True)


@unique
class TopicState(StrEnum):
    """What is still to be done about a topic."""

    CREATING = "creating"
    """Its partitions are told of it."""
    ALTERING = "altering"
    """Its partitions are told its new options."""
    READY = "ready"
    """Nothing."""
    DELETING = "deleting"
    """Its partitions are told that it is gone."""


@attrs.frozen
class HomeTopic:
    """A topic, as its home knows it."""

    topic: TopicRecord
    state: TopicState
    creator: str = ""
    """The subject that created it; empty: nobody in particular."""

    @property
    def entry(self) -> Entry:
        """What says so in the log of the home."""
        return f"t/{self.topic.topic}", {
            "topic": topic_fields(self.topic),
            "state": self.state.value,
            "creator": self.creator,
        }

    @property
    def removal(self) -> Entry:
        """What says that it was deleted everywhere."""
        return f"t/{self.topic.topic}", None

    @property
    def hosting(self) -> Entry:
        """What says in the log of a partition that the partition has a log of it, or none."""
        fields = {"topic": topic_fields(self.topic)}
        return f"h/{self.topic.topic_id}", None if self.state is TopicState.DELETING else fields


@attrs.frozen(order=True)
class OrderNumber:
    """Orders those of one home."""

    epoch: Epoch
    number: int

    def entry(self, home: PartitionId) -> Entry:
        """What says that this order of *home* was carried out."""
        return f"e/{home}", {"epoch": int(self.epoch), "number": self.number}


@attrs.define
class TopicsOfPartition:
    """All that the log of one partition says."""

    topics: dict[TopicName, HomeTopic] = attrs.field(factory=dict)
    """The topics whose home it is."""
    hosted: dict[TopicId, TopicRecord] = attrs.field(factory=dict)
    """The topics of which it has logs."""
    orders: dict[PartitionId, OrderNumber] = attrs.field(factory=dict)
    """The newest order of each home."""
    is_taken_over: bool = False
    """Whether it says that all topics are there that a register handed over."""

    def read(self, key: str, value: Mapping[str, Any] | None) -> None:
        """Take over an entry.

        Raises:
          ValueError: if no broker of this version writes it.
        """
        kind, _, name = key.partition("/")
        if kind == "t":
            self._set(self.topics, TopicName(name), None if value is None else _home_topic(value))
        elif kind == "h":
            self._set(self.hosted, TopicId(name), None if value is None else _hosted(value))
        elif kind == "e" and value is not None:
            self.orders[PartitionId(int(name))] = _CONVERTER.structure(value, OrderNumber)
        elif key == TAKEN_OVER[0]:
            self.is_taken_over = value is not None

    @staticmethod
    def _set(known: dict[Any, Any], name: str, one: object) -> None:
        if one is None:
            known.pop(name, None)
        else:
            known[name] = one


def topics_of(entries: Mapping[str, Mapping[str, Any]]) -> TopicsOfPartition:
    """What the live *entries* of a log say.

    Raises:
      ValueError: if no broker of this version writes one of them.
    """
    found = TopicsOfPartition()
    for key, value in entries.items():
        found.read(key, value)
    return found


def _home_topic(value: Mapping[str, Any]) -> HomeTopic:
    try:
        one = _CONVERTER.structure(value, HomeTopic)
    except Exception as error:  # cattrs raises several classes
        raise ValueError(f"it is no topic ({type(error).__name__})") from error
    _check(one.topic)
    return one


def _hosted(value: Mapping[str, Any]) -> TopicRecord:
    try:
        topic = _CONVERTER.structure(value["topic"], TopicRecord)
    except Exception as error:
        raise ValueError(f"it is no topic ({type(error).__name__})") from error
    _check(topic)
    return topic


def _check(topic: TopicRecord) -> None:
    if why := fault_in(topic):
        raise ValueError(why)


def home_of(topic: TopicName, circle: HashCircle) -> PartitionId:
    """The home of *topic*; *circle*: of the cluster's homes."""
    return circle.partitions(topic, 1)[0]


def merged_page(pages: Iterable[tuple[list[Any], bool]], count_max: int) -> tuple[list[Any], bool]:
    """One page of topics, in the order of their names, from one of each home, and whether there are
    more.  *pages*: the descriptions, each with a ``topic``, and whether there are more behind them.
    """
    found: list[Any] = []
    ends: list[str] = []
    for page, more in pages:
        found += page
        if more:  # what lies behind the last one is not known
            ends.append(page[-1].topic if page else "")
    known = sorted(found, key=lambda one: one.topic)
    if ends:
        known = [one for one in known if one.topic <= min(ends)]
    return known[:count_max], bool(ends) or len(known) > count_max
