"""The lives of named producers, as clients were told that they began.

Behind the answer that a life has begun in a log, nothing of an earlier one is committed there; and
no two lives are told the same epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from octopi.identifiers import PartitionId
from octopi.record import scan
from octopi.simulation.invariants.committed_log import CommittedLog
from octopi.tracing import steps

_Place = tuple[str, PartitionId, bytes]
"""Topic, partition and producer id."""


@attrs.frozen
class _Life:
    epoch: int
    end: int
    """What is stored of earlier lives lies before this offset."""
    loss_count: int
    """How often the log had lost records, or its topic was deleted, when the life began: with them
    its epoch may be lost."""


class ProducerLives:
    """The last life of each named producer in each log."""

    def __init__(self) -> None:
        self._lives: dict[_Place, _Life] = {}

    def began(self, step: steps.C15Began, log: CommittedLog | None, loss_count: int) -> str:
        """A client was told that a life has begun in *log* (None: nothing was committed there);
        return what is wrong with that, or nothing."""
        place = step.topic, step.partition, step.producer
        known = self._lives.get(place)
        if known is not None and known.loss_count == loss_count:
            if known.epoch == step.producer_epoch:
                return f"two lives have the producer epoch {known.epoch}"
            if known.epoch > step.producer_epoch:
                return ""  # its answer was long on its way
        life = self._lives[place] = _Life(step.producer_epoch, step.end, loss_count)
        # The answer took a while: records may have been committed since its epoch began.
        return "" if log is None else _former(log, step.end, {step.producer: life})

    def stored(self, log: CommittedLog, start: int, loss_count: int) -> str:
        """The records of *log* from *start* on were committed; return what is wrong with that, or
        nothing."""
        lives = {
            producer: life
            for (topic, partition, producer), life in self._lives.items()
            if (topic, partition) == (log.topic, log.partition) and life.loss_count == loss_count
        }
        return _former(log, start, lives) if lives else ""


def _former(log: CommittedLog, start: int, lives: Mapping[bytes, _Life]) -> str:
    """Which record of *log*, from *start* on, is of an earlier life than *lives* (by producer id)
    and lies behind the beginning of that; empty if there is none."""
    for run in scan(bytes(log.data[start:])).runs:
        life = lives.get(run.producer_id)
        at = start + run.start
        if life is not None and run.producer_epoch < life.epoch and at >= life.end:
            return (
                f"a record of producer epoch {run.producer_epoch} is committed at {at}, and "
                f"the life with epoch {life.epoch} began at {life.end}"
            )
    return ""
