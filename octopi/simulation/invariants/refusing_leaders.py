"""The leaders whose disks take no records, so that they can store nothing before a hand-over."""

from __future__ import annotations

from octopi.errors import Status
from octopi.identifiers import Epoch, PartitionId
from octopi.simulation.kernel.world import StepEvent
from octopi.simulation.step_handlers import StepHandlers
from octopi.tracing import steps


class RefusingLeaders:
    """Notes who resigned or said that a log is read-only: the only replica doesn't resign."""

    def __init__(self) -> None:
        self._epochs: dict[tuple[str, PartitionId], Epoch] = {}
        """Host and partition -> the epoch in which the disk refused the last records."""
        self.handlers = StepHandlers()
        self.handlers.on(self._note_resigned, steps.E19Resigning)
        self.handlers.on(self._note_refused, steps.P9Refusing)
        self.handlers.on(self._note_append, steps.P2Appended)

    def _note_resigned(self, event: StepEvent[steps.E19Resigning]) -> None:
        self._epochs[event.host, event.step.partition] = event.step.epoch

    def _note_refused(self, event: StepEvent[steps.P9Refusing]) -> None:
        if event.step.status == Status.LOG_READ_ONLY:
            self._epochs[event.host, event.step.partition] = event.step.epoch

    def _note_append(self, event: StepEvent[steps.P2Appended]) -> None:
        self._epochs.pop((event.host, event.step.partition), None)

    def has(self, host: str, partition: PartitionId, epoch: int) -> bool:
        """Whether the disk of *host*, which leads *partition* in *epoch*, takes no records."""
        return self._epochs.get((host, partition)) == epoch
