"""Messages between producers and a log's leader: records, and the epochs of producers."""

from __future__ import annotations

from typing import Annotated

import attrs

from octopi.conditions import Condition, LastRecord
from octopi.field_bounds import AtMost, MayBeMissing, Within
from octopi.identifiers import Epoch, Offset, PartitionId
from octopi.limits import GENERATIONS_MAX, INPUT_BYTES_MAX
from octopi.model import Verb
from octopi.wire.common import Records, Text
from octopi.wire.declarations import CLIENT_TO_LEADER, TO_CLIENT, answer, on_its_topic, request


@request("produce", CLIENT_TO_LEADER, needs=on_its_topic(Verb.PUBLISH))
@attrs.frozen
class Produce:
    """Append records.  Answer: `Produced`, once they are committed.

    The records are all of version 1, or all of version 2 and of one producer with
    consecutive sequences.

    With `expected_end` or `after` they are appended only if that holds of the log; otherwise the
    answer is ``condition_failed`` with the log's end, once all before that is committed.  A
    repetition of records that are stored is answered with their receipt in any case.
    """

    request: int
    topic: Text
    partition: PartitionId
    records: Records
    expected_end: Annotated[Offset | None, MayBeMissing()] = None
    """The log ends there: the first record gets this offset."""
    after: Annotated[LastRecord | None, MayBeMissing()] = None
    """This is the newest record of their producer in the log."""
    generation: Annotated[int, Within(0, GENERATIONS_MAX), MayBeMissing()] = 0
    """The generation of the topic by which the partition was chosen; 0: the producer knows none, so
    it is the first.  If the log is sealed for a later one, the answer is ``stale_route``."""
    forward: Annotated[bool, MayBeMissing()] = False
    """Whether a broker that doesn't lead the partition passes the request on to the leader, instead
    of naming it."""

    @property
    def condition(self) -> Condition | None:
        """What has to hold of the log; None: nothing."""
        if self.expected_end is None and self.after is None:
            return None
        return Condition(self.expected_end, self.after)


@answer("produced", TO_CLIENT)
@attrs.frozen
class Produced:
    """The records are committed, one behind the other."""

    request: int
    offset: Offset
    """The offset of the first record."""
    epoch: Epoch
    """The epoch of the leader that appended them."""
    duplicate: bool
    """Whether they had been appended before; then this repeats the first receipt."""
    id: Annotated[bytes, AtMost(16), MayBeMissing()] = b""
    """In a topic in memory: the id of the first record.  Empty: it is a log topic, or a repetition
    of which the first time is forgotten."""
    digest: Annotated[bytes, AtMost(32), MayBeMissing()] = b""
    """In a topic in memory: the digest of all records up to the last one of these."""


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
