"""What becomes of the files of a replica that this broker gives up: they are kept for a while, or
deleted."""

from __future__ import annotations

from octopi.environment import Environment
from octopi.errors import DiskFullError, StorageError
from octopi.identifiers import NO_EPOCH, BrokerId, PartitionId
from octopi.logger import get_logger
from octopi.roles.broker.broker_health import BrokerHealth
from octopi.roles.broker.cluster_metadata import ClusterMetadata
from octopi.roles.broker.deletion import doomed_log, remove_file
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.opening import Opening
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.roles.broker.replica_ends import ends_path
from octopi.tracing import steps

_log = get_logger(__name__)


class ReplicaRetirement:
    """Puts away the replicas of one data directory."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        opening: Opening,
        metadata: ClusterMetadata,
        status: BrokerHealth,
    ) -> None:
        self._environment = environment
        self._data_directory = data_directory
        self._opening = opening
        self._metadata = metadata
        self._status = status

    async def finish(self, broker: BrokerId) -> list[PartitionId]:
        """Put away what an earlier incarnation of *broker* gave up; return the partitions of which
        files are left.

        Raises:
          StorageError: if a replica has a place here again, and can't begin with a part of its
              files.
        """
        begun = self._opening.unmoved
        held = {
            one.partition for one in self._metadata.partitions.values() if broker in one.replicas
        }
        given_up = (self._opening.ends.keys() & self._metadata.partitions.keys()) - held
        left: list[PartitionId] = []
        for partition in sorted(given_up | begun):
            try:
                await self.put_away(PartitionId(partition), None)
            except StorageError as error:
                if partition in held:
                    raise
                left.append(partition)
                _log.error("replica still here", partition=partition, why=str(error))
        return left

    async def put_away(self, partition_id: PartitionId, replica: ReplicaDriver | None) -> None:
        """Have the files of a replica kept by `octopi.roles.broker.retired_replicas`, or deleted if
        that is not wanted or the disk is full.  Nobody uses its logs from here on.  *replica*: None
        if it has not begun in this incarnation.

        Raises:
          StorageError: if the disk fails: then it can be called again.
        """
        if (trace := self._environment.trace) is not None:
            trace(steps.J13Retiring(partition=partition_id))
        if replica is not None:
            await replica.settled()
        known = self._opening.logs
        logs = [known.pop(key) for key in list(known) if key[1] == partition_id]
        if self._is_to_be_kept(partition_id):
            await self._move_away(partition_id, logs)
        else:
            await self._delete(partition_id, logs)
        self._opening.give_up(partition_id)
        if trace is not None:
            trace(steps.J13Retired(partition=partition_id))
        _log.info("replica given up", partition=partition_id)

    def _is_to_be_kept(self, partition_id: PartitionId) -> bool:
        retired = self._opening.retired
        if partition_id in retired.begun():
            return True  # some of them are there already
        wanted = retired.keep_s > 0 and not self._status.disk.trouble
        return wanted and self._opening.holds_logs(partition_id)

    async def _move_away(self, partition_id: PartitionId, logs: list[LocalLog]) -> None:
        """Have the files of a replica kept, with all that its *logs* took.

        Raises:
          StorageError: if the disk fails.
        """
        trace = self._environment.trace
        for log in logs:
            if trace is not None:
                trace(steps.T7Removing(*doomed_log(log).log_fields))
            await log.put_away()
            if trace is not None:
                trace(steps.T7Removed(*doomed_log(log).log_fields))
        # Topics that were deleted: those don't go along.
        await self._opening.deletion.delete(lambda log: log.partition == partition_id)
        if (ends := self._opening.ends.get(partition_id)) is not None:
            try:
                await ends.sync()
            except StorageError as error:  # what is noted is less than what is there
                _log.error("what is durable was not noted", why=str(error))
            await ends.end()
            del self._opening.ends[partition_id]
        decided = self._metadata.partitions.get(partition_id)
        try:
            await self._opening.move_away(partition_id, decided.epoch if decided else NO_EPOCH)
        except DiskFullError:
            self._status.disk.suspect()
            raise

    async def _delete(self, partition_id: PartitionId, logs: list[LocalLog]) -> None:
        """Delete the *logs* of a replica, and what is noted of them.

        Raises:
          StorageError: if the disk fails.
        """
        for log in logs:
            self._opening.deletion.doom(log)
        if (ends := self._opening.ends.pop(partition_id, None)) is not None:
            await ends.end()
        path = ends_path(f"{self._data_directory}/replicas/{partition_id}")
        remove_file(self._environment.disk, path)
        await self._opening.deletion.delete(lambda log: log.partition == partition_id)
        self._opening.retired.forget_begun(partition_id)
