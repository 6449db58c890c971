"""The committed records of one log, and the commits that they came with.

The oracle compares everything that replicas report and hold with these records
(`octopi.simulation.invariants.oracle`).
"""

from __future__ import annotations

from octopi.identifiers import Offset, PartitionId
from octopi.record import record_end, scan
from octopi.simulation.kernel.world import Event

Where = tuple[str, int]
"""A host, and the number of one of its processes."""


class CommittedLog:
    """All records of one log that were ever committed, except those whose loss was reported."""

    def __init__(self, topic: str, partition: PartitionId) -> None:
        self.topic = topic
        self.partition = partition
        self.data = bytearray()
        """The bytes of the records, from offset 0 on."""
        self.furthest_end = 0
        """The highest end so far: records may have been lost since."""
        self.commits: list[tuple[int, Event]] = []
        """The end and the event of each commit that went further than those before it, in order."""
        self.compared: set[tuple[Where, int]] = set()
        """Processes, each with an epoch in which its whole log was compared with these records."""
        self.highwater: dict[Where, int] = {}
        """Process -> its newest highwater mark."""
        self.opened_with: dict[Where, int] = {}
        """Process -> the highwater mark that was on the disk when it opened the log."""
        self.removed_end = 0
        """The offset below which records need not be kept any longer."""
        self.cut_count = 0
        """How often records were lost."""
        self._sequences: dict[tuple[bytes, int], int] = {}
        """Producer id and producer epoch -> the sequence that follows the committed records."""

    @property
    def name(self) -> str:
        """The topic and the partition, as messages show them."""
        return f"{self.topic}/{self.partition}"

    @property
    def end(self) -> int:
        """The end of the committed records."""
        return len(self.data)

    def committed_by(self, offset: Offset) -> tuple[Event, ...]:
        """The commit that included the byte at *offset*; empty if that byte isn't committed."""
        for end, event in self.commits:
            if end > offset:
                return (event,)
        return ()

    def record_end(self, offset: Offset) -> int:
        """The end of the committed record that begins at *offset*."""
        with memoryview(self.data) as data:
            return record_end(data, offset)

    def whole_records_end(self, offset: Offset) -> int:
        """The end of the last committed record that ends at or before *offset*, or else 0."""
        if offset >= self.end:
            return self.end
        position = max((until for until, _ in self.commits if until <= offset), default=0)
        while (behind := self.record_end(Offset(position))) <= offset:
            position = behind
        return position

    def next_sequence(self, producer: bytes, producer_epoch: int) -> int:
        """The sequence that follows the committed records of a producer."""
        return self._sequences.get((producer, producer_epoch), 0)

    def cut(self, end: int) -> None:
        """Forget the records from *end* on, whose loss was reported."""
        self.cut_count += 1
        del self.data[end:]
        self.commits = [(until, event) for until, event in self.commits if until <= end]
        self.compared.clear()
        self.highwater.clear()
        self.opened_with.clear()
        self._sequences.clear()
        for run in scan(bytes(self.data)).runs:
            producer = run.producer_id, run.producer_epoch
            self._sequences[producer] = run.first_sequence + run.count

    def extend(self, data: bytes, event: Event) -> tuple[str, str] | None:
        """Add *data*, which *event* committed; return the rule that this breaks and a description,
        or None."""
        found = scan(data)
        start = self.end
        self.data += data
        self.furthest_end = max(self.furthest_end, self.end)
        self.commits.append((self.end, event))
        if found.fault is not None:
            at = start + found.valid_bytes
            return "invalid-committed", f"the committed bytes at {at} are no record: {found.fault}"
        for run in found.runs:
            producer = run.producer_id, run.producer_epoch
            expected = self._sequences.get(producer, 0)
            if run.first_sequence != expected:
                return "committed-twice", (
                    f"sequence {run.first_sequence} of producer {run.producer_id.hex()[:8]} is "
                    f"committed at {start + run.start}, where {expected} was expected"
                )
            self._sequences[producer] = run.first_sequence + run.count
        return None


def agreement(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """The number of leading bytes that both have in common."""
    if one == other[: len(one)]:
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
