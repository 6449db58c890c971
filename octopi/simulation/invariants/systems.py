"""The systems whose rules the oracle holds, beside its own about replicated logs."""

from __future__ import annotations

from typing import Final

from octopi.simulation.invariants.node_load import NodeLoad
from octopi.simulation.invariants.subscriptions import SubscriptionRules
from octopi.simulation.invariants.system import SystemInvariants

SYSTEMS: Final[tuple[type[SystemInvariants], ...]] = (NodeLoad, SubscriptionRules)
"""In this order they are told of an event, behind the oracle's own rules."""
