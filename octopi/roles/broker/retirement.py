"""Puts away the files of replicas that this broker gives up: keeps them for a while, or deletes
them."""

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
        """Put away the replicas that an earlier incarnation of *broker* gave up; return the
        partitions whose files are not all moved or deleted.

        Raises:
          StorageError: if the partition was placed on this broker again while only some files of
              the replica were moved, so it can't begin.
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
        """Move the files of a replica to `octopi.roles.broker.retired_replicas`, or delete them if
        they shall not be kept or the disk is full.  Its logs are not in use from here on.
        *replica*: None if it has not begun in this incarnation.

        Raises:
          StorageError: if the disk fails; the call can be repeated.
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
            return True  # some of its files have been moved already
        wanted = retired.keep_s > 0 and not self._status.disk.trouble
        return wanted and self._opening.holds_logs(partition_id)

    async def _move_away(self, partition_id: PartitionId, logs: list[LocalLog]) -> None:
        """Move the files of a replica to the retired ones, with all records that its *logs* took.

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
        # Logs of deleted topics are not moved.
        await self._opening.deletion.delete(lambda log: log.partition == partition_id)
        if (ends := self._opening.ends.get(partition_id)) is not None:
            try:
                await ends.sync()
            except StorageError as error:  # the file of ends then has less than what is true
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
        """Delete the *logs* of a replica, its file of ends and its state file.

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
