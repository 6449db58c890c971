"""Runs a plan and returns the verdict.

A run has two phases.  In the first, clients work while faults are injected.  Then everything is
healed, or everything except one broker, and the run demands progress: within a bound of virtual
time nothing is pending, all replicas are in sync and hold the same bytes, new messages are taken,
and consumers are at the end.  Last, the clients' history is checked against what a cluster
promises.

If several rules are broken, the verdict names a broken promise about data before a lack of
progress.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import attrs

from octopi.coordination.shedding import SheddingRules
from octopi.errors import RefusedError, Status, StorageError
from octopi.roles.register.election_driver import MAY_BE_LOST
from octopi.simulation.cluster import ClusterOptions, Node, SimulatedCluster
from octopi.simulation.faults.data_safety import LastCopyGuard
from octopi.simulation.faults.injector import Injector
from octopi.simulation.history.checker import check
from octopi.simulation.history.events import History
from octopi.simulation.kernel import driver
from octopi.simulation.kernel.host import is_ordinary
from octopi.simulation.kernel.schedule import Fifo, Random
from octopi.simulation.kernel.world import Event, Violation, World
from octopi.simulation.network.network import Network
from octopi.simulation.run import RESTART_S, TIERS, LeftoverTasksError, running_cluster
from octopi.storage.flush_policy import FlushOptions
from octopi.tracing import steps
from sim.run.client_log import ClientLog
from sim.run.coverage_marks import CoverageMarks
from sim.run.healing import Healer
from sim.run.log_errors import comes_of_older_disks, listening
from sim.run.plan import Plan
from sim.run.relay_checks import RelayChecks
from sim.run.ring_checks import RingChecks
from sim.run.trials import Trials
from sim.run.workload import Workload

Observer = Callable[[Event], None]
"""Called with every event of a run, or with those that its attribute ``kinds`` names.  To end the
run it calls `World.fail` with a `Violation`."""

ObserverMaker = Callable[[SimulatedCluster], Observer]

LIVENESS_S: Final = 90.0
"""How long each step of progress may take after healing (virtual seconds)."""

_BOOT_S: Final = 10.0
"""How long clients wait, at most, until the whole cluster serves; faults may prevent that."""
_QUICK_SHEDDING: Final = SheddingRules(
    interval_s=0.1, average_s=0.5, rest_s=0.5, load_min=0.0, light=0.0
)
"""The rules of shedding in runs, which last some seconds."""
_LOOK_S: Final = 0.02
_SHOWN_COUNT: Final = 5
_KEEP_RETIRED_S: Final = 2.0
"""How long brokers keep retired replicas: so short that many runs see them deleted, too."""

_STANDSTILLS: Final = {one.__name__ for one in (driver.DeadlockError, driver.SpinningError)}


@attrs.frozen
class Verdict:
    """The result of a run."""

    plan: Plan
    violation: Violation | None
    """The rule that was broken; None: none was."""
    outside: Violation | None
    """The broken rule that shows without the oracle: by the clients' history or the errors they
    got, by a crash of a client, or by a lack of progress; None: no rule."""
    details: str
    """A longer text about the violation; or empty."""
    digest: str
    """A digest of all events; the same for each run of the same plan."""
    seconds: float
    """How long the run took (virtual time)."""
    counts: dict[str, int]
    """How many events of the history, and injected faults, there were of each kind."""
    marks: dict[str, int]
    """How often each of `sim.run.coverage_marks.MARKS` was hit."""
    events: tuple[Event, ...] = attrs.field(repr=False, eq=False)
    """The last events of the run."""
    history: History = attrs.field(repr=False, eq=False)
    """The clients' history."""

    @property
    def rule(self) -> str:
        """The name of the broken rule, or empty."""
        return self.violation.rule if self.violation else ""


def simulate(
    plan: Plan,
    observers: Sequence[ObserverMaker] = (),
    *,
    events_kept: int | None = 20_000,
    outlives_crashes: bool = False,
    checks_invariants: bool = True,
) -> Verdict:
    """Run *plan* to its end; *observers* are called with every event of it.

    A server that crashes because of a bug ends the run.  With *outlives_crashes* it is started
    again instead, to see what clients notice.  *checks_invariants*: whether nodes and clients check
    the invariants of their machines after each event; in production they don't.
    """
    world = World(plan.seed, events_kept=events_kept)
    world.outlives_crashes = outlives_crashes
    world.checks_invariants = checks_invariants
    network = Network(world, TIERS[plan.tier], latency_s=plan.latency_s, jitter_s=plan.jitter_s)
    run = _PlanRun(world, network, plan, observers)
    schedule = Fifo() if plan.order == "fifo" else Random(world.random("schedule"))
    try:
        with listening(run.is_excused, run.complain):
            driver.run(world, run.main, schedule)
    except BaseException as error:
        if error is not world.failure:
            raise  # a bug of the simulator
        run.broken = _as_violation(error)
    return run.verdict()


def _as_violation(error: BaseException) -> Violation:
    if isinstance(error, Violation):
        return error
    kind = type(error).__name__
    if kind in _STANDSTILLS:
        return Violation(kind, str(error))
    return Violation("exception", "".join(traceback.format_exception(error)))


class _PlanRun:
    def __init__(
        self, world: World, network: Network, plan: Plan, observers: Sequence[ObserverMaker]
    ) -> None:
        self.broken: Violation | None = None
        self._world = world
        self._network = network
        self._plan = plan
        self._observers = observers
        self._complaints: list[str] = []
        self._marks = CoverageMarks()
        self._stuck: Violation | None = None
        self._crash: Violation | None = None
        self._losses_told = 0
        """How many of the register's log lines about possible loss belong to decisions that were
        not seen yet."""
        self._counts: Counter[str] = Counter()
        self._cluster: SimulatedCluster
        self._injector: Injector
        self._client_log: ClientLog
        self._workload: Workload
        self._healer: Healer
        self._ring: RingChecks
        self._relays: RelayChecks

    # --- the course of a run ---------------------------------------------------------------

    async def main(self) -> None:
        """The whole run, inside the simulated world."""
        running = running_cluster(
            self._world,
            self._network,
            self._options(),
            around=self._build,
            boot_s=min(_BOOT_S, self._plan.faults_s),
        )
        try:
            async with running:
                self._workload.start()
                await self._work()
                self._healer.cut_off = self._injector.heal(self._plan.cut_off)
                self._ring.cut_off = self._relays.cut_off = self._healer.cut_off
                try:
                    await self._rest()
                except Violation as error:
                    self._stuck = error
        except LeftoverTasksError as error:
            self.complain(str(error))

    def _options(self) -> ClusterOptions:
        plan = self._plan
        return ClusterOptions(
            brokers=plan.brokers,
            registers=plan.registers,
            founders=plan.founders,
            partitions=plan.partitions,
            replicas=plan.replicas,
            flush=FlushOptions(
                interval_s=plan.flush_interval_s, checkpoint_bytes=plan.checkpoint_bytes
            ),
            gather_s=plan.gather_s,
            rebalance_interval_s=plan.rebalance_interval_s,
            retention_check_interval_s=plan.retention_check_interval_s,
            keep_retired_s=_KEEP_RETIRED_S,
            snapshot_entries=plan.snapshot_entries,
            shedding=_QUICK_SHEDDING if plan.sheds else None,
        )

    def _build(self, cluster: SimulatedCluster) -> AbstractContextManager[None]:
        plan, world = self._plan, self._world
        self._cluster = cluster
        self._client_log = ClientLog(cluster, plan)
        self._workload = Workload(self._client_log)
        self._healer = Healer(self._client_log)
        self._ring = RingChecks(self._client_log)
        self._relays = RelayChecks(self._client_log)
        for make in self._observers:
            observer = make(cluster)
            world.observe(observer, getattr(observer, "kinds", None))
        world.observe(self._marks, self._marks.kinds)
        world.observe(self._see_exit, {"exit"})
        world.observe(self._see_decision, {steps.E8Decided.text})
        last_copies = LastCopyGuard(
            cluster,
            may_lose_all=plan.loses_all,
            may_lose_last=plan.loses_last,
            may_lose_every_disk=plan.loses_every_disk,
        )
        self._injector = Injector(cluster, last_copies, plan.faults)
        self._injector.arm()
        self._client_log.unfit = self._injector.unfit
        self._client_log.disks_fail = lambda: bool(self._injector.broken_disks)
        return nullcontext()

    async def _work(self) -> None:
        """Return when clients are done and every timed fault was injected, or when `Plan.faults_s`
        is over."""
        while self._world.now < self._plan.faults_s:
            if not self._injector.timed_count and not self._workload.unsent():
                break
            await self._world.sleep(_LOOK_S)

    async def _rest(self) -> None:
        """Demand progress after healing.

        Raises:
          Violation: "liveness", if a step takes longer than `LIVENESS_S`.
        """
        healer, workload = self._healer, self._workload
        healer.start()
        await self._until("unfit brokers can't be replaced", self._injector.replace_unfit)
        await self._until("servers don't serve", healer.not_serving)
        await self._until("brokers are not one ring", self._ring.fault)
        await self._until("replicas of lost brokers are not replaced", healer.unmoved)
        await self._until("clients wait", workload.unsent)
        await self._until("new messages are not taken", healer.unproven)
        if self._plan.loses_every_disk:
            await self._until("partitions have too few replicas", healer.too_few_replicas)
        await self._until("replicas are not in sync", healer.out_of_sync)
        healer.ask_who_serves()
        await self._until("partitions are not served", healer.unserved)
        await self._until("relays are not alike", self._relays.fault)
        await Trials(self._client_log, self._injector, workload, healer, self._until).run()
        self._client_log.all_well.set()
        await self._until("producers get no receipts", workload.unheard)
        await self._until("replicas differ", healer.differing)
        await self._until("deleted topics are on disks", healer.undeleted)
        await self._until("brokers list other topics", self._ring.unlisted)
        self._relays.look_again()
        await self._until("relays are not alike in the end", self._relays.fault)
        workload.read_all()
        await self._until("logs can't be read", lambda: "" if workload.is_read else "reading")
        ends = {log: healer.end(log) for log in self._client_log.logs} | self._relays.ends
        await self._until("consumers are behind", lambda: workload.unread(ends))
        await self._until("members are behind", lambda: workload.unprocessed(ends))
        workload.note_rest()

    async def _until(self, problem: str, missing: Callable[[], str]) -> None:
        """Wait until *missing* returns an empty text.

        Raises:
          Violation: "liveness", if that takes longer than `LIVENESS_S`; *problem* begins its text.
        """
        deadline = self._world.now + LIVENESS_S
        while True:
            what = missing()
            if not what:
                return
            if self._world.now > deadline:
                raise Violation("liveness", f"{problem} for {LIVENESS_S:g} s: {what}")
            await self._world.sleep(_LOOK_S)

    # --- what may not happen -----------------------------------------------------------

    def complain(self, what: str) -> None:
        """Note an error of a node that no injected fault excuses."""
        self._complaints.append(f"{self._world.now:.6f} {what}")

    def is_excused(self, host: str, message: str, facts: Mapping[str, Any]) -> bool:
        """Whether an injected fault explains that *host* logs the error *message* with *facts*."""
        is_register = self._cluster.nodes[host].kind == "register"
        if is_register and message == MAY_BE_LOST:
            self._losses_told += 1
            return self._plan.loses_all or self._plan.loses_last
        if self._plan.loses_all and is_register:
            return True
        unfit = map(self._cluster.broker_of, self._injector.unfit)
        if comes_of_older_disks(message, facts, {one for one in unfit if one is not None}):
            return True
        return host in self._injector.broken_disks | self._injector.unfit

    def _see_decision(self, event: Event) -> None:
        """Check that the register has logged each possible loss before it decided."""
        self._losses_told -= len(event.get("losses"))
        if self._losses_told < 0:
            self.complain(f"{event.host}'s log doesn't say what may be lost by {event.facts}")
            self._losses_told = 0

    def _see_exit(self, event: Event) -> None:
        if event.what != "exit":
            return
        node = self._cluster.nodes[event.host]
        assert node.life is not None
        error = node.life.error
        if error is not None and not is_ordinary(error):
            self._crash = self._crash or _as_violation(error)
            if node.kind == "client":  # it is not started again
                self._stuck = self._crash
                self._world.fail(self._crash)
        is_asked = node.kind == "client" or node.stop.is_set()
        if not (self._may_end(node, error) or (is_asked and error is None)):
            self.complain(f"{node.name} ended with {error!r}")
        if not (is_asked or node.name in self._injector.unfit or self._injector.is_gone(node.name)):
            self._cluster.boot_after(node.name, RESTART_S)

    def _may_end(self, node: Node, error: BaseException | None) -> bool:
        if isinstance(error, BaseExceptionGroup):
            return all(self._may_end(node, one) for one in error.exceptions)
        if isinstance(error, StorageError):
            return node.name in self._injector.broken_disks
        fenced = isinstance(error, RefusedError) and error.status == Status.BROKER_FENCED
        return fenced and node.name in self._injector.unfit

    # --- the end -------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """The result of the run."""
        history = self._client_log.history
        self._marks.look_back(history.events)
        violation, details = self.broken or self._crash, ""
        faults = check(history)
        stands_still = violation is not None and violation.rule in _STANDSTILLS
        outside = violation if stands_still else self._stuck
        if faults:
            outside = Violation(f"history {faults[0].rule.name}", str(faults[0]))
        elif outside is None and self._client_log.complaints:
            outside = Violation("complaint", self._client_log.complaints[0])
        if violation is None and faults:
            violation = outside
            details = "\n\n".join(one.explain(history) for one in faults[:_SHOWN_COUNT])
        complaints = [*self._complaints, *self._client_log.complaints]
        if violation is None and complaints:
            violation = Violation("complaint", complaints[0])
            details = "\n\n".join(complaints[:_SHOWN_COUNT])
        counts = Counter(type(one).__name__ for one in history.events)
        counts.update({f"fault {name}": n for name, n in self._injector.counts.items()})
        return Verdict(
            plan=self._plan,
            violation=violation or self._stuck,
            outside=outside,
            details=details,
            digest=self._world.digest,
            seconds=self._world.now,
            counts=dict(sorted(counts.items())),
            marks=dict(sorted(self._marks.counts.items())),
            events=tuple(self._world.events),
            history=history,
        )
