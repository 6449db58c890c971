"""Checks that brokers keep the replicas that they give up.

A broker that gives up a replica keeps its files for a while
(`octopi.roles.broker.retired_replicas`), unless its disk is full.  The check reads the broker's
disk.
"""

from __future__ import annotations

from collections.abc import Iterable

from octopi.identifiers import PartitionId
from octopi.roles.broker.retired_folders import DIRECTORY, parse
from octopi.simulation.cluster import DATA_DIRECTORY, SimulatedCluster
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.invariants.committed_log import CommittedLog
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.tracing import steps


class Retirements:
    """The replicas that brokers of *cluster* are giving up."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._ends: dict[tuple[str, int], dict[str, int]] = {}
        """Host and partition -> the end of each topic's log that has records."""

    def begins(self, event: StepEvent[steps.J13Retiring], logs: Iterable[CommittedLog]) -> None:
        """Note that a broker begins to give up the replica in *event*, which has the logs
        *logs*."""
        disk, partition = self._disk(event), event.step.partition
        ends = {
            log.topic: ReplicaBytes(disk, DATA_DIRECTORY, log.topic, partition).end for log in logs
        }
        self._ends[event.host, partition] = {topic: end for topic, end in ends.items() if end}

    def missing(self, event: StepEvent[steps.J13Retired], logs: Iterable[CommittedLog]) -> str:
        """A description of one of *logs* that is not kept after the replica was given up; empty if
        all are kept."""
        disk, partition = self._disk(event), event.step.partition
        ends = self._ends.pop((event.host, partition), {})
        roots = [f"{DATA_DIRECTORY}/{DIRECTORY}/{name}" for name in whole_ones(disk, partition)]
        for log in logs:
            end = ends.get(log.topic, 0)
            kept = [ReplicaBytes(disk, root, log.topic, partition).end for root in roots]
            if end and max(kept, default=0) < end:
                return f"{log.topic}/{partition}, which ended at {end}"
        return ""

    def _disk(self, event: Event) -> SimulatedDisk:
        return self._cluster.nodes[event.host].host.disk


def whole_ones(disk: SimulatedDisk, partition: PartitionId) -> list[str]:
    """The names of the folders in which replicas of *partition* are kept whole."""
    parsed = (parse(name) for name in retired_names(disk))
    return [one.name for one in parsed if one and one.partition == partition and one.is_whole]


def retired_names(disk: SimulatedDisk) -> set[str]:
    """The names of the folders of retired replicas that have files, with their suffixes."""
    return {path.split("/")[3] for path in disk.files(f"{DATA_DIRECTORY}/{DIRECTORY}")}
