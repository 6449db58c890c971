"""What prevents a broker from working: a full disk, failed replicas, orders that it couldn't carry
out.

The broker reports these troubles to the register, and `octopi.admin` shows them.
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
    """The troubles of one broker.  The watch of its disk belongs to it."""

    def __init__(self, environment: Environment, data_directory: str) -> None:
        self._clock = environment.clock
        self.disk = DiskWatch(environment, data_directory)
        self._report = StatusReport()
        self._undone: dict[PartitionId, dict[str, str]] = {}
        """The orders of the register that failed on the disk: for each partition the reason, by
        topic id.  The empty topic id stands for the partition itself."""

    # --- what happens ----------------------------------------------------------------

    def joined(self) -> None:
        """Call this when a register has let the broker in.  The register knows no troubles of this
        broker yet, and repeats all its orders."""
        self._report = StatusReport()
        self._undone.clear()

    def refused(self, error: StorageError) -> None:
        """Note that a write or a flush failed on the disk."""
        if isinstance(error, DiskFullError):
            self.disk.suspect()
        else:
            self.disk.failed(error)

    def undone(
        self, error: StorageError, partitions: Iterable[PartitionId], topic_id: str | None = None
    ) -> Undone:
        """Note that an order couldn't be carried out; return the answer to the register.  The order
        is about the one partition in *partitions*, or about the topic *topic_id* in all of them."""
        if isinstance(error, DiskFullError):
            self.disk.suspect()
        reason = told(str(error), UNDONE_REASON_BYTES_MAX)
        numbers = list(partitions)
        for partition in numbers:
            self._undone.setdefault(partition, {})[topic_id or ""] = reason
        return Undone(numbers[0] if topic_id is None else None, topic_id or "", reason)

    def done(self, partition: PartitionId, topic_id: str = "") -> None:
        """Note that an order was carried out, perhaps after it had failed before."""
        failed = self._undone.get(partition)
        if failed is not None:
            failed.pop(topic_id, None)
            if not failed:
                del self._undone[partition]

    def removed(self, topic_ids: Collection[str]) -> None:
        """Forget the failed orders about these topics: they were deleted."""
        for partition in list(self._undone):
            for topic_id in self._undone[partition].keys() & set(topic_ids):
                self.done(partition, topic_id)

    def gave_up(self, partition: PartitionId) -> None:
        """Forget the failed orders about the partition: the broker is no replica of it any more."""
        self._undone.pop(partition, None)

    # --- what to report --------------------------------------------------------------

    def troubles(self, replicas: Iterable[ReplicaDriver]) -> dict[PartitionId, str]:
        """The partitions whose replicas take no records although the disk has space, with the
        reasons."""
        found = {partition: next(iter(why.values())) for partition, why in self._undone.items()}
        for replica in replicas:
            if replica.failure is not None:
                found[replica.partition] = f"{replica.failure}; restart the broker"
        return found

    def tell(self, replicas: Iterable[ReplicaDriver], post: Callable[[BrokerStatus], None]) -> None:
        """Post what the register doesn't know yet about the broker's state, if there is
        anything."""
        news = self._report.news(
            self._clock.now(), self.disk.trouble, self.disk.room(), self.troubles(replicas)
        )
        if news is not None:
            post(news)
