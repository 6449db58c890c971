"""Faults of the hosts of a cluster, and of the network between them.

A fault happens at once, or at the moment that it is planned for (`Faults.kill`).  It never waits,
so it can happen in the middle of a step of a protocol (`Faults.at`).  If a fault can't happen now
(the host is down already, or its data is the last intact copy of something committed), nothing
happens and the call returns False; so a test that draws its faults needn't check that before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Final, Unpack

from octopi.simulation.cluster import Node, SimulatedCluster
from octopi.simulation.faults.actions import (
    Action,
    BitFlip,
    Cut,
    FillDisk,
    Kill,
    LosePower,
    Pause,
    RollBack,
    Slow,
    Stop,
    Wipe,
)
from octopi.simulation.faults.data_safety import LastCopyGuard
from octopi.simulation.faults.injector import FAULT, Injector
from octopi.simulation.kernel.world import Event
from octopi.testing.errors import MisuseError, NotStruckError
from octopi.testing.host_names import HostNames
from octopi.testing.host_words import is_word
from octopi.testing.planned_faults import Moment, PlannedFault
from octopi.testing.triggers import AtStep, Trigger, step_text
from octopi.testing.waits import WaitSteps, is_wait
from octopi.tracing.step import Step

_WHO: Final = ("any", "register", "broker", "leader", "follower", "client")
_VERBS: Final = {Kill: "kill", LosePower: "cut the power of", Stop: "stop", Pause: "pause"}
OF_PROCESSES: Final = (Kill, LosePower, Pause, RollBack, BitFlip, Stop, Wipe)
"""Faults that hosts of the test itself can't have."""


class Faults(HostNames):
    """Faults of one cluster, by the names of its hosts."""

    def __init__(self, simulated: SimulatedCluster, *, can_pause: bool) -> None:
        super().__init__(simulated)
        self.can_pause = can_pause
        """Whether hosts can be paused in this event loop."""
        self.on_struck: Callable[[PlannedFault], object] = lambda fault: None
        """Called with each planned fault when it has struck."""
        self.is_allowed: Callable[[Action, str], bool] = lambda action, host: True
        """Whether a planned fault may strike now."""
        self._world = simulated.world
        self._network = simulated.network
        self._last_copies = LastCopyGuard(simulated)
        self._injector = Injector(simulated, self._last_copies, ())
        self._healed = self._injector
        """The injector as it was when everything was healed for the last time."""
        self._triggers: dict[str, list[Trigger]] = {}
        self._waits: WaitSteps | None = None
        self._waiting: list[PlannedFault] = []
        """The planned faults whose moment has not come."""
        self._missed: list[str] = []
        """Why planned faults didn't strike."""

    # --- faults of hosts -----------------------------------------------------------------

    def kill(self, host: str, *, restart_s: float | None = None, **moment: Unpack[Moment]) -> bool:
        """End the process as SIGKILL does: what it has written to files and sent remains.  It is
        started again after *restart_s* seconds; None: only by `restart`.

        With a *moment* the fault is planned for it, and True is returned::

            cluster.kill("account", step="C1a", occurrence=2)

        A planned fault that has not struck when the test ends fails the test.
        """
        return self._have(Kill(restart_s), host, moment)

    def lose_power(
        self, host: str, *, restart_s: float | None = None, **moment: Unpack[Moment]
    ) -> bool:
        """Cut the power of the machine: data that was not synced may be lost, and peers aren't
        told.  *moment*: see `kill`."""
        return self._have(LosePower(restart_s), host, moment)

    def stop(self, host: str, *, restart_s: float | None = None, **moment: Unpack[Moment]) -> bool:
        """Have the process end cleanly, as SIGTERM does: a broker first hands over its leaderships;
        the function of a program is cancelled.  *moment*: see `kill`."""
        return self._have(Stop(restart_s), host, moment)

    def _stop(self, host: str, restart_s: float | None) -> bool:
        node = self._process(host, "stop")
        life = node.host.life
        if life is None or node.stop.is_set():
            return False
        if node.kind != "client":
            return self.strike(Stop(restart_s), host)
        self._world.note("stop", host, life.number)
        node.stop.set()
        life.scope.cancel()
        if restart_s is not None:
            self._simulated.boot_after(host, restart_s)
        return True

    def restart(self, host: str) -> bool:
        """Start the host's process again, from its beginning."""
        node = self._process(host, "restart")
        return not node.host.is_up and self._simulated.boot(node.name)

    def pause(self, host: str, *, seconds: float = inf, **moment: Unpack[Moment]) -> bool:
        """Stop everything that the process does, as SIGSTOP does, for *seconds* or until `resume`.
        To others it looks as if the host hung: connections stay open.  *moment*: see `kill`.

        Raises:
          MisuseError: if Trio runs the event loop itself, where that isn't possible.
        """
        return self._have(Pause(seconds), host, moment)

    def _pause(self, host: str, seconds: float) -> bool:
        node = self._process(host, "pause")
        if not self.can_pause:
            raise MisuseError(
                "hosts can be paused only where the simulator turns Trio's loop: "
                "use octopi.testing.run, simulated or runner"
            )
        life = node.host.life
        return life is not None and not life.is_paused and self.strike(Pause(seconds), host)

    def resume(self, host: str) -> bool:
        """Continue a paused process; timers that expired meanwhile expire now."""
        node = self._process(host, "resume")
        life = node.host.life
        if life is None or not life.is_paused:
            return False
        node.host.resume()
        return True

    def wipe(self, host: str) -> bool:
        """End the process and give it an empty disk; `restart` starts it.  A broker then has a new
        id: `Cluster.settle` gives it the replicas of the broker that ran there before."""
        node = self._process(host, "wipe")
        if node.kind != "client":
            return self.strike(Wipe(None), node.name)
        self.kill(node.name)
        self._simulated.wipe(node.name)
        return True

    def fill_disk(self, host: str, *, seconds: float = inf, **moment: Unpack[Moment]) -> bool:
        """Leave no space on the disk for *seconds*, or until `heal`.  *moment*: see `kill`."""
        return self._have(FillDisk(seconds), host, moment)

    def strike(self, action: Action, host: str) -> bool:
        """Have any action of `octopi.simulation.faults.actions` happen to *host*: some have no
        method of their own in this class, such as faults of clocks and connections."""
        node = self._node(host)
        host = node.name
        if isinstance(action, OF_PROCESSES):
            self._process(host, type(action).__name__)
        if node.kind != "client":
            return not self._injector.act(action, host)
        match action:
            case Kill(restart_s) | LosePower(restart_s):
                return self._end_program(node, action, restart_s)
            case Stop(restart_s):
                return self._stop(host, restart_s)
            case Wipe():
                return self.wipe(host)
        objection = self._injector.act(action, host)
        self._injector.broken_disks.discard(host)  # otherwise healing would end the program
        return not objection

    def _end_program(self, node: Node, action: Kill | LosePower, restart_s: float | None) -> bool:
        """Do what the injector does to a node, except that healing doesn't start programs."""
        if not node.host.is_up:
            return False
        self._world.note(FAULT, node.name, node.host.life_count, action=action)
        if isinstance(action, Kill):
            node.host.kill()
        else:
            node.host.lose_power()
        if restart_s is not None:
            self._simulated.boot_after(node.name, restart_s)
        return True

    # --- faults of the network -----------------------------------------------------------

    def cut(
        self,
        host: str,
        other: str,
        *,
        seconds: float = inf,
        one_way: bool = False,
        **moment: Unpack[Moment],
    ) -> bool:
        """Lose all packets between two hosts, for *seconds* or until `mend`.  *one_way*: only the
        packets that *host* sends.  *moment*: see `kill`."""
        other = self._node(other).name
        return self._have(Cut(other, seconds, "out" if one_way else "both"), host, moment)

    def isolate(self, host: str, *, seconds: float = inf, **moment: Unpack[Moment]) -> bool:
        """Cut *host* off from all others.  *moment*: see `kill`."""
        return self._have(Cut("others", seconds), host, moment)

    def split(self, *groups: Iterable[str], seconds: float = inf) -> None:
        """Cut the connections between hosts of the *groups*, except between two hosts that are
        together in a group, for *seconds* or until `heal`.  A host in two groups is a bridge; a
        host in none is not affected."""
        members = [[self._node(host).name for host in group] for group in groups]
        self._world.after(seconds, self._network.split(*members))

    def slow(
        self,
        host: str,
        other: str = "",
        *,
        latency_s: float = 0.2,
        seconds: float = inf,
        **moment: Unpack[Moment],
    ) -> bool:
        """Delay the packets between two hosts, or between one and all others, by *latency_s*.
        *moment*: see `kill`."""
        other = self._node(other).name if other else ""
        return self._have(Slow(other or "others", seconds, latency_s), host, moment)

    def mend(self, host: str, other: str) -> None:
        """End every `cut`, `isolate` and `split` between two hosts."""
        host, other = self._node(host).name, self._node(other).name
        self._network.mend(host, other)
        self._network.mend(other, host)

    def heal(self) -> None:
        """End all faults, and start the register and the brokers that are down.  Actions that wait
        for a step (`at`), and planned faults whose moment has not come, are dropped.  Programs that
        the test killed stay down."""
        self._triggers.clear()
        self._missed += [f"{one.code()}: everything was healed before" for one in self._waiting]
        self._waiting.clear()
        self._healed = self._injector
        self._healed.heal()
        self._injector = Injector(self._simulated, self._last_copies, ())

    # --- at a moment ---------------------------------------------------------------------

    def _have(self, action: Action, host: str, moment: Moment) -> bool:
        """Have *action* happen to *host*, now or at *moment*."""
        if not moment:
            return self.strike_if_new(action, self._node(host).name)
        if host in self._immortal and isinstance(action, OF_PROCESSES):
            self._process(host, _VERBS.get(type(action), type(action).__name__))
        self.plan(PlannedFault.at(action, host, moment))
        return True

    def strike_if_new(self, action: Action, host: str) -> bool:
        """`strike`, without a note of it if the host is already as *action* would make it."""
        match action:
            case Kill() | LosePower():
                up = self._process(host, _VERBS[type(action)]).host.is_up
                return up and self.strike(action, host)
            case Stop(restart_s=restart_s):
                return self._stop(host, restart_s)
            case Pause(seconds=seconds):
                return self._pause(host, seconds)
        return self.strike(action, host)

    def plan(self, fault: PlannedFault) -> None:
        """Have *fault* strike at its moment.

        Raises:
          MisuseError: if there is no such step.
        """
        strike = partial(self._strike_planned, fault)
        if fault.step:
            trigger = Trigger(lambda host: strike(), fault.host, fault.occurrence)
            self._wait_for(fault.step, trigger)
        else:
            self._world.after(fault.after_s, strike)
        self._waiting.append(fault)

    def _strike_planned(self, fault: PlannedFault) -> None:
        if not any(one is fault for one in self._waiting):
            return
        self._waiting = [one for one in self._waiting if one is not fault]
        try:
            host = self._node(fault.host).name
        except MisuseError as error:
            self._missed.append(f"{fault.code()}: {error}")
            return
        if self.is_allowed(fault.action, host) and self.strike_if_new(fault.action, host):
            self.on_struck(fault)
        else:
            self._missed.append(f"{fault.code()}: {fault.host} could not be struck at that moment")

    def check_planned(self) -> None:
        """Check that all planned faults have struck: a test that waits for a fault which doesn't
        come shows nothing.

        Raises:
          MisuseError: if one has not struck.
        """
        missed = list(self._missed)
        for fault in self._waiting:
            known = fault.host in self._simulated.nodes or is_word(fault.host)
            why = "its moment has not come" if known else f"there is no host {fault.host!r}"
            missed.append(f"{fault.code()}: {why}")
        if missed:
            lines = "\n".join(f"  {one}" for one in missed)
            raise NotStruckError(
                f"the test has passed, but not all of its planned faults have struck:\n{lines}\n"
                "choose other moments, or leave these lines out"
            )

    def watch_waits(self) -> WaitSteps:
        """Have the waits of programs be steps from now on: see `octopi.testing.waits`."""
        if self._waits is None:
            self._waits = WaitSteps(self._world, self._is_program)
            for name in filter(self._is_program, self.hosts):
                self._waits.watch_sends(self._node(name).host)
        return self._waits

    def _is_program(self, host: str) -> bool:
        return host not in self._immortal and self._node(host).kind == "client"

    # --- at steps ------------------------------------------------------------------------

    def at(
        self,
        step: type[Step] | str,
        action: AtStep,
        *,
        who: str = "any",
        occurrence: int = 1,
    ) -> Trigger:
        """Have *action* happen exactly when *who* takes *step* for the n-th time from now on,
        before the step has any consequence::

            cluster.at("P3a", cluster.kill, who="follower")

        *step*: a step of `octopi.tracing.steps` or its code, one that a program names itself
        (`Host.step`), or a wait of a program (`octopi.testing.waits`).  *action* is called with the
        name of the host, and can't wait.  *who*: any, register, broker, client, a host's name, or
        leader or follower, of the partition that the step is about.

        Raises:
          MisuseError: if there is no such step or host, or *action* can't be called so.
        """
        self._check_action(action)
        if who not in _WHO and not is_word(who):
            self._node(who)
        trigger = Trigger(action, who, occurrence)
        self._wait_for(step, trigger)
        return trigger

    def _wait_for(self, step: type[Step] | str, trigger: Trigger) -> None:
        if trigger.left < 1:
            raise MisuseError(f"occurrence is {trigger.left}; it counts from 1")
        if isinstance(step, str) and is_wait(step):
            self.watch_waits()
        self._triggers.setdefault(step_text(step), []).append(trigger)

    def _fits(self, who: str, event: Event) -> bool:
        if not is_word(who):
            return self._injector.hosts.fits(who, event.host, event.get("partition"))
        try:
            return self._node(who).name == event.host
        except MisuseError:
            return False  # nobody is that so far

    def _check_action(self, action: AtStep) -> None:
        if inspect.iscoroutinefunction(action):
            raise MisuseError("what happens at a step can't wait: give a plain function")
        try:
            inspect.signature(action).bind("a host")
        except TypeError as error:
            raise MisuseError(
                "what happens at a step is called with the name of the host that came to it, "
                f"such as `lambda host: cluster.kill(host)`: {error}"
            ) from None

    def came(self, event: Event) -> None:
        """Check whether *event* is a step that an action waits for.  Called with each event of the
        world.

        This must be the last of the world's observers, because the others see what the action does.
        """
        waiting = self._triggers.get(event.what)
        for one in list(waiting or ()):
            if self._fits(one.who, event):
                one.left -= 1
                if not one.left:
                    assert waiting is not None
                    waiting.remove(one)
                    one.pull(event.host)
