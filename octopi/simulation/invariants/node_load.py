"""Bounds what a node holds for a peer, and how long a task delays the other tasks of a node.

======================= ================================================================
rule                    broken when
======================= ================================================================
bound-passed            a queue of a node is longer than its bound
                        (`octopi.simulation.invariants.queue_bounds`)
turn-too-long           a task reads so much before others have their turn that a node which
                        isn't simulated would stand still
======================= ================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.invariants.system import BreakRule, SystemInvariants
from octopi.simulation.kernel.host import LONG_TURN, OUT_OF_BOUNDS
from octopi.simulation.kernel.turn_meter import TURN_BYTES_MAX
from octopi.simulation.kernel.world import Event


class NodeLoad(SystemInvariants):
    """Handles what the hosts themselves report."""

    promises: ClassVar[Mapping[str, str]] = {
        "bound-passed": "what a node holds for a peer stays within its bounds",
        "turn-too-long": "a task lets others have their turn before it has read more than 3 MiB",
    }

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        super().__init__(cluster, break_rule)
        self.handlers.on_word(self._check_turn, LONG_TURN)
        self.handlers.on_word(self._check_bound, OUT_OF_BOUNDS)

    def _check_turn(self, event: Event) -> None:
        task, read_bytes = event.facts["task"], event.facts["read_bytes"]
        text = f"{event.host} reads {read_bytes:,} bytes in one turn of {task}, and all its other "
        text += f"tasks wait; at most {TURN_BYTES_MAX:,} are promised"
        self.break_rule("turn-too-long", text, event)

    def _check_bound(self, event: Event) -> None:
        facts = event.facts
        text = f"{event.host} holds {facts['size']:,} {facts['queue']} for one peer, and may hold "
        self.break_rule("bound-passed", f"{text}{facts['bound']:,}", event)
