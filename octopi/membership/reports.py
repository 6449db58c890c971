"""What a broker that joins may report at all.

A register that lost its memory believes brokers.  So what no register ever decided is refused
before it is looked at, with the reason: it would be journaled, and break every later start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from octopi.errors import InvalidTopicError
from octopi.identifiers import topic_name
from octopi.limits import LIST_COUNT_MAX
from octopi.wire.messages import Inventory, PartitionRecord, TopicRecord

EPOCH_MAX: Final = 1 << 62
"""Epochs are counted from 1, and numbers in messages have 63 bits: none comes near this."""


def fault_of(inventory: Iterable[Inventory]) -> str:
    """What is wrong with the pages of *inventory*; empty: nothing."""
    for page in inventory:
        for record in page.partitions:
            if why := _fault_of_partition(record):
                return f"partition {record.partition}: {why}"
        for topic in page.topics:
            if why := _fault_of_topic(topic):
                return f"topic {topic.topic}: {why}"
        for standing in page.standings:
            if standing.promised > EPOCH_MAX:
                return f"partition {standing.partition}: epoch {standing.promised} was promised"
    return ""


def _fault_of_partition(record: PartitionRecord) -> str:
    replicas = set(record.replicas)
    if record.partition >= LIST_COUNT_MAX:
        return f"a cluster has at most {LIST_COUNT_MAX} partitions"
    if not 1 <= record.epoch <= EPOCH_MAX or record.recovered_epoch > record.epoch:
        return f"epoch {record.epoch}, recovered in epoch {record.recovered_epoch}"
    if not replicas or len(replicas) < len(record.replicas):
        return f"its replicas are {record.replicas}"
    if record.leader not in replicas:
        return f"its leader {record.leader} is none of its replicas {record.replicas}"
    if not replicas.issuperset(record.in_sync) or not replicas.issuperset(record.lost):
        return f"of its replicas {record.replicas}, {record.in_sync} are in sync"
    return ""


def _fault_of_topic(topic: TopicRecord) -> str:
    try:
        topic_name(topic.topic)
    except InvalidTopicError as error:
        return str(error)
    partitions = set(topic.partitions)
    if not partitions or len(partitions) < len(topic.partitions):
        return f"its partitions are {topic.partitions}"
    return "" if max(partitions) < LIST_COUNT_MAX else "it names partitions that can't be"
