"""What was ever committed of one log, and by whom: the measure of everything that replicas say
and hold (`octopi.simulation.invariants.oracle`)."""

from __future__ import annotations

from octopi.identifiers import Offset, PartitionId
from octopi.record import record_end, scan
from octopi.simulation.kernel.world import Event

Where = tuple[str, int]
"""A host and its life."""


class CommittedLog:
    """The records of one log that were ever committed."""

    def __init__(self, topic: str, partition: PartitionId) -> None:
        self.topic = topic
        self.partition = partition
        self.data = bytearray()
        """From offset 0 on."""
        self.furthest_end = 0
        """Where they ended before some of them were lost."""
        self.commits: list[tuple[int, Event]] = []
        """How far each commit that got further reached."""
        self.compared: set[tuple[Where, int]] = set()
        """Lives and epochs whose log was compared as a whole."""
        self.highwater: dict[Where, int] = {}
        self.opened_with: dict[Where, int] = {}
        """The highwater mark that was on the disk when a life opened the log."""
        self.removed_end = 0
        """Retention may have removed what lies before: it had to be kept no longer."""
        self._sequences: dict[tuple[bytes, int], int] = {}

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.topic}/{self.partition}"

    @property
    def end(self) -> int:
        """Where the committed records end."""
        return len(self.data)

    def committed_by(self, offset: Offset) -> tuple[Event, ...]:
        """The commit that what lies at *offset* came with."""
        for end, event in self.commits:
            if end > offset:
                return (event,)
        return ()

    def record_end(self, offset: Offset) -> int:
        """Where the committed record at *offset* ends."""
        with memoryview(self.data) as data:
            return record_end(data, offset)

    def whole_records_end(self, offset: Offset) -> int:
        """Where the last committed record ends that lies before *offset* as a whole."""
        if offset >= self.end:
            return self.end
        position = max((until for until, _ in self.commits if until <= offset), default=0)
        while (behind := self.record_end(Offset(position))) <= offset:
            position = behind
        return position

    def next_sequence(self, producer: bytes, producer_epoch: int) -> int:
        """What follows the committed records of a producer."""
        return self._sequences.get((producer, producer_epoch), 0)

    def cut(self, end: int) -> None:
        """What lies behind *end* is lost, and that was told."""
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
        """*data* was committed, too; return the rule that this breaks, and how."""
        found = scan(data)
        start = self.end
        self.data += data
        self.furthest_end = max(self.furthest_end, self.end)
        self.commits.append((self.end, event))
        if found.fault is not None:
            at = start + found.valid_bytes
            return "invalid-committed", f"what is committed at {at} is no record: {found.fault}"
        for run in found.runs:
            producer = run.producer_id, run.producer_epoch
            expected = self._sequences.get(producer, 0)
            if run.first_sequence != expected:
                return "committed-twice", (
                    f"sequence {run.first_sequence} of producer {run.producer_id.hex()[:8]} is "
                    f"committed at {start + run.start}, where {expected} had to follow"
                )
            self._sequences[producer] = run.first_sequence + run.count
        return None


def agreement(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """How many leading bytes are the same."""
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
