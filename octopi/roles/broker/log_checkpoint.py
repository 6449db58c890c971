"""The checkpoint file of one log: the topic's record, the epoch history, the producers' sequences
and the point where recovery begins.  The segments contain none of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octopi.environment import Environment
from octopi.identifiers import Offset
from octopi.replication.log_state import LogState
from octopi.storage import checkpoint
from octopi.storage.ends_file import NotedCheckpoint
from octopi.stored import topic_fields
from octopi.tracing import steps
from octopi.wire.messages import TopicRecord

_TRACED = ("number", "highwater", "recovery_point", "epochs")


class LogCheckpoint:
    """Stores the checkpoints of the log in *directory*.  The caller ensures that they are stored
    one at a time."""

    __slots__ = ("_directory", "_environment", "_number", "recovery_point", "stored")

    def __init__(
        self,
        environment: Environment,
        directory: str,
        found: dict[str, Any],
        noted: NotedCheckpoint | None,
    ) -> None:
        """*found*: the fields of the file.  *noted*: the checkpoint that was stored last, if that
        is known; if it is newer than the file, the file was lost together with the log's folder."""
        self._environment = environment
        self._directory = directory
        self.recovery_point = Offset(found.get("recovery_point", 0))
        """The offset where recovery begins, according to the file."""
        self.stored = NotedCheckpoint(
            found.get("number", 0),
            Offset(found.get("start", 0)),
            self.recovery_point,
            tuple((epoch, start) for epoch, start in found.get("epochs", [])),
        )
        """The newest checkpoint that was stored."""
        if noted is not None and noted.number > self.stored.number:
            self.stored = noted
        self._number = self.stored.number
        """The number of the newest checkpoint that may have been stored."""

    def load(self) -> dict[str, Any]:
        """The fields of the file.  If storing a checkpoint failed, the file may have its fields or
        the older ones.

        Raises:
          StorageError: if the file can't be read.
        """
        found = checkpoint.load(self._environment.disk, checkpoint_path(self._directory)) or {}
        self.recovery_point = Offset(found.get("recovery_point", 0))
        return found

    def next(
        self, topic: TopicRecord, state: LogState, recovery_point: Offset, *, is_damaged: bool
    ) -> dict[str, Any]:
        """The fields of the next checkpoint, for *state* at this moment."""
        start, sequences = state.start, state.sequences
        if is_damaged:
            # The next opening notes the records behind the recovery point again, and takes a log
            # start beyond it for a restart that was not finished.
            start, sequences = min(start, recovery_point), sequences.before(recovery_point)
        # A checkpoint may take effect although storing it failed, so no number is used twice.
        self._number += 1
        return {
            "topic": topic_fields(topic),
            "number": self._number,
            "start": start,
            "highwater": state.highwater,
            "recovery_point": recovery_point,
            "epochs": state.epochs.dump(),
            "producers": sequences.dump(),
            "requests": sequences.dump_requests(),
        }

    def altered(self, topic: TopicRecord) -> dict[str, Any]:
        """The fields of the next checkpoint if only the *topic* has changed.

        Raises:
          StorageError: if the file can't be read.
        """
        fields = self.load()
        self._number += 1
        return fields | {"topic": topic_fields(topic), "number": self._number}

    async def store(self, fields: dict[str, Any], ends: Callable[[], dict[str, Any]]) -> None:
        """Store *fields*, which `next` returned.  *ends* returns the trace fields of the log.

        Raises:
          StorageError: if the disk fails.
        """
        traced = {key: fields[key] for key in _TRACED}
        if (trace := self._environment.trace) is not None:
            trace(steps.D3Noting(**ends(), **traced))
        await checkpoint.store(self._environment.disk, checkpoint_path(self._directory), fields)
        if trace is not None:
            trace(steps.D3Noted(**ends(), **traced))
        self.recovery_point = fields["recovery_point"]
        epochs = tuple((epoch, begin) for epoch, begin in fields["epochs"])
        self.stored = NotedCheckpoint(
            fields["number"], fields["start"], self.recovery_point, epochs
        )


def checkpoint_path(directory: str) -> str:
    """The path of the checkpoint file of the log in *directory*."""
    return f"{directory}/checkpoint"
