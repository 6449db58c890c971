"""The steps by which a topic gets other partitions while it is in use.

Brokers make the new logs between V1 for ``proposed`` and V1 for ``sealing`` (T2, T3).
"""

from __future__ import annotations

from octopi.identifiers import Offset, PartitionId
from octopi.tracing.common import LogStep
from octopi.tracing.step import Step, part, step
from octopi.tracing.topics import PlacedTopicStep


@part
class TopicGenerationStep(PlacedTopicStep):
    """A step about the partitions of one generation of a topic."""

    generation: int
    state: str


@part
class SealStep(LogStep):
    """A step about a log that is sealed for a generation."""

    generation: int


@step("V1a register decides how far a generation of a topic is")
class V1Deciding(TopicGenerationStep):
    pass


@step("V1b register made durable how far a generation of a topic is")
class V1Decided(TopicGenerationStep):
    pass


@step("V2a leader seals a log")
class V2Sealing(SealStep):
    pass


@step("V2b leader has sealed a log, and all that it holds is committed")
class V2Sealed(SealStep):
    end: Offset


@step("V3 producer has settled all that it sent by former generations")
class V3Settled(Step):
    topic: str
    partitions: list[PartitionId]
    generation: int
