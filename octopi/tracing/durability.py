"""The steps with which a replica makes something durable, and with which it recovers its files."""

from __future__ import annotations

from octopi.identifiers import Epoch, Offset
from octopi.tracing.common import FilesStep, LogStep, PartitionStep, ReplicaLogStep
from octopi.tracing.step import part, step
from octopi.wire.messages import PartitionRecord


@part
class PromiseStep(PartitionStep):
    """A step about the state of a replica (`octopi.replication.effects.ReplicaState`)."""

    promised: Epoch
    sync_flag: bool
    intact: bool
    whole: bool
    log_epoch: Epoch
    ends: bool
    record: PartitionRecord | None


@part
class CheckpointStep(FilesStep):
    """A step about the checkpoint of a log."""

    number: int
    highwater: Offset
    recovery_point: int
    epochs: list[list[int]]


@part
class SetAsideStep(ReplicaLogStep):
    """A step about records that are taken out of a log, because records before them are damaged."""

    log_end: Offset


@step("D1a log is flushed")
class D1Flushing(FilesStep):
    pass


@step("D1b log was flushed")
class D1Flushed(FilesStep):
    pass


@step("D2a replica stores its promise and its record")
class D2Promising(PromiseStep):
    pass


@step("D2b replica stored its promise and its record")
class D2Promised(PromiseStep):
    pass


@step("D3a log's epochs and producers are stored")
class D3Noting(CheckpointStep):
    pass


@step("D3b log's epochs and producers were stored")
class D3Noted(CheckpointStep):
    pass


@step("D4 old segments were removed")
class D4Retired(FilesStep):
    log_start: Offset


@step("D5a log is opened, and what is torn is cut")
class D5Recovering(LogStep):
    pass


@step("D5b log was opened")
class D5Recovered(FilesStep):
    log_start: Offset
    highwater: Offset
    epochs: list[list[int]]


@step("D6a replica takes what is damaged out of its log")
class D6SettingAside(SetAsideStep):
    pass


@step("D6b replica took what is damaged out of its log")
class D6SetAside(SetAsideStep):
    pass
