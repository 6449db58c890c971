"""Messages about how much brokers have to do: what they report to the register, and what clients
ask about it."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import ASK_TIMEOUT_S, BROKERS_MAX, LIST_COUNT_MAX
from octopi.model import CountedOrNone, PartitionNumber, Verb
from octopi.wire.common import Text
from octopi.wire.declarations import (
    ANY_TOKEN,
    CLIENT_TO_DECIDER,
    MEMBER_TO_DECIDER,
    TO_CLIENT,
    answer,
    notice,
    on_the_cluster,
    request,
)

LOAD_UNIT = 1_000
"""A load on the wire is in thousandths, since messages have no fractions."""


@attrs.frozen
class PartitionLoad:
    """What a broker did for a partition that it leads, since its last report."""

    partition: PartitionNumber
    bytes_per_s: CountedOrNone
    """What it took from producers and gave to consumers."""
    readings: CountedOrNone
    """Readings that are open at this broker."""
    topic: Text
    """The topic with the most of these bytes; empty: none has any."""


@notice("broker_load", MEMBER_TO_DECIDER, needs=on_the_cluster(Verb.REPLICATE), since=2)
@attrs.frozen
class BrokerLoad:
    """Broker to register: the load of partitions that it leads, in any number of messages every few
    seconds; one without partitions if it leads none.  No answer."""

    partitions: Annotated[list[PartitionLoad], AtMost(1_000)]


@request("describe_loads", CLIENT_TO_DECIDER, needs=ANY_TOKEN, asked_s=ASK_TIMEOUT_S, since=2)
@attrs.frozen
class DescribeLoads:
    """Ask how much brokers have to do.  Answer: `LoadList`."""

    request: int


@attrs.frozen
class LoadOfBroker:
    """The load of a broker that is up."""

    broker: BrokerId
    load: int | None
    """The sum over the partitions that it leads, in thousandths; None: it has not reported."""


@attrs.frozen
class LoadOfPartition:
    """The load of a partition."""

    partition: PartitionId
    load: int
    """The average over about a minute, in thousandths."""
    hot: bool
    """Whether it alone is too much for one broker."""
    topic: Text
    """The topic that is most of it; empty: it has no traffic, or the token may not know the
    topic."""


@answer("load_list", TO_CLIENT, since=2)
@attrs.frozen
class LoadList:
    """Answer to `DescribeLoads`."""

    request: int
    is_on: bool
    """Whether the register moves leaderships by load at all."""
    goes_by_load: bool
    """Whether it does now; otherwise it goes by their number."""
    moved_count: int
    """How many leaderships were moved by load since the register was started."""
    brokers: Annotated[list[LoadOfBroker], AtMost(BROKERS_MAX)]
    partitions: Annotated[list[LoadOfPartition], AtMost(LIST_COUNT_MAX)]
