"""What people and programs ask a relay about its streams in memory (`octopi.relay`)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import attrs

from octopi.field_bounds import AtMost, Grammar, Within
from octopi.limits import (
    COUNTED_MAX,
    OFFSET_MAX,
    RELAY_PARTITIONS_MAX,
    RELAY_POINTS_MAX,
    RELAYS_MAX,
    TEXT_BYTES_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from octopi.model import BrokerNumber, PartitionNumber
from octopi.wire.declarations import ANY_TOKEN, CLIENT_TO_LEADER, TO_CLIENT, answer, request
from octopi.wire.relay import DigestBytes, relay_state_fault

_Count: TypeAlias = Annotated[int, Within(0, COUNTED_MAX)]
_Place: TypeAlias = Annotated[int, Within(0, OFFSET_MAX)]
_Relays: TypeAlias = Annotated[tuple[BrokerNumber, ...], AtMost(RELAYS_MAX)]


@attrs.frozen
class RelayDigest:
    """The digest of all that lies before a place of a stream."""

    offset: _Place
    digest: DigestBytes


@attrs.frozen
class RelayInfo:
    """How a relay takes part in one relay partition."""

    partition: PartitionNumber
    members: _Relays
    """In the order in which they are sequencers."""
    heard: _Relays
    """Those that it hears, itself included."""
    state: Annotated[str, AtMost(TEXT_BYTES_MAX), Grammar(relay_state_fault)]
    sequencer: BrokerNumber | None
    """None: it is part of no epoch."""
    generation: _Count
    """Of its timeline."""
    epoch: _Count
    """Of its timeline."""
    emptied: _Count
    """How often it gave up what it held since it was started."""
    streams: _Count
    repairs: _Count
    """Streams that are under repair."""
    held_bytes: _Count
    uncommitted_bytes: _Count
    """What waits for a quorum."""


@request("describe_relays", CLIENT_TO_LEADER, needs=ANY_TOKEN, since=2)
@attrs.frozen
class DescribeRelays:
    """Ask a relay how it takes part in each relay partition of which it is a member.
    Answer: `RelayList`."""

    request: int


@answer("relay_list", TO_CLIENT, since=2)
@attrs.frozen
class RelayList:
    """Answer to `DescribeRelays`."""

    request: int
    relays: Annotated[tuple[RelayInfo, ...], AtMost(RELAY_PARTITIONS_MAX)]


@request("describe_relay_stream", CLIENT_TO_LEADER, needs=ANY_TOKEN, since=2)
@attrs.frozen
class DescribeRelayStream:
    """Ask a relay which digests it has in a stream.  Answer: `RelayStreamDescription`."""

    request: int
    topic: Annotated[str, AtMost(TOPIC_NAME_BYTES_MAX)]
    begin: _Place
    end: _Place
    """Tell digests from *begin* up to here, evenly; used if `ends` is empty."""
    ends: Annotated[tuple[_Place, ...], AtMost(RELAY_POINTS_MAX)]
    """Tell the digests here, where they are known."""


@answer("relay_stream_description", TO_CLIENT, since=2)
@attrs.frozen
class RelayStreamDescription:
    """Answer to `DescribeRelayStream`."""

    request: int
    start: _Place
    highwater: _Place
    points: Annotated[tuple[RelayDigest, ...], AtMost(RELAY_POINTS_MAX)]
