"""What a topic's record says of its generations (`octopi.coordination.generations`)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, unique
from typing import Annotated, Final

import attrs

from octopi.field_bounds import AtMost, Grammar, Within, judged
from octopi.identifiers import PartitionId
from octopi.limits import (
    GENERATED_PARTITIONS_MAX,
    GENERATIONS_MAX,
    LIST_COUNT_MAX,
    OFFSET_MAX,
    PARTITIONS_PER_TOPIC_MAX,
)

_Partition = Annotated[PartitionId, Within(0, LIST_COUNT_MAX - 1)]
_End = Annotated[int, Within(0, OFFSET_MAX)]


@unique
class GenerationState(StrEnum):
    """How far a generation of a topic is.  The names are stored on disk."""

    PROPOSED = "proposed"
    """Brokers make the logs that are new in it."""
    SEALING = "sealing"
    """The logs of the generation before it are sealed."""
    IN_FORCE = "in_force"
    """Its logs take messages, or took them until the next generation came into force."""
    CANCELLED = "cancelled"
    """It never came into force, and never will."""


UNDER_WAY: Final = frozenset({GenerationState.PROPOSED, GenerationState.SEALING})
"""The states that the register brings forward."""


def generation_state_fault(text: str) -> str:
    """Why *text* is no state of a generation; empty if it is one."""
    return "" if text in set(GenerationState) else f"there are {', '.join(GenerationState)}"


GenerationStateText = Annotated[str, AtMost(16), Grammar(generation_state_fault)]
"""A `GenerationState`."""
GenerationNumber = Annotated[int, Within(1, GENERATIONS_MAX)]
"""Counts the generations of a topic."""
GenerationOrNone = Annotated[int, Within(0, GENERATIONS_MAX)]
"""0: none."""


@judged
@attrs.frozen
class Generation:
    """One list of partitions that a topic had, has, or is about to have.

    A key chooses a partition by its index in the list of the generation that is in force.  When the
    next one comes into force, keys may choose other partitions: the logs of this one are sealed
    before.  A log that is part of both goes on behind its sealed end."""

    number: GenerationNumber
    partitions: Annotated[list[_Partition], AtMost(PARTITIONS_PER_TOPIC_MAX)]
    state: GenerationStateText
    sealed: Annotated[list[_End], AtMost(PARTITIONS_PER_TOPIC_MAX)] = attrs.field(factory=list)
    """Where each log of `partitions` ended, in their order, when the next generation came into
    force.  Empty: none has."""

    def fault(self) -> str:
        """Why no register can decide this; empty if one can."""
        if not self.partitions or len(set(self.partitions)) < len(self.partitions):
            return f"its partitions are none, or not all different: {self.partitions}"
        if self.sealed and len(self.sealed) != len(self.partitions):
            return f"it has {len(self.partitions)} partitions and {len(self.sealed)} sealed ends"
        return ""


def generations_fault(known: Sequence[Generation], partitions: Sequence[PartitionId]) -> str:
    """Why no topic can have these generations while its messages go to *partitions*; empty if one
    can."""
    if not known:
        return ""
    if [one.number for one in known] != list(range(1, len(known) + 1)):
        return "its generations are not numbered from 1 on"
    if sum(len(one.partitions) for one in known) > GENERATED_PARTITIONS_MAX:
        return f"its generations have more than {GENERATED_PARTITIONS_MAX} partitions"
    in_force = [one for one in known if one.state == GenerationState.IN_FORCE]
    if not in_force or in_force[-1].partitions != partitions:
        return f"its partitions {partitions} are not those of the generation in force"
    if in_force[-1].sealed or not all(one.sealed for one in in_force[:-1]):
        return "not exactly the generations before the one in force have sealed ends"
    if any(one.sealed for one in known if one.state != GenerationState.IN_FORCE):
        return "a generation that is not in force has sealed ends"
    if any(one.state in UNDER_WAY for one in known[:-1]):
        return "a generation that is being brought into force is not the newest one"
    return ""
