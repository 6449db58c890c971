"""The systems whose rules the oracle checks, besides its own rules about replicated logs."""

from __future__ import annotations

from typing import Final

from octopi.simulation.invariants.agreement import AgreementRules
from octopi.simulation.invariants.node_load import NodeLoad
from octopi.simulation.invariants.queues import QueueRules
from octopi.simulation.invariants.registers import RegisterRules
from octopi.simulation.invariants.relays import RelayRules
from octopi.simulation.invariants.subscriptions import SubscriptionRules
from octopi.simulation.invariants.system import SystemInvariants
from octopi.simulation.invariants.topic_options import TopicOptionRules

SYSTEMS: Final[tuple[type[SystemInvariants], ...]] = (
    NodeLoad,
    TopicOptionRules,
    SubscriptionRules,
    QueueRules,
    RegisterRules,
    AgreementRules,
    RelayRules,
)
"""They get each event in this order, after the oracle's own rules."""
