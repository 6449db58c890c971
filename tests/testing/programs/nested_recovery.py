"""A till that finishes what a crash has left: the wrong one, if it has crashed twice in that, takes
the order for a new one.

No crash alone shows this bug: three have to strike, the last two while the program recovers.
"""

from __future__ import annotations

from octopi.testing import Cluster, Host
from tests.testing.programs.planted import Planted

ORDERS = 12


class Notes:
    """Outlive the program, as a database does."""

    def __init__(self) -> None:
        self.begun: int | None = None
        """The order that is being charged."""
        self.recoveries = 0
        """How many times its recovery has begun."""
        self.charged: list[int] = []


async def keep_till(cluster: Cluster, host: Host, notes: Notes, is_right: bool) -> None:
    if notes.begun is not None:
        await recover(cluster, host, notes, is_right)
    for order in range(ORDERS):
        if order in notes.charged:
            continue
        await cluster.sleep(0.1)
        host.step("asking")
        await cluster.sleep(0.1)
        notes.begun = order
        host.step("charging")
        notes.charged.append(order)
        notes.begun, notes.recoveries = None, 0
        host.step("charged")
        await cluster.sleep(0.1)


async def recover(cluster: Cluster, host: Host, notes: Notes, is_right: bool) -> None:
    order = notes.begun
    assert order is not None
    notes.recoveries += 1
    await cluster.sleep(0.02)
    host.step("recovering" if notes.recoveries == 1 else "recovering again")
    if notes.recoveries > 2 and not is_right:
        notes.charged.append(order)
    notes.charged.append(order)
    notes.begun, notes.recoveries = None, 0
    await cluster.sleep(0.02)
    host.step("recovered")


async def scene(cluster: Cluster, is_right: bool) -> None:
    notes = Notes()
    cluster.program("till", lambda host: keep_till(cluster, host, notes, is_right))
    with cluster.random_faults(["kill"], hosts=["till"]):
        await cluster.sleep(5)
    await cluster.sleep(10)
    assert notes.charged == list(range(ORDERS))


BUG = Planted("nested recovery", scene, ("till",), seed=1)
