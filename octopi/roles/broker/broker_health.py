"""What a broker knows of its own troubles: a full disk, failed replicas, orders not carried out.

The register hears of them, and so do people, over `octopi.admin`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from octopi.environment import Environment
from octopi.errors import DiskFullError, StorageError
from octopi.identifiers import PartitionId
from octopi.limits import UNDONE_REASON_BYTES_MAX
from octopi.roles.broker.disk_watch import DiskWatch
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.status_report import StatusReport
from octopi.transport.failures import told
from octopi.wire.messages import BrokerStatus, Undone


class BrokerHealth:
    """The troubles of one broker, with the watch of its disk."""

    def __init__(self, environment: Environment, data_directory: str) -> None:
        self._clock = environment.clock
        self.disk = DiskWatch(environment, data_directory)
        self._report = StatusReport()
        self._undone: dict[PartitionId, dict[str, str]] = {}
        """By partition, what the register ordered and the disk did not let be done: why, by the
        id of the topic, or, empty, for the partition itself."""

    # --- what happens ----------------------------------------------------------------

    def joined(self) -> None:
        """A register lets the broker in: it knows nothing of its troubles, and orders anew all
        that is to be done."""
        self._report = StatusReport()
        self._undone.clear()

    def refused(self, error: StorageError) -> None:
        """The disk did not take a write or a flush."""
        if isinstance(error, DiskFullError):
            self.disk.suspect()
        else:
            self.disk.failed(error)

    def undone(
        self, error: StorageError, partitions: Iterable[PartitionId], topic_id: str | None = None
    ) -> Undone:
        """An order about the one partition, or about that topic in *partitions* of this broker,
        could not be carried out; return what to answer."""
        if isinstance(error, DiskFullError):
            self.disk.suspect()
        reason = told(str(error), UNDONE_REASON_BYTES_MAX)
        numbers = list(partitions)
        for partition in numbers:
            self._undone.setdefault(partition, {})[topic_id or ""] = reason
        return Undone(numbers[0] if topic_id is None else None, topic_id or "", reason)

    def done(self, partition: PartitionId, topic_id: str = "") -> None:
        """An order was carried out, maybe after it had failed."""
        failed = self._undone.get(partition)
        if failed is not None:
            failed.pop(topic_id, None)
            if not failed:
                del self._undone[partition]

    def removed(self, topic_ids: Collection[str]) -> None:
        """Topics were deleted: that they could not be made is of no interest any more."""
        for partition in list(self._undone):
            for topic_id in self._undone[partition].keys() & set(topic_ids):
                self.done(partition, topic_id)

    def gave_up(self, partition: PartitionId) -> None:
        """The broker is no replica of the partition any more."""
        self._undone.pop(partition, None)

    # --- what is so ------------------------------------------------------------------

    def troubles(self, replicas: Iterable[ReplicaDriver]) -> dict[PartitionId, str]:
        """The partitions whose replicas take no records although the disk has space, and why."""
        found = {partition: next(iter(why.values())) for partition, why in self._undone.items()}
        for replica in replicas:
            if replica.failure is not None:
                found[replica.partition] = f"{replica.failure}; restart the broker"
        return found

    def tell(self, replicas: Iterable[ReplicaDriver], post: Callable[[BrokerStatus], None]) -> None:
        """Have the register told what it doesn't know yet, if there is anything."""
        news = self._report.news(
            self._clock.now(), self.disk.trouble, self.disk.room(), self.troubles(replicas)
        )
        if news is not None:
            post(news)
