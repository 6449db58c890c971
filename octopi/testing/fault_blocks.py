"""Blocks of a test in which faults strike: drawn by chance, drawn by a search, or planned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.faults.actions import Action, Cut, Pause
from octopi.testing.clock_faults import ClockFaults
from octopi.testing.down_limit import DownLimit
from octopi.testing.fault_draws import KINDS
from octopi.testing.faults import OF_PROCESSES
from octopi.testing.planned_faults import PlannedFault
from octopi.testing.random_faults import (
    FaultPlan,
    FaultsOfRun,
    RandomFaults,
    StepCounter,
    StruckFault,
)
from octopi.testing.triggers import Trigger


class FaultBlocks(ClockFaults):
    """The faults of a cluster, with blocks of them."""

    def __init__(
        self, simulated: SimulatedCluster, faults: FaultsOfRun, *, can_pause: bool
    ) -> None:
        super().__init__(simulated, can_pause=can_pause)
        self._faults_of_run = faults

    @contextmanager
    def random_faults(
        self,
        kinds: Collection[str] = KINDS,
        *,
        every_s: float = 0.5,
        hosts: Collection[str] = (),
        at_most_down: int | None = None,
    ) -> Iterator[None]:
        """During the block, inject faults that are drawn from the seed; then `heal`.

        A fault is drawn every *every_s* seconds on average.  Half of the faults strike at once,
        half at a step: any that a node has taken before in this run.  All end by themselves within
        seconds.  *kinds*: some of `octopi.testing.KINDS`.  *hosts*: only these hosts; by default
        all hosts that exist when a fault is drawn.  *at_most_down*: a fault is left out that would
        take more of *hosts* down at once, by default of the brokers
        (`octopi.testing.down_limit.DownLimit`).

        Raises:
          MisuseError: if there is no such kind or host, or *at_most_down* is less than 1.
        """
        for host in hosts:
            self._node(host)
        limit = None if at_most_down is None else DownLimit(self._simulated, at_most_down, hosts)
        of_run = self._faults_of_run
        block = of_run.next_block()
        if of_run.plan is not None:
            # Faults that were made plainer strike at other moments, also behind the block.
            self.is_allowed = (lambda action, host: True) if limit is None else limit.allows
            with self._faults_of_plan(of_run.plan, block):
                yield
            return
        if of_run.draws is not None and of_run.draws.watches_waits:
            self.watch_waits()
        faults = RandomFaults(self, self._world, kinds, every_s, hosts, block, of_run, limit)
        self._world.observers.insert(0, faults)
        faults.start()
        try:
            yield
        finally:
            faults.end()
            self._world.observers.remove(faults)
            self.heal()

    @contextmanager
    def planned_faults(self, faults: Iterable[PlannedFault]) -> Iterator[None]:
        """During the block, have *faults* strike at their moments, counted from its beginning; then
        `heal`.  A fault whose moment doesn't come, or that can't strike then, is left out.

        `octopi.testing.strategies.fault_plans` draws such faults.

        Raises:
          MisuseError: if there is no such step.
        """
        is_over = False

        def strike(fault: PlannedFault, _: str = "") -> None:
            if not is_over and self._can_strike(fault.action, fault.host):
                self.strike_if_new(fault.action, fault.host)

        for fault in faults:
            act = partial(strike, fault)
            if fault.step:
                self._wait_for(fault.step, Trigger(act, fault.host, fault.occurrence))
            else:
                self._world.after(fault.after_s, act)
        try:
            yield
        finally:
            is_over = True
            self.heal()

    @contextmanager
    def _faults_of_plan(self, plan: FaultPlan, block: int) -> Iterator[None]:
        """Plan the faults of *plan* instead of drawing any."""
        counter = StepCounter()
        struck = self._faults_of_run.struck

        def note(fault: PlannedFault) -> None:
            struck.append(StruckFault(block, fault, counter.near(fault.host)))

        self.on_struck = note
        self._world.observers.insert(0, counter)
        for fault in plan.of_block(block):
            self.plan(fault)
        try:
            yield
        finally:
            if plan.heals:
                self.heal()

    def _can_strike(self, action: Action, host: str) -> bool:
        """Whether *host* is there, and can have such a fault."""
        nodes = self._simulated.nodes
        if host not in nodes or (isinstance(action, Pause) and not self.can_pause):
            return False
        if isinstance(action, Cut) and action.peer != "others":
            return action.peer in nodes and action.peer != host
        return not isinstance(action, OF_PROCESSES) or self.is_mortal(host)
