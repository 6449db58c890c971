"""Messages between clients and a log's leader about the epochs of producers."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.field_bounds import AtMost, MayBeMissing
from octopi.identifiers import Offset, PartitionId
from octopi.limits import INPUT_BYTES_MAX
from octopi.model import LastRecord, Verb
from octopi.wire.common import Text
from octopi.wire.declarations import CLIENT_TO_LEADER, TO_CLIENT, answer, on_its_topic, request


@request("describe_producer", CLIENT_TO_LEADER, needs=on_its_topic(Verb.PUBLISH))
@attrs.frozen
class DescribeProducer:
    """Ask for the last epoch of a producer in a log, or begin a new one.

    Answer: `ProducerDescription`, once all that the leader held when it was asked is committed.
    """

    request: int
    topic: Text
    partition: PartitionId
    producer_id: Annotated[bytes, AtMost(16)]
    begins: bool
    """Whether to begin a new epoch: the one behind the last.  From then on the log takes no records
    of the producer with lower epochs."""
    after: int | None
    """Begin it only if this is the last epoch; otherwise the request is refused with
    ``producer_fenced``.  None: whatever the last one is."""
    of_pipe: Annotated[bool, MayBeMissing()] = False
    """Whether the answer tells what the log has of a pipe: `last` and the fields behind it."""


@answer("producer_description", TO_CLIENT)
@attrs.frozen
class ProducerDescription:
    """Answer to `DescribeProducer`."""

    request: int
    epoch: int | None
    """The last epoch, which may have begun without a record yet; None: the log doesn't know the
    producer."""
    next_sequence: int
    """The sequence that comes next in that epoch."""
    end: Offset
    """All that is stored of the producer's earlier epochs lies before this offset, and all before
    it is committed."""
    last: Annotated[LastRecord | None, MayBeMissing()] = None
    """The newest record of the producer in the log."""
    input: Annotated[bytes, AtMost(INPUT_BYTES_MAX), MayBeMissing()] = b""
    """The header of that record which says from which input it comes
    (`octopi.clients.piping.input_place`).  Empty: it has none, or retention has removed it."""
    forgets: Annotated[bool, MayBeMissing()] = False
    """Whether so many producers have written to the log that it has forgotten some."""
