"""What a broker knows of its cluster: the table of partitions as decided, and where brokers are.

It is kept on disk, because a broker goes on while the register is away, and tells a register that
lost its disk what existed.
"""

from __future__ import annotations

from typing import Any

import attrs

from octopi.environment import Environment
from octopi.identifiers import BrokerId, PartitionId
from octopi.logger import get_logger
from octopi.storage import checkpoint
from octopi.stored import partition_fields
from octopi.wire.codec import fault_in
from octopi.wire.messages import BrokerInfo, PartitionRecord

_log = get_logger(__name__)


@attrs.frozen
class _Stored:
    """What is in the file."""

    partitions: list[Any]
    """The fields of a `PartitionRecord` each."""
    addresses: dict[BrokerId, str]


class ClusterMetadata:
    """The newest decision about each partition that a broker heard of, and brokers' addresses."""

    def __init__(self, environment: Environment, path: str) -> None:
        """Empty; *path*: of its file."""
        self._disk = environment.disk
        self._path = path
        self.partitions: dict[PartitionId, PartitionRecord] = {}
        """What was decided, and is on the device."""
        self.addresses: dict[BrokerId, str] = {}
        """Where brokers are, by their number, as the register said last."""

    def load(self) -> None:
        """Read the file, if there is one.

        Raises:
          StorageError: if it can't be read.
        """
        content = checkpoint.load(self._disk, self._path)
        if content is None:
            return
        stored = checkpoint.structured(self._path, content, _Stored)
        self.addresses = stored.addresses
        for fields in stored.partitions:
            try:
                decided = PartitionRecord(**fields)
                why = fault_in(decided)
            except TypeError as error:
                why = f"fields are missing or unknown: {error}"
            if why:
                # The register tells what it decided when the broker joins.
                _log.error("a decision was left out", file=self._path, why=why)
                continue
            self.partitions[decided.partition] = decided

    async def remember(self, records: list[PartitionRecord], brokers: list[BrokerInfo]) -> None:
        """Take over, durably, what is newer than what is known; nothing is written if nothing is.

        Raises:
          StorageError: if the disk fails: then the decisions are not taken over, and the addresses
              are, but not durably.
        """
        table = dict(self.partitions)
        for decided in records:
            known = table.get(decided.partition)
            if known is None or (known.epoch, known.version) <= (decided.epoch, decided.version):
                table[decided.partition] = decided
        addresses = self.addresses | {one.broker: one.address for one in brokers}
        if table == self.partitions and addresses == self.addresses:
            return
        state: dict[str, Any] = {
            "partitions": [partition_fields(one) for one in table.values()],
            "addresses": addresses,
        }
        try:
            await checkpoint.store(self._disk, self._path, state)
        finally:
            self.addresses = addresses
        self.partitions = table

    def knows(self, decided: PartitionRecord) -> bool:
        """Whether *decided*, or what was decided later, is on the device."""
        known = self.partitions.get(decided.partition)
        if known is None:
            return False
        return known == decided or ((known.epoch, known.version) > (decided.epoch, decided.version))

    def address_of(self, broker: BrokerId) -> str:
        """Where a broker is, as the controller said last; empty: not known."""
        return self.addresses.get(broker, "")
