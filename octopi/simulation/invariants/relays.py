"""The rules of topics in memory (docs/relay.md): one order, nothing acknowledged that no quorum
has, nothing lost that the promise covers, and no fenced relay that serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.invariants.system import BreakRule, SystemInvariants


class RelayRules(SystemInvariants):
    """What `octopi.simulation.invariants.relay_view` finds broken."""

    promises: ClassVar[Mapping[str, str]] = {
        "relay-digest-wrong": "A digest is that of what was published, and stands for one history",
        "relay-written-wrongly": "Only members write, and only in the epoch of which they are part",
        "relay-forked": "What is committed of a stream is one sequence, in all epochs",
        "relay-doubled": "A message of a producer, and an id, is once in a stream",
        "relay-uncommitted": "Only what a quorum has written is acknowledged or delivered",
        "relay-fenced-serves": "A relay that hears no quorum acknowledges and delivers nothing",
        "relay-two-starts": "An epoch begins once, with one set",
        "relay-forgotten": "An epoch begins with all that was committed before",
        "relay-lost": "While no more relays are lost at once than a set can bear, nothing is lost",
        "relay-dead-timeline": "When a timeline has begun, nothing more is committed in older ones",
        "relay-timeline-again": "Each timeline is newer than all before that had a quorum",
    }

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        super().__init__(cluster, break_rule)
        cluster.relays.rules.append(self.break_rule)
