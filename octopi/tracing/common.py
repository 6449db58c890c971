"""What steps of several systems have in common."""

from __future__ import annotations

from octopi.tracing.step import Step, part


@part
class LogStep(Step):
    """Of one log."""

    topic: str
    topic_id: str
    partition: int


@part
class ReplicaLogStep(LogStep):
    """Of one log, in the epoch of the role that its replica plays; epoch 0: it plays none."""

    epoch: int


@part
class MarkStep(ReplicaLogStep):
    """Of the highwater mark of a log."""

    highwater: int
    log_end: int


@part
class CommitStep(MarkStep):
    """Of a commit: the mark, and whose acknowledgements it needs."""

    flushed_end: int
    in_sync: list[int]
    version: int
    proposed: list[int] | None


@part
class FilesStep(LogStep):
    """Of the files of a log."""

    log_end: int
    flushed_end: int


@part
class PartitionStep(Step):
    """Of one partition."""

    partition: int


@part
class EpochStep(PartitionStep):
    """Of one epoch of a partition's leadership."""

    epoch: int


@part
class MemberStep(Step):
    """Of one incarnation of a broker."""

    broker: int
    incarnation: int


@part
class BrokerStep(Step):
    """Of a broker."""

    broker: int
