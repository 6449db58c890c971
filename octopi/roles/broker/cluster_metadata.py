"""What a broker knows of its cluster: the decided partition records, and the addresses of brokers.

The broker keeps it on disk, because it continues without the register, and because a register that
lost its disk learns from it what existed.
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
    """The fields of the file."""

    partitions: list[Any]
    """The fields of one `PartitionRecord` each."""
    addresses: dict[BrokerId, str]


class ClusterMetadata:
    """The newest decision about each partition that this broker was sent, and brokers'
    addresses."""

    def __init__(self, environment: Environment, path: str) -> None:
        """Begin empty.  *path*: the path of the file."""
        self._disk = environment.disk
        self._path = path
        self.partitions: dict[PartitionId, PartitionRecord] = {}
        """The decisions, each of them durable."""
        self.addresses: dict[BrokerId, str] = {}
        """The addresses of brokers, as the register sent them last."""

    def load(self) -> None:
        """Read the file, if it exists.

        Raises:
          StorageError: if the file can't be read.
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
                # The register sends its decision again when the broker joins.
                _log.error("a decision was left out", file=self._path, why=why)
                continue
            self.partitions[decided.partition] = decided

    async def remember(self, records: list[PartitionRecord], brokers: list[BrokerInfo]) -> None:
        """Take over, durably, the decisions and addresses that are newer than the known ones.  If
        there are none, nothing is written.

        Raises:
          StorageError: if the disk fails.  Then no decision is taken over; the addresses are, but
              not durably.
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
        """Whether *decided*, or a later decision about its partition, is durable."""
        known = self.partitions.get(decided.partition)
        if known is None:
            return False
        return known == decided or ((known.epoch, known.version) > (decided.epoch, decided.version))

    def address_of(self, broker: BrokerId) -> str:
        """The address of a broker, as the register sent it last; empty if unknown."""
        return self.addresses.get(broker, "")
