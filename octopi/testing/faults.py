"""Faults of the hosts of a cluster, and of the network between them.

A fault happens at once and never waits, so it can happen in the middle of a step of a protocol
(`Faults.at`).  If a fault can't happen now (the host is down already, or its data is the last
intact copy of something committed), nothing happens and the call returns False; so a test that
draws its faults needn't check that before.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

import trio

from octopi.identifiers import PartitionId
from octopi.simulation.cluster import REGISTER, Node, SimulatedCluster
from octopi.simulation.faults.actions import (
    STEPS,
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
from octopi.testing.errors import MisuseError
from octopi.tracing.step import Step

_WHO: Final = ("any", "register", "broker", "leader", "follower", "client")
_CODE: Final = re.compile(r"[A-Z]\d+[a-z]?( .*)?")
"""Matches the text of a step of `octopi.tracing.steps`."""

_OF_PROCESSES: Final = (Kill, LosePower, Pause, RollBack, BitFlip, Stop, Wipe)

AtStep = Callable[[str], object]
"""The action at a step; called with the name of the host that takes the step."""


class Trigger:
    """An action that is to happen at a step."""

    def __init__(self, action: AtStep, who: str, occurrence: int) -> None:
        self.action = action
        self.who = who
        self.left = occurrence
        """How many times the step must still be taken."""
        self._happened = trio.Event()

    @property
    def happened(self) -> bool:
        """Whether the action has happened."""
        return self._happened.is_set()

    async def wait(self) -> None:
        """Return when the action has happened."""
        await self._happened.wait()

    def pull(self, host: str) -> None:
        """Run the action: the step was taken on *host*."""
        self._happened.set()
        self.action(host)


class Faults:
    """Faults of one cluster, by the names of its hosts."""

    def __init__(self, simulated: SimulatedCluster, *, can_pause: bool) -> None:
        self.can_pause = can_pause
        """Whether hosts can be paused in this event loop."""
        self._simulated = simulated
        self._world = simulated.world
        self._network = simulated.network
        self._last_copies = LastCopyGuard(simulated)
        self._injector = Injector(simulated, self._last_copies, ())
        self._healed = self._injector
        """The injector as it was when everything was healed for the last time."""
        self._immortal: set[str] = set()
        """Hosts of clients whose program is the test itself."""
        self._triggers: dict[str, list[Trigger]] = {}

    # --- names ---------------------------------------------------------------------------

    @property
    def register(self) -> str:
        """The host of the register."""
        return REGISTER

    @property
    def brokers(self) -> list[str]:
        """The hosts of the brokers: ``broker-1`` and so on."""
        return [node.name for node in self._simulated.brokers]

    @property
    def hosts(self) -> list[str]:
        """All hosts: the register, the brokers, then programs and clients in the order in which
        they were added."""
        return list(self._simulated.nodes)

    def is_up(self, host: str) -> bool:
        """Whether a process runs on *host*, even if it is paused."""
        return self._node(host).host.is_up

    def is_mortal(self, host: str) -> bool:
        """Whether *host* has a process that may be killed, running or not.  Clients of the test
        itself have none."""
        return self._node(host).name not in self._immortal

    def leader(self, topic: str, partition: int | None = None) -> str:
        """The host of the broker that leads a topic's partition, as the register decided last.
        That broker may be down.

        *partition* may be omitted for a topic with only one.

        Raises:
          MisuseError: if there is no such topic or partition, or if it has no leader yet.
        """
        number = self._partition(topic, partition)
        leader = self._simulated.leader(number)
        if not leader:
            raise MisuseError(f"no broker was appointed yet to lead {topic}/{number}")
        return leader

    def followers(self, topic: str, partition: int | None = None) -> list[str]:
        """The hosts of the other replicas of a topic's partition."""
        number = self._partition(topic, partition)
        record = self._simulated.decided.state.partitions[number]
        return [self._simulated.host_of(one) for one in record.replicas if one != record.leader]

    def _partition(self, topic: str, partition: int | None) -> PartitionId:
        state = self._simulated.decided.state
        found = state.topic(topic)
        if found is None:
            known = [one.topic for one in state.topics_after("", state.topic_count)]
            raise MisuseError(
                f"there is no topic {topic!r}; there is {', '.join(known) or 'none at all'}: "
                "make it first, with a client's create_topic"
            )
        if partition is None and len(found.partitions) == 1:
            return found.partitions[0]
        if partition not in found.partitions:
            has = f"{topic!r} has the partitions {', '.join(map(str, found.partitions))}"
            raise MisuseError(f"{has}: {'name one' if partition is None else f'not {partition}'}")
        return PartitionId(partition)

    def _node(self, host: str) -> Node:
        node = self._simulated.nodes.get(host)
        if node is None:
            names = ", ".join(self._simulated.nodes)
            raise MisuseError(f"there is no host {host!r}; there are {names}")
        return node

    def _process(self, host: str, what: str) -> Node:
        """The node on *host*, if its process may be ended or paused."""
        node = self._node(host)
        if host in self._immortal:
            raise MisuseError(
                f"can't {what} {host}: its program is the test itself; "
                "put what shall suffer that into a function, and start it with cluster.program"
            )
        return node

    # --- faults of hosts -----------------------------------------------------------------

    def kill(self, host: str, *, restart_s: float | None = None) -> bool:
        """End the process as SIGKILL does: what it has written to files and sent remains.  It is
        started again after *restart_s* seconds; None: only by `restart`."""
        node = self._process(host, "kill")
        return node.host.is_up and self.strike(Kill(restart_s), host)

    def lose_power(self, host: str, *, restart_s: float | None = None) -> bool:
        """Cut the power of the machine: data that was not synced may be lost, and peers aren't
        told."""
        node = self._process(host, "cut the power of")
        return node.host.is_up and self.strike(LosePower(restart_s), host)

    def stop(self, host: str, *, restart_s: float | None = None) -> bool:
        """Have the process end cleanly, as SIGTERM does: a broker first hands over its leaderships;
        the function of a program is cancelled."""
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
        return not self._process(host, "restart").host.is_up and self._simulated.boot(host)

    def pause(self, host: str, *, seconds: float = inf) -> bool:
        """Stop everything that the process does, as SIGSTOP does, for *seconds* or until `resume`.
        To others it looks as if the host hung: connections stay open.

        Raises:
          MisuseError: if Trio runs the event loop itself, where that isn't possible.
        """
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
            return self.strike(Wipe(None), host)
        self.kill(host)
        self._simulated.wipe(host)
        return True

    def fill_disk(self, host: str, *, seconds: float = inf) -> bool:
        """Leave no space on the disk for *seconds*, or until `heal`."""
        return self.strike(FillDisk(seconds), host)

    def strike(self, action: Action, host: str) -> bool:
        """Have any action of `octopi.simulation.faults.actions` happen to *host*: some have no
        method of their own in this class, such as faults of clocks and connections."""
        node = self._node(host)
        if isinstance(action, _OF_PROCESSES):
            self._process(host, type(action).__name__)
        if node.kind != "client":
            return not self._injector.act(action, host)
        match action:
            case Kill(restart_s) | LosePower(restart_s):
                return self._end_program(node, action, restart_s)
            case Stop(restart_s):
                return self.stop(host, restart_s=restart_s)
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

    def cut(self, host: str, other: str, *, seconds: float = inf, one_way: bool = False) -> bool:
        """Lose all packets between two hosts, for *seconds* or until `mend`.  *one_way*: only the
        packets that *host* sends."""
        self._node(other)
        return self.strike(Cut(other, seconds, "out" if one_way else "both"), host)

    def isolate(self, host: str, *, seconds: float = inf) -> bool:
        """Cut *host* off from all others."""
        return self.strike(Cut("others", seconds), host)

    def split(self, *groups: Iterable[str], seconds: float = inf) -> None:
        """Cut the connections between hosts of the *groups*, except between two hosts that are
        together in a group, for *seconds* or until `heal`.  A host in two groups is a bridge; a
        host in none is not affected."""
        members = [list(group) for group in groups]
        for group in members:
            for host in group:
                self._node(host)
        self._world.after(seconds, self._network.split(*members))

    def slow(
        self, host: str, other: str = "", *, latency_s: float = 0.2, seconds: float = inf
    ) -> bool:
        """Delay the packets between two hosts, or between one and all others, by *latency_s*."""
        if other:
            self._node(other)
        return self.strike(Slow(other or "others", seconds, latency_s), host)

    def mend(self, host: str, other: str) -> None:
        """End every `cut`, `isolate` and `split` between two hosts."""
        self._node(host), self._node(other)
        self._network.mend(host, other)
        self._network.mend(other, host)

    def heal(self) -> None:
        """End all faults, and start the register and the brokers that are down.  Actions that wait
        for a step (`at`) are dropped.  Programs that the test killed stay down."""
        self._triggers.clear()
        self._healed = self._injector
        self._healed.heal()
        self._injector = Injector(self._simulated, self._last_copies, ())

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

        *step*: a step of `octopi.tracing.steps` or its code, or one that a program names itself
        (`Host.step`).  *action* is called with the name of the host, and can't wait.  *who*: any,
        register, broker, client, a host's name, or leader or follower, of the partition that the
        step is about.

        Raises:
          MisuseError: if there is no such step or host, or *action* can't be called so.
        """
        self._check_action(action)
        if who not in _WHO:
            self._node(who)
        if occurrence < 1:
            raise MisuseError(f"occurrence is {occurrence}; it counts from 1")
        trigger = Trigger(action, who, occurrence)
        self._triggers.setdefault(_step(step), []).append(trigger)
        return trigger

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
            if self._injector.hosts.fits(one.who, event.host, event.get("partition")):
                one.left -= 1
                if not one.left:
                    assert waiting is not None
                    waiting.remove(one)
                    one.pull(event.host)


def _step(step: type[Step] | str) -> str:
    """The text of the event of *step*."""
    if not isinstance(step, str):
        return step.text
    if step in STEPS:
        return STEPS[step]
    if step in STEPS.values() or not _CODE.fullmatch(step):
        return step
    code = step.partition(" ")[0]
    edges = [one for one in STEPS if one[:-1] == code]
    near = edges or difflib.get_close_matches(code, STEPS) or list(STEPS)[:3]
    raise MisuseError(
        f"there is no step {step!r}; did you mean {', '.join(near)}? "
        "octopi.tracing.steps has them all"
    )
