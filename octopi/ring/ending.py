"""How far the brokers of a cluster without a register are in handing it over to registers
(`docs/decisions/0136-brokers-hand-their-cluster-over-when-all-have-stated-it.md`).

It stands in the record of the cluster.  In each stage every broker states, once, that its part is
done; the last statement begins the next stage.  So the change to `ENDED` is the commit point: one
change of one agreed value, which is made only when all brokers have stated that all partitions are
closed.

==============  ================================================================================
stage           what a broker states
==============  ================================================================================
``resting``     in all partitions of the cluster, nothing more is decided about topics
``closing``     all of them are closed: nothing at all is decided about them.  Of those of which it
                has a replica it has stored the records, and the logs of exactly their topics
``ended``       nothing.  No value of the cluster changes any more, and brokers join registers
``given_up``    nothing.  The partitions are opened again
==============  ================================================================================
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum, unique
from typing import Any

import attrs

from octopi.errors import RefusedError, Status
from octopi.identifiers import BrokerId, address_fault
from octopi.limits import ADDRESS_BYTES_MAX, BOOK_COUNT, REGISTERS_MAX


@unique
class EndingStage(StrEnum):
    """See the module."""

    RESTING = "resting"
    CLOSING = "closing"
    ENDED = "ended"
    GIVEN_UP = "given_up"


@attrs.frozen
class Ending:
    """One attempt."""

    attempt: int
    """Counts them, from 1."""
    registers: tuple[str, ...]
    """The addresses of the registers."""
    brokers: tuple[BrokerId, ...]
    """All brokers of the cluster, in the order of their ids."""
    stage: EndingStage = EndingStage.RESTING
    stated: tuple[BrokerId, ...] = ()
    """The brokers that have stated what this stage asks for, likewise."""

    @property
    def is_under_way(self) -> bool:
        """Whether brokers decide, and nothing about the cluster or topics."""
        return self.stage in {EndingStage.RESTING, EndingStage.CLOSING}

    @property
    def is_over(self) -> bool:
        """Whether the cluster has registers, for good."""
        return self.stage is EndingStage.ENDED

    @property
    def refusal(self) -> RefusedError:
        """Why a new broker can't join the ring, which is no more."""
        return RefusedError(
            "this cluster has a register: start the broker with --register "
            f"{','.join(self.registers)}, and without --join",
            Status.WRONG_CLUSTER,
        )

    @property
    def missing(self) -> tuple[BrokerId, ...]:
        """The brokers that have stated nothing in this stage yet."""
        return tuple(one for one in self.brokers if one not in self.stated)

    def after(self, broker: BrokerId, attempt: int, stage: EndingStage) -> Ending:
        """The ending after *broker* has stated what *stage* of that *attempt* asks for."""
        if (attempt, stage) != (self.attempt, self.stage) or not self.is_under_way:
            return self
        if broker not in self.missing:
            return self
        stated = tuple(sorted({*self.stated, broker}))
        if stated != self.brokers:
            return attrs.evolve(self, stated=stated)
        resting = stage is EndingStage.RESTING
        following = EndingStage.CLOSING if resting else EndingStage.ENDED
        return attrs.evolve(self, stage=following, stated=())

    def given_up(self, attempt: int) -> Ending:
        """The ending after that *attempt* was given up, unless it is over."""
        if attempt != self.attempt or not self.is_under_way:
            return self
        return attrs.evolve(self, stage=EndingStage.GIVEN_UP, stated=())

    def fault(self) -> str:
        """Why there is no such ending; empty if there can be."""
        if not 0 < len(self.registers) <= REGISTERS_MAX:
            return f"a cluster is handed over to 1 to {REGISTERS_MAX} registers"
        for one in self.registers:
            if (why := address_fault(one)) or len(one.encode()) > ADDRESS_BYTES_MAX:
                return f"the address of a register: {why or 'it is too long'}"
        if self.attempt < 1 or not 0 < len(self.brokers) <= BOOK_COUNT:
            return f"1 to {BOOK_COUNT} brokers hand a cluster over, in attempts that are counted"
        if not (_is_sorted(self.brokers) and _is_sorted(self.stated)):
            return "brokers that hand over are not in the order of their ids"
        if not set(self.stated) < set(self.brokers):
            return "brokers have stated something that are not among those that hand over"
        return ""

    @property
    def fields(self) -> dict[str, Any]:
        """What stands in the record of the cluster."""
        return {
            "attempt": self.attempt,
            "registers": list(self.registers),
            "brokers": list(self.brokers),
            "stage": self.stage.value,
            "stated": list(self.stated),
        }


def ending_of(fields: Any) -> Ending:  # noqa: ANN401
    """The ending with these *fields*.

    Raises:
      ValueError: if they are none.
    """
    match fields:
        case {
            "attempt": int(attempt),
            "registers": [*registers],
            "brokers": [*brokers],
            "stage": str(stage),
            "stated": [*stated],
        } if len(fields) == 5 and all(type(one) is str for one in registers):
            if all(type(one) is int for one in [attempt, *brokers, *stated]):
                return Ending(
                    attempt,
                    tuple(registers),
                    tuple(map(BrokerId, brokers)),
                    EndingStage(stage),
                    tuple(map(BrokerId, stated)),
                )
    raise ValueError("it is no record of a cluster")


def _is_sorted(brokers: Collection[BrokerId]) -> bool:
    return list(brokers) == sorted(set(brokers))
