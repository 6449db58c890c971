"""Fields that steps of several systems share."""

from __future__ import annotations

from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset, PartitionId
from octopi.tracing.step import Step, part


@part
class LogStep(Step):
    """Of one log."""

    topic: str
    topic_id: str
    partition: PartitionId


@part
class ReplicaLogStep(LogStep):
    """Of one log, in the epoch in which its replica leads or follows; epoch 0: it does neither."""

    epoch: Epoch


@part
class MarkStep(ReplicaLogStep):
    """Of the highwater mark of a log."""

    highwater: Offset
    log_end: Offset


@part
class CommitStep(MarkStep):
    """Of a commit: the mark, and the replicas whose acknowledgements it needs."""

    flushed_end: int
    in_sync: list[BrokerId]
    version: int
    proposed: list[BrokerId] | None


@part
class FilesStep(LogStep):
    """Of the files of a log."""

    log_end: Offset
    flushed_end: int


@part
class PartitionStep(Step):
    """Of one partition."""

    partition: PartitionId


@part
class EpochStep(PartitionStep):
    """Of one epoch of a partition's leadership."""

    epoch: Epoch


@part
class MemberStep(Step):
    """Of one incarnation of a broker."""

    broker: BrokerId
    incarnation: Incarnation


@part
class BrokerStep(Step):
    """Of a broker."""

    broker: BrokerId
