"""What the oracle asks of who decides, however many nodes that are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from octopi.coordination.cluster_state import ClusterState
from octopi.identifiers import BrokerId, PartitionId
from octopi.simulation.kernel.world import Event
from octopi.wire.messages import PartitionRecord, TopicOptions, TopicRecord


class DecisionView(Protocol):
    """What has been decided for good, as an observer of a world.

    Who decides is the register (`octopi.simulation.invariants.register_view`), or the brokers
    together (`octopi.simulation.invariants.agreed_view`).
    """

    @property
    def kinds(self) -> set[str]:
        """The kinds of events to observe."""

    def __call__(self, event: Event) -> None:
        """Note *event*."""

    @property
    def active(self) -> str:
        """The host of the register that decides, or decided last; empty: none has yet."""

    @property
    def state(self) -> ClusterState:
        """What all decisions together lead to."""

    @property
    def version(self) -> int:
        """The number of changes of `state`."""

    @property
    def version_to_be(self) -> int:
        """The `version` when everything is decided for good that is being decided now."""

    @property
    def before(self) -> Mapping[PartitionId, PartitionRecord]:
        """For each partition the record before the one in `state`."""

    @property
    def records(self) -> Mapping[PartitionId, PartitionRecord]:
        """The newest record of each partition, including those that who decides has lost with its
        disks and has not learned again yet."""

    @property
    def options(self) -> Mapping[str, Mapping[tuple[int, int], TopicOptions]]:
        """For each topic, by its id, all options that it ever had, by their alterations
        (`TopicRecord.alteration`), including those that are being decided."""

    def incarnation(self, broker: BrokerId, partition: PartitionId) -> int:
        """The incarnation of *broker* that is registered, where *partition* is concerned; 0: none
        is."""

    def min_insync(self, partition: PartitionId) -> int:
        """The least number of replicas in sync that a topic in *partition* asks for, as who decides
        about leaders knows it."""

    def incarnation_to_be(self, broker: BrokerId) -> int:
        """The registered incarnation of *broker* when everything is decided for good that is being
        decided now; 0 if there is none."""

    def to_be(self, partition: PartitionId) -> list[PartitionRecord]:
        """Records of *partition* that are being decided."""

    def was_out_of_sync(self, partition: PartitionId, broker: BrokerId) -> int:
        """The last `version` in which *broker* was not in the partition's in-sync set; -1 if it was
        always in it."""

    def has_always_flushed(self, topic: TopicRecord) -> bool:
        """Whether *topic* was never acknowledged from a page cache."""
