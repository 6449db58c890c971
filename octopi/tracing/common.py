"""Base classes of steps, with fields that the steps of several systems share."""

from __future__ import annotations

from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset, PartitionId
from octopi.tracing.step import Step, part


@part
class LogStep(Step):
    """A step about one log."""

    topic: str
    topic_id: str
    partition: PartitionId


@part
class ReplicaLogStep(LogStep):
    """A step about one log, in the epoch in which its replica leads or follows (0: neither)."""

    epoch: Epoch


@part
class MarkStep(ReplicaLogStep):
    """A step about the highwater mark of a log."""

    highwater: Offset
    log_end: Offset


@part
class CommitStep(MarkStep):
    """A step about a commit: the mark, and the replicas whose acknowledgements the commit needs."""

    flushed_end: int
    in_sync: list[BrokerId]
    version: int
    proposed: list[BrokerId] | None


@part
class FilesStep(LogStep):
    """A step about the files of a log."""

    log_end: Offset
    flushed_end: int


@part
class PartitionStep(Step):
    """A step about one partition."""

    partition: PartitionId


@part
class EpochStep(PartitionStep):
    """A step about one epoch of a partition."""

    epoch: Epoch


@part
class MemberStep(Step):
    """A step about one incarnation of a broker."""

    broker: BrokerId
    incarnation: Incarnation


@part
class BrokerStep(Step):
    """A step about a broker."""

    broker: BrokerId
