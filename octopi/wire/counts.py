"""Messages about how many messages a broker's logs have."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeNegative
from octopi.identifiers import Offset, PartitionId
from octopi.wire.common import Text
from octopi.wire.declarations import ANY_TOKEN, CLIENT_TO_LEADER, TO_CLIENT, answer, request


@attrs.frozen
class LogCount:
    """The number of committed messages that one log of a broker keeps."""

    topic: Text
    topic_id: Text
    partition: PartitionId
    log_start: Offset
    highwater: Offset
    count: int | None
    """How many messages lie between `log_start` and `highwater`; None: damage hides some, or the
    index of a segment is not complete at present."""


@request("count_messages", CLIENT_TO_LEADER, needs=ANY_TOKEN, since=2)
@attrs.frozen
class CountMessages:
    """Ask how many messages a broker's logs have.  Answer: `MessageCounts`."""

    request: int
    topic: Text
    """Count in logs of this topic only; empty: of all topics."""
    after_topic: Text
    after_partition: Annotated[int, MayBeNegative()]
    """See `octopi.wire.client.DescribeLogs`."""


@answer("message_counts", TO_CLIENT, since=2)
@attrs.frozen
class MessageCounts:
    """Answer to `CountMessages`."""

    request: int
    logs: Annotated[list[LogCount], AtMost(1_000)]
    more: bool
