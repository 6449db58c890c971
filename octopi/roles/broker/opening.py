"""Opens what a broker's data directory holds, and compares it with what the files of ends list.

Whether a replica is intact depends on each of its logs: a log that is missing, too short or damaged
makes the replica count as not intact.  This is durable before anything is changed and before the
broker joins, so the register learns of it even if this process dies.  Nothing that may contain
records is deleted, except replicas that were given up; a directory that can't be used as a log is
renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from octopi.environment import Environment
from octopi.errors import AlteredTailError, StorageError
from octopi.identifiers import (
    NO_EPOCH,
    RING_LOGS,
    BrokerId,
    Epoch,
    Offset,
    PartitionId,
    TopicId,
    is_internal,
)
from octopi.limits import RETIRED_KEEP_S
from octopi.logger import get_logger
from octopi.replication.effects import ReplicaState
from octopi.roles.broker.deletion import (
    DELETED_SUFFIX,
    UNFINISHED,
    LogDeletion,
    names_in,
    remove_directory,
    remove_file,
)
from octopi.roles.broker.flusher import Flusher
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.log_files import (
    fault_of_age,
    has_segments,
    is_of_topic,
    log_directory,
    partition_number,
    restart_begun,
    stored_topic,
)
from octopi.roles.broker.making import LogMaking, NewLog
from octopi.roles.broker.replica_ends import ReplicaEnds, ends_path, topic_of
from octopi.roles.broker.replica_state import forget_intact, state_fields, stored_state
from octopi.roles.broker.retired_replicas import RetiredReplicas
from octopi.storage import checkpoint
from octopi.storage.checkpoint import DamagedCheckpointError
from octopi.storage.directories import make_durable_directory, sync_names
from octopi.storage.ends_file import EndsFile, NotedLog, load_ends
from octopi.storage.file_names import DAMAGED_SUFFIX
from octopi.storage.flush_policy import FlushOptions
from octopi.stored import topic_fields
from octopi.tracing import steps
from octopi.wire.messages import PartitionRecord, TopicRecord

_log = get_logger(__name__)


class Opening:
    """Opens logs, and keeps the files of ends up to date."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        flusher: Flusher,
        flush_options: FlushOptions,
        *,
        lost_power: bool,
        keep_retired_s: float = RETIRED_KEEP_S,
    ) -> None:
        self.logs: dict[tuple[str, PartitionId], LocalLog] = {}
        """The logs, by topic and partition."""
        self.ends: dict[PartitionId, ReplicaEnds] = {}
        """The files of ends, by partition."""
        self._environment = environment
        self._disk = environment.disk
        self._data_directory = data_directory
        self._flusher = flusher
        self._lost_power = lost_power
        self.deletion = LogDeletion(environment, data_directory, self.ends, self._flush_internal)
        """The logs that are to be deleted."""
        self._doubtful: set[PartitionId] = set()
        """Partitions with damaged files of ends, which may have listed more than can be read."""
        self.retired = RetiredReplicas(environment, data_directory, keep_retired_s)
        """The replicas that were given up and are kept for a while."""
        self.unmoved: set[PartitionId] = set()
        """Partitions of which not all files could be moved to `retired`."""
        self._lasting = {data_directory}
        """Directories that survive a power failure."""
        self.making = LogMaking(
            environment,
            flusher,
            flush_options,
            self.logs,
            self.ends,
            self._lasting,
            lost_power=lost_power,
        )
        """Makes new logs."""

    async def _flush_internal(self, partition_id: PartitionId) -> None:
        """Make the internal logs of a replica durable, up to their ends.

        Raises:
          StorageError: if the disk fails.
        """
        for name in RING_LOGS:
            if (log := self.logs.get((name, partition_id))) is not None:
                await log.flush()

    def partitions(self) -> list[PartitionId]:
        """The partitions that have any files here.

        Raises:
          StorageError: if the directories can't be read.
        """
        logs = names_in(self._disk, f"{self._data_directory}/logs")
        odd = [name for name in logs if partition_number(name) is None]
        if odd:
            _log.warning("what is no partition's was left alone", directory="logs", names=odd[:10])
        replicas = names_in(self._disk, f"{self._data_directory}/replicas")
        names = [*logs, *(name.partition(".")[0] for name in replicas)]
        self.unmoved = self.retired.begun()
        numbers = {*self.unmoved, *map(partition_number, names)}
        return [PartitionId(one) for one in sorted(one for one in numbers if one is not None)]

    def _was_given_up(
        self, partition_id: PartitionId, decided: PartitionRecord | None, broker: BrokerId | None
    ) -> bool:
        """Whether *broker* has given the replica up, so that its files are left over, according to
        the newest stored decision: *decided*, or the decision in the replica's own file."""
        newest = self._newest(partition_id, decided)
        return broker is not None and newest is not None and broker not in newest.replicas

    def _newest(
        self, partition_id: PartitionId, decided: PartitionRecord | None
    ) -> PartitionRecord | None:
        """The newest stored decision: *decided*, or the one in the replica's own file; None if
        *decided* is None."""
        if decided is None:
            return None
        try:
            own = stored_state(self._environment, self._replica_path(partition_id)).record
        except StorageError:
            own = None
        if own is not None and (own.epoch, own.version) > (decided.epoch, decided.version):
            return own
        return decided

    def holds_logs(self, partition_id: PartitionId) -> bool:
        """Whether a replica has logs that are worth keeping.  Empty internal logs are not.

        Raises:
          StorageError: if the directories can't be read.
        """
        root = f"{self._data_directory}/logs/{partition_id}"
        return any(
            not is_internal(name) or has_segments(self._disk, f"{root}/{name}")
            for name in names_in(self._disk, root)
        )

    async def move_away(self, partition_id: PartitionId, epoch: Epoch) -> None:
        """Move the files of a replica that was given up to `RetiredReplicas`.  The files are not in
        use any more.  *epoch*: of the decision that placed the partition elsewhere.

        Raises:
          StorageError: if the files can't be moved.
        """
        if (trace := self._environment.trace) is not None:
            trace(steps.J15Moving(partition=partition_id))
        self._lasting.discard(f"{self._data_directory}/logs/{partition_id}")
        folder = await self.retired.keep(partition_id, epoch)
        self.unmoved.discard(partition_id)
        if trace is not None:
            trace(steps.J15Moved(partition=partition_id, folder=folder))
        _log.info(
            "retired replica kept",
            partition=partition_id,
            folder=folder.rpartition("/")[2],
            keep_s=self.retired.keep_s,
        )

    async def _finish_giving_up(
        self, partition_id: PartitionId, decided: PartitionRecord | None
    ) -> None:
        """Move a replica that an earlier incarnation gave up, or what is left of it, or remove it.

        Raises:
          StorageError: if the files can't be moved or removed.
        """
        if partition_id in self.unmoved or (self.retired.keep_s and self.holds_logs(partition_id)):
            await self.move_away(partition_id, decided.epoch if decided else NO_EPOCH)
        self.give_up(partition_id)

    def give_up(self, partition_id: PartitionId) -> None:
        """Remove what is left of a replica that was given up.  A power failure may have brought
        back any of its files.  Logs that were set aside stay.

        Raises:
          StorageError: if the files can't be removed.
        """
        root = f"{self._data_directory}/logs/{partition_id}"
        for name in names_in(self._disk, root):
            if not name.endswith(DAMAGED_SUFFIX):
                remove_directory(self._disk, f"{root}/{name}")
        if not names_in(self._disk, root):
            self._lasting.discard(root)
            remove_directory(self._disk, root)
        path = self._replica_path(partition_id)
        for name in (ends_path(path), path):
            remove_file(self._disk, f"{name}.new")  # left by a process that died
            remove_file(self._disk, name)

    async def open(
        self, partition_id: PartitionId, decided: PartitionRecord | None, broker: BrokerId | None
    ) -> None:
        """Open the logs of one replica and compare them with its file of ends; or retire what is
        left of a replica that *broker* gave up.  *decided*: the newest decision about the partition
        in the table.

        Raises:
          StorageError: if the logs can't be found out, or the disk fails while the result is
              stored.
        """
        if partition_id in self.unmoved or self._was_given_up(partition_id, decided, broker):
            with suppress(StorageError):  # `ReplicaManager.set_identity` tries again, and logs it
                await self._finish_giving_up(partition_id, decided)
                return
        if partition_id in self.unmoved:
            return  # only a part of the replica is here
        ends = await self._open_ends(partition_id, decided.epoch if decided else NO_EPOCH)
        newest = self._newest(partition_id, decided)
        is_sole = newest is not None and newest.replicas == [broker]
        root = f"{self._data_directory}/logs/{partition_id}"
        left_out: set[str] = set()
        for name in names_in(self._disk, root):
            directory = f"{root}/{name}"
            try:
                if name.endswith(DELETED_SUFFIX):
                    self.deletion.leave(directory)
                elif "!" not in name:  # otherwise it was set aside
                    await self._open(directory, partition_id, ends, is_sole=is_sole)
            except StorageError as error:
                _log.error("log left out", directory=directory, why=str(error))
                left_out.add(directory)
                await self._forget_intact(partition_id)
        await self.deletion.try_again()
        opened = {log.topic_id for log in self.logs.values() if log.partition == partition_id}
        for topic_id in ends.topic_ids:
            noted = ends.noted(topic_id)
            if topic_id in opened or noted is None:
                continue
            await self._forget_intact(partition_id)
            if not noted.topic:
                await ends.remove(topic_id)
                continue
            try:
                topic = topic_of(noted.topic)
                directory = log_directory(self._data_directory, partition_id, topic.topic)
            except StorageError as error:
                # This directory never contained a log of that name.  Nothing is deleted.
                _log.error(
                    "a noted log is left out",
                    partition=partition_id,
                    topic_id=topic_id,
                    had_been_durable=noted.recovery_point,
                    why=str(error),
                )
                await ends.remove(topic_id)
                continue
            if directory in left_out:
                continue  # the register orders the log again
            _log.error("a log is gone", directory=directory, had_been_durable=noted.recovery_point)
            if (topic.topic, partition_id) not in self.logs:
                new = NewLog(directory, topic, partition_id)
                await self.making.make([new])
                if new.error is not None:
                    raise new.error

    async def _open(
        self, directory: str, partition_id: PartitionId, ends: ReplicaEnds, *, is_sole: bool
    ) -> None:
        topic, why = None, ""
        try:
            topic = stored_topic(self._environment, directory)
            if topic is not None:
                why = fault_of_age(self._disk, directory, TopicId(topic.topic_id), ends)
            elif names_in(self._disk, directory) in UNFINISHED:
                remove_directory(self._disk, directory)  # its creation was never finished
                return
            else:
                why = "it has no checkpoint"
        except DamagedCheckpointError as error:
            why = str(error)
        if why:
            topic = None
            if is_sole or not (self._lost_power or partition_id in self._doubtful):
                topic = await self._renew_checkpoint(directory, partition_id, ends, why)
        if topic is None:
            await self._set_aside(directory, partition_id, why)
            return
        begin = restart_begun(self._disk, directory)
        if begin is not None:
            # Note this before the files change: a noted segment that is missing is damage.
            await ends.set_back(TopicId(topic.topic_id), begin, Offset(0))
        try:
            log = await self.making.open(
                directory, topic, partition_id, ends, cut_altered=self._lost_power
            )
        except AlteredTailError as error:
            # The register must learn of it even if this process dies after the log is cut.
            _log.error("a log lost records", directory=directory, why=error.why)
            await self._forget_intact(partition_id)
            log = await self.making.open(directory, topic, partition_id, ends)
        try:
            await self._make_lasting(log, topic, directory, ends)
        except StorageError:
            await log.discard()
            raise
        if self._lost_power:
            # Otherwise the next start, if it isn't after a power failure, takes what is missing for
            # damage.
            ends.note_power_failure(log.topic_id, log.end)
        log.note_ends()
        log.note_checkpoint()
        self.logs[topic.topic, partition_id] = log

    async def _make_lasting(
        self, log: LocalLog, topic: TopicRecord, directory: str, ends: ReplicaEnds
    ) -> None:
        """Make durable what was found of a log and is going to be noted: its directory and its
        checkpoint.  A process that was killed may have left them in the page cache alone, and what
        is noted and lost with the power later would be damage.

        Raises:
          StorageError: if the disk fails.
        """
        noted = ends.noted(log.topic_id)
        if noted is None or noted.checkpoint != log.stored_checkpoint:
            await make_durable_directory(self._disk, directory, self._lasting)
            await sync_names(self._disk, directory)
        if noted is None:
            # The creation of the log was not finished, or the program that made it kept no file of
            # ends.
            await ends.add([topic])

    async def _renew_checkpoint(
        self, directory: str, partition_id: PartitionId, ends: ReplicaEnds, why: str
    ) -> TopicRecord | None:
        """Rebuild the checkpoint of the log in *directory*, whose own can't be used.  Return the
        topic of the log, or None if the file of ends lists too little for that.

        The file of ends has the epochs, and the sequences of producers are found by reading all
        records. Only producers without a record in the log are lost.

        Raises:
          StorageError: if the disk fails.
        """
        name = directory.rpartition("/")[2]
        listed = (ends.noted(topic_id) for topic_id in ends.topic_ids)
        found = [one for one in listed if one is not None and one.topic.get("topic") == name]
        if len(found) != 1 or found[0].checkpoint is None:
            return None
        topic, noted = topic_of(found[0].topic), found[0].checkpoint
        if not is_of_topic(self._environment, directory, TopicId(topic.topic_id)):
            return None
        _log.error(
            "a log's checkpoint can't be used and is made anew",
            directory=directory,
            why=why,
        )
        await self._forget_intact(partition_id)
        content = {
            "topic": topic_fields(topic),
            "number": noted.number + 1,
            "start": noted.start,
            # A recovery point below the start would say that a restart of the log was not finished.
            "recovery_point": min(noted.recovery_point, noted.start),
            "highwater": found[0].highwater,
            "epochs": [list(one) for one in noted.epochs],
        }
        await checkpoint.store(self._disk, f"{directory}/checkpoint", content)
        return topic

    async def _set_aside(self, directory: str, partition_id: PartitionId, why: str) -> None:
        """Rename a directory that can't be used as a log, since it may contain records."""
        await self._forget_intact(partition_id)
        parent, _, name = directory.rpartition("/")
        names = names_in(self._disk, parent)
        number = 1
        while f"{name}!{number}{DAMAGED_SUFFIX}" in names:
            number += 1
        kept = f"{directory}!{number}{DAMAGED_SUFFIX}"
        _log.error("a log can't be used and is set aside", directory=directory, kept=kept, why=why)
        try:
            self._disk.rename(directory, kept)
            await self._disk.sync_directory(parent)
        except OSError as error:
            raise StorageError(f"{directory} can't be set aside: {error}") from error

    async def _open_ends(self, partition_id: PartitionId, known_epoch: Epoch) -> ReplicaEnds:
        """Begin the replica's new file of ends, with the entries of the last one.

        Raises:
          StorageError: if a file can't be read or written.
        """
        disk, path = self._disk, self._replica_path(partition_id)
        logs = f"{self._data_directory}/logs/{partition_id}"
        state = await self._stored_state(partition_id, known_epoch)
        stored = load_ends(disk, ends_path(path))
        why = ""
        if stored is None:
            if state is not None and state.ends:
                why = f"{ends_path(path)} is gone"
            elif state is None and names_in(self._disk, logs):
                why = f"{path} is gone"
        elif state is None and stored.logs:
            why = f"{path} is gone"
        elif not (self._lost_power and stored.logs):  # else an entry was not synced
            why = stored.damage
        if stored is not None and stored.damage:
            self._doubtful.add(partition_id)
        if why:
            _log.error("a replica may lack records", partition=partition_id, why=why)
            await self._forget_intact(partition_id)
        return await self.begin_ends(partition_id, stored.logs if stored is not None else {})

    async def begin_ends(
        self, partition_id: PartitionId, logs: Mapping[str, NotedLog]
    ) -> ReplicaEnds:
        """Begin a replica's file of ends, durably, with the entries *logs*.

        Raises:
          StorageError: if the disk fails.
        """
        path = ends_path(self._replica_path(partition_id))
        file = EndsFile(self._disk, path, logs)
        await file.store()
        ends = self.ends[partition_id] = ReplicaEnds(self._environment, file, self._flusher)
        return ends

    async def _stored_state(
        self, partition_id: PartitionId, known_epoch: Epoch
    ) -> ReplicaState | None:
        """The stored state of the replica; None if it is new.  A damaged file is replaced: the
        replica then counts as not intact, and has promised the epoch of the partition table."""
        path = self._replica_path(partition_id)
        try:
            names = names_in(self._disk, f"{self._data_directory}/replicas")
            known = stored_state(self._environment, path)
        except DamagedCheckpointError as error:
            _log.error("a replica may lack records", partition=partition_id, why=str(error))
            known = ReplicaState(promised=known_epoch, intact=False, whole=False)
            await checkpoint.store(self._disk, path, state_fields(known))
        return known if str(partition_id) in names else None

    async def _forget_intact(self, partition_id: PartitionId) -> None:
        await forget_intact(self._environment, self._replica_path(partition_id))

    def _replica_path(self, partition_id: PartitionId) -> str:
        return f"{self._data_directory}/replicas/{partition_id}"
