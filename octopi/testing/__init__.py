"""Runs a whole cluster in your own test, in virtual time, with faults: see docs/testing.md.

::

    @octopi.testing.simulated(seeds=100)
    async def test_an_order_outlives_its_leader(cluster: octopi.testing.Cluster) -> None:
        async with cluster.client() as client, client.producer() as producer:
            receipt = await producer.send("orders", b"three umbrellas", partition=0)
            cluster.kill(cluster.leader("orders", receipt.partition))
            await producer.send("orders", b"a hat")
"""

from octopi.simulation.faults.actions import Action
from octopi.simulation.history.events import HistoryError
from octopi.simulation.kernel.world import Violation
from octopi.testing.cluster import Cluster
from octopi.testing.crash_points import crash_points
from octopi.testing.errors import HistoryViolation, MisuseError, StuckError
from octopi.testing.fault_draws import ALL_KINDS, KINDS
from octopi.testing.guided import guided
from octopi.testing.histories.append_lists import AppendListChecker
from octopi.testing.histories.contradictions import (
    Contradiction,
    ContradictionError,
    HistoryChecker,
    HistoryRule,
    Judgement,
    UndecidedError,
)
from octopi.testing.histories.counter import CounterChecker
from octopi.testing.histories.element_sets import SetChecker
from octopi.testing.histories.exactly_once import ExactlyOnceChecker
from octopi.testing.histories.operation_history import (
    ClientOperation,
    OperationHistory,
    OperationStatus,
)
from octopi.testing.histories.queues import QueueChecker
from octopi.testing.histories.registers import RegisterChecker
from octopi.testing.planned_faults import PlannedFault
from octopi.testing.program import Host, Program
from octopi.testing.running import cluster, run, runner, simulated
from octopi.testing.setup import Setup
from octopi.testing.triggers import Trigger

__all__ = [
    "ALL_KINDS",
    "KINDS",
    "Action",
    "AppendListChecker",
    "ClientOperation",
    "Cluster",
    "Contradiction",
    "ContradictionError",
    "CounterChecker",
    "ExactlyOnceChecker",
    "HistoryChecker",
    "HistoryError",
    "HistoryRule",
    "HistoryViolation",
    "Host",
    "Judgement",
    "MisuseError",
    "OperationHistory",
    "OperationStatus",
    "PlannedFault",
    "Program",
    "QueueChecker",
    "RegisterChecker",
    "SetChecker",
    "Setup",
    "StuckError",
    "Trigger",
    "UndecidedError",
    "Violation",
    "cluster",
    "crash_points",
    "guided",
    "run",
    "runner",
    "simulated",
]
