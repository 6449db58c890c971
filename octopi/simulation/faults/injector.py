"""Carries out faults exactly at the moments that they name.

The injector observes the world's steps, and the effects of the hosts that faults are aimed at.  It
acts at once, within the step: a host that is killed there does nothing that follows.  Each fault
strikes once.  A fault that can't strike (the host is down already, or its data is the last intact
copy: `octopi.simulation.faults.data_safety`) is noted as skipped, so the events show what really
happened.

The injector must be the last of the world's observers: the others then see a step before the fault
at that step.
"""

from __future__ import annotations

import errno
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from math import inf
from typing import Final

from octopi.identifiers import PartitionId, is_internal
from octopi.simulation.cluster import Node, SimulatedCluster
from octopi.simulation.disk.disk import DiskSnapshot
from octopi.simulation.disk.faults import Delay, DiskFault, Fail
from octopi.simulation.disk.image import Fate
from octopi.simulation.faults import damage, pending_faults
from octopi.simulation.faults.actions import (
    STEPS,
    Action,
    AtEffect,
    AtStep,
    AtTime,
    BitFlip,
    BlackholeAccepts,
    BreakDisk,
    CorruptLink,
    Cut,
    DriftClock,
    FillDisk,
    InjectedFault,
    JumpClock,
    Kill,
    LosePower,
    Pause,
    ProtectDisk,
    Refuse,
    Reset,
    RollBack,
    Slow,
    Stop,
    SwizzleClog,
    When,
    Wipe,
)
from octopi.simulation.faults.damage import Damage
from octopi.simulation.faults.data_safety import LastCopyGuard
from octopi.simulation.faults.host_selector import HostSelector
from octopi.simulation.faults.pending_faults import PendingFault
from octopi.simulation.faults.route_faults import RouteFaults
from octopi.simulation.faults.spare_hosts import can_be_replaced, is_needed
from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps

FAULT: Final = "fault"
SKIPPED: Final = "fault skipped"
HEALED: Final = "healed"
"""The names of the events."""


class Injector:
    """Injects *faults* into *cluster*, as far as *last_copies* allows."""

    def __init__(
        self, cluster: SimulatedCluster, last_copies: LastCopyGuard, faults: Iterable[InjectedFault]
    ) -> None:
        self.broken_disks: set[str] = set()
        """Hosts whose disk failed: their processes may end because of that, or stop leading and
        following."""
        self._restarted: set[str] = set()
        """The hosts of them whose processes must be restarted when the disk works again.  A disk
        that was only full may have space again, and its process continues."""
        self.unfit: set[str] = set()
        """Hosts with a disk that no register may accept: an operator has to give them an empty
        one."""
        self.counts: Counter[str] = Counter()
        """The number of faults that were injected, and of those that were skipped, by kind."""
        self.timed_count = 0
        """The number of faults that wait only for their time."""
        self.hosts = HostSelector(cluster)
        """Finds the hosts that faults are aimed at."""
        self._routes = RouteFaults(cluster)
        self._cluster, self._world = cluster, cluster.world
        self._last_copies = last_copies
        self._faults = tuple(faults)
        self._at_steps: dict[str, list[PendingFault]] = defaultdict(list)
        self._conditions: list[tuple[When, int]] = []
        self._acknowledged_count = 0
        self._version_seen = -1
        self._is_over = False
        self._cut_off = ""
        self._gone: list[str] = []
        """Hosts that shall never start again, if the others can do without them."""
        self._ended: list[str] = []
        """Hosts that shall not start again before everything is healed."""
        self._snapshots: dict[tuple[str, float], DiskSnapshot] = {}
        self._copied_in: dict[tuple[str, float], int] = {}
        """How many processes the host of a snapshot had had."""
        self._flushed = damage.Flushed()
        self._world.observe(self._flushed, self._flushed.kinds)

    # --- places --------------------------------------------------------------------------

    def arm(self) -> None:
        """Let the faults strike from now on."""
        self._world.observers.append(self)
        for number, fault in enumerate(self._faults):
            if not (number and pending_faults.is_behind(fault)):
                self._arm(number, None, None)
            if isinstance(fault.action, RollBack | Damage):
                self._world.at(fault.action.taken_s, partial(self._copy, fault.action.taken_s))

    def _arm(self, number: int, here: str | None, partition: PartitionId | None) -> None:
        """Wait for the place of a fault.  *here* and *partition* are the host and the partition of
        the fault before it, if it waited for that."""
        fault = self._faults[number]
        match fault.place:
            case AtTime(seconds, behind):
                at = self._world.now + seconds if behind else seconds
                self.timed_count += 1
                self._world.at(at, partial(self._come, number, here, partition))
            case AtStep(step, who, occurrence):
                self._at_steps[STEPS[step]].append(PendingFault(number, who, occurrence))
            case AtEffect():
                self._watch_effects(number, fault.place)
            case When():
                self._conditions.append((fault.place, number))

    def _come(self, number: int, here: str | None, partition: PartitionId | None) -> None:
        """The place of a fault is reached: the fault strikes, and those behind it wait for their
        places."""
        fault = self._faults[number]
        self.timed_count -= isinstance(fault.place, AtTime)
        if self._is_over:
            return
        target = self.hosts.target(fault.target, here, partition)
        self._strike(fault, target, partition)
        following = number + 1
        if following < len(self._faults) and pending_faults.is_behind(self._faults[following]):
            self._arm(following, target, partition)

    def _copy(self, taken_s: float) -> None:
        for node in self._cluster.servers:
            self._snapshots[node.name, taken_s] = node.host.disk.snapshot()
            self._copied_in[node.name, taken_s] = node.host.life_count

    def __call__(self, event: Event) -> None:
        """Check whether a fault is due at *event*."""
        waiting = self._at_steps.get(event.what)
        if waiting:
            partition = event.get("partition")
            for one in list(waiting):
                if one.comes(self.hosts.fits(one.who, event.host, partition)):
                    waiting.remove(one)
                    self._come(one.number, event.host, partition)
        if self._conditions:
            self._look_at_conditions(event)

    def _watch_effects(self, number: int, place: AtEffect) -> None:
        waiting = PendingFault(number, place.who, place.occurrence)

        def observe(life: ProcessLife, operation: str, edge: str, path: str) -> None:
            if edge != place.edge or place.operation not in {"", operation}:
                return
            host = life.host.name
            if waiting.left and waiting.comes(self.hosts.fits(place.who, host, None)):
                self._come(number, host, None)

        for node in self._cluster.nodes.values():
            if self.hosts.may_fit(place.who, node):
                # A copy of the list, because this effect may be the one that is being observed.
                node.host.effect_observers = [*node.host.effect_observers, observe]

    def _look_at_conditions(self, event: Event) -> None:
        self._acknowledged_count += isinstance(event.about, steps.P7Acknowledged)
        for one in list(self._conditions):
            when, number = one
            # A fault is an event, too, and may have made other conditions true.
            if one in self._conditions and self._holds(when, event):
                self._conditions.remove(one)
                self._come(number, event.host, event.get("partition"))

    def _holds(self, when: When, event: Event) -> bool:
        records, step = self._cluster.decided.state.partitions.values(), event.about
        match when.condition:
            case "acknowledged":
                return self._acknowledged_count >= when.count
            case "epoch":
                return any(record.epoch >= when.count for record in records)
            case "in_sync":
                return any(len(record.in_sync) <= when.count for record in records)
            case "lag" if isinstance(step, steps.P2Forwarding):
                return step.end - step.highwater >= when.count
        return False

    # --- striking ------------------------------------------------------------------------

    def act(self, action: Action, target: str) -> str:
        """Have *action* happen to *target* now; return why it can't, or an empty text."""
        fault = InjectedFault(AtTime(self._world.now), action, target)
        return self._strike(fault, self.hosts.target(target, None, None), None)

    def _strike(self, fault: InjectedFault, target: str, partition: PartitionId | None) -> str:
        if self._is_over:
            return "all was healed"
        kind = type(fault.action).__name__
        if not target:
            return self._skip(fault, "", "there is no such host")
        node = self._cluster.nodes[target]
        objection = self._objection(node, fault)
        if objection:
            return self._skip(fault, target, objection)
        self.counts[kind] += 1
        self._world.note(FAULT, target, node.host.life_count, action=fault.action)
        self._act(fault, node, partition)
        return ""

    def _skip(self, fault: InjectedFault, target: str, why: str) -> str:
        self.counts["skipped"] += 1
        self._world.note(SKIPPED, target, action=fault.action, why=why)
        return why

    def _objection(self, node: Node, fault: InjectedFault) -> str:
        """Why *fault* can't happen to *node*; empty if it can."""
        action = fault.action
        of_disk = Wipe | RollBack | BitFlip | BreakDisk | FillDisk | ProtectDisk | Damage
        if node.kind == "client" and isinstance(action, of_disk):
            return "a client keeps nothing"
        if self._cluster.is_ring and isinstance(action, Wipe):
            return "its replicas would be replaced after ten minutes"
        if isinstance(action, Damage):
            if not self._damageable(node, action):
                return f"it has no {action.part} that may be {action.harm}"
            if not action.touches_records:
                return ""
            return self._last_copies.objection(node.name, action)
        if isinstance(action, Wipe | RollBack | BitFlip):
            if node.kind == "register" and isinstance(action, RollBack):
                return "nobody else has its journal"
            if isinstance(action, RollBack) and (
                (node.name, action.taken_s) not in self._snapshots
            ):
                return "no copy of it was made"
            if (
                isinstance(action, RollBack)
                and self._copied_in[node.name, action.taken_s] == node.host.life_count
                and self._last_copies.flushes_before_ack
            ):
                return "nobody could tell such a copy from what its last life left"
            if isinstance(action, BitFlip) and not self._rotting(node):
                return "it has nothing on its disk that may rot"
        elif isinstance(action, Kill | LosePower | Stop | Pause) and not node.host.is_up:
            return "it is down"
        if isinstance(action, Pause) and node.life is not None and node.life.is_paused:
            return "it is paused"
        if isinstance(action, Stop) and node.stop.is_set():
            return "it is stopping"
        if isinstance(action, LosePower | Wipe | RollBack | BitFlip):
            return self._last_copies.objection(node.name, action)
        return ""

    def _act(self, fault: InjectedFault, node: Node, partition: PartitionId | None) -> None:
        name, host, network = node.name, node.host, self._cluster.network

        def peers(who: str) -> list[str]:
            return self.hosts.peers(who, node, partition)

        match fault.action:
            case Kill(restart_s):
                host.kill()
                self._restart(name, restart_s)
            case LosePower(restart_s):
                self._last_copies.destroyed(name, fault.action)
                host.lose_power()
                self._restart(name, restart_s)
            case Stop(restart_s):
                self._cluster.stop(name)
                self._restart(name, restart_s)
            case Wipe(restart_s):
                self._last_copies.destroyed(name, fault.action)
                self._kill(node)
                self._cluster.wipe(name)
                self._restart(name, restart_s)
            case BitFlip(restart_s):
                self._last_copies.destroyed(name, fault.action)
                self.unfit.add(name)
                self.broken_disks.add(name)
                self._kill(node)
                path, end = self._world.random("rot", name).choice(self._rotting(node))
                bit = self._world.random("rot", name).randrange(8 * end)
                self._world.note("bit flipped", name, path=path, bit=bit)
                host.disk.flip(path, bit)
                self._restart(name, restart_s)
            case Damage():
                self._damage(node, fault.action)
            case RollBack(taken_s, restart_s):
                self._last_copies.destroyed(name, fault.action)
                self.unfit.add(name)
                if host.is_up:
                    host.lose_power()
                host.disk.restore(self._snapshots[name, taken_s])
                self._restart(name, restart_s)
            case Pause(seconds):
                host.pause()
                self._world.after(seconds, partial(self._resume, node, node.life))
            case Cut(peer):
                self._routes.cut(name, peers(peer), fault.action)
            case Reset(peer, ""):
                self._routes.reset(name, peers(peer))
            case Reset(peer, link):
                self._routes.reset_link(name, peers(peer), link)
            case CorruptLink(mishap, peer, way, after_bytes):
                self._routes.spoil(name, peers(peer), mishap, way, after_bytes)
            case Slow(peer):
                self._routes.slow(name, peers(peer), fault.action)
            case Refuse(seconds):
                self._world.after(seconds, network.refuse(name))
            case BlackholeAccepts(seconds):
                self._world.after(seconds, network.swallow(name))
            case SwizzleClog(seconds):
                network.swizzle(self._cluster.nodes, seconds)
            case BreakDisk(disk_fault) as broken:
                if not isinstance(disk_fault.how, Delay):  # a slow disk excuses no failure
                    self.broken_disks.add(name)
                    if not pending_faults.is_full(disk_fault):
                        self._restarted.add(name)
                if broken.may_lose_names:
                    self._last_copies.names_unsynced(name)
                host.disk.inject(disk_fault)
            case FillDisk(seconds):
                self.broken_disks.add(name)
                host.disk.capacity_bytes = 0
                self._world.after(seconds, partial(pending_faults.empty, node))
            case ProtectDisk(seconds):
                self.broken_disks.add(name)
                self._restarted.add(name)
                host.disk.read_only = True
                self._world.after(seconds, partial(pending_faults.unprotect, node))
            case DriftClock(rate, seconds):
                host.clock.set_rate(rate)
                self._world.after(seconds, partial(pending_faults.keep_time, node))
            case JumpClock(jump_s):
                host.clock.wall_jump_ms += int(jump_s * 1000)

    def _kill(self, node: Node) -> None:
        if node.host.is_up:
            node.host.kill()

    def _restart(self, name: str, seconds: float | None) -> None:
        if seconds is None:
            self._ended.append(name)
        elif seconds == inf:
            self._ended.append(name)
            self._gone.append(name)
        else:
            self._cluster.boot_after(name, seconds)

    def _resume(self, node: Node, life: ProcessLife | None) -> None:
        if life is not None and node.host.life is life and life.is_paused:
            node.host.resume()

    def _damageable(self, node: Node, action: Damage) -> list[damage.Target]:
        snapshot = self._snapshots.get((node.name, action.taken_s))
        return damage.targets(node.host.disk, node.name, action, self._flushed, snapshot)

    def _damage(self, node: Node, action: Damage) -> None:
        name = node.name
        snapshot = self._snapshots.get((name, action.taken_s))
        if action.touches_records:
            self._last_copies.destroyed(name, action)
        if not action.is_noticed:
            self.unfit.add(name)
        self.broken_disks.add(name)
        # Data that was flushed some time ago is the same before and after the end of the process.
        chosen = self._world.random("damage", name).choice(self._damageable(node, action))
        self._kill(node)
        randomness = self._world.random("damage", name)
        what = damage.harm(node.host.disk, chosen, action, randomness, snapshot)
        node.has_lost_files = True
        self._world.note("file damaged", name, path=chosen.path, done=what)
        self._restart(name, action.restart_s)

    def _rotting(self, node: Node) -> list[tuple[str, int]]:
        """Files of logs, and how many bytes of each are on the device."""
        disk = node.host.disk
        found = []
        for path in disk.files("data/logs"):
            if path.endswith(".log"):
                end = len(disk.durable(path)) if disk.tree.find(path, durable=True) else 0
                if end:
                    found.append((path, end))
        return found

    # --- healing -------------------------------------------------------------------------

    def heal(self, cut_off: str = "") -> str:
        """Let no more faults strike, end all faults that can be ended, and start what is down.

        *cut_off*: a host that is cut off from all others from now on.  Without it, a host that was
        ended for good stays down.  Returns the host that stays away, if any, because the last
        intact copy of a log must remain reachable.
        """
        away = [one for one in [cut_off, *self._gone] if one and self._may_stay_away(one)][:1]
        gone = away[0] if away and away[0] != cut_off else ""
        cut_off = away[0] if away else ""
        self._is_over = self._routes.is_over = True
        self._world.note(HEALED, cut_off=cut_off)
        self._at_steps.clear()
        self._conditions.clear()
        self._cluster.network.heal()
        for node in self._cluster.nodes.values():
            self._resume(node, node.life)
            pending_faults.empty(node)
            pending_faults.unprotect(node)
            pending_faults.keep_time(node)
            node.host.disk.heal()
        if cut_off:
            self._cluster.network.isolate(cut_off)
        self._cut_off = cut_off
        for name in sorted(self._restarted | self.unfit):
            self._kill(self._cluster.nodes[name])
        if gone:
            self.unfit.discard(gone)
            self._kill(self._cluster.nodes[gone])
        for node in self._cluster.servers:
            if node.name != gone:
                self._cluster.boot_after(node.name, 0.0)  # also a node that is still stopping
        for name in self._ended:
            if name != gone:
                self._cluster.boot(name)
        self.replace_unfit()
        return cut_off

    def fill(self, name: str) -> None:
        """Leave no space on the disk of *name*, until `make_room`.  Call this after `heal`."""
        self.broken_disks.add(name)
        self._cluster.nodes[name].host.disk.capacity_bytes = 0

    def make_room(self, name: str) -> None:
        """End `fill`."""
        pending_faults.empty(self._cluster.nodes[name])

    def lose_all_power(self) -> bool:
        """Cut the power of all nodes, with all that wasn't synced, and start them again, after
        `heal`.  False: a device may lack what its node believes in, so nothing was done."""
        dark, running = LosePower(0.0), [one for one in self._cluster.servers if one.host.is_up]
        if any(self._last_copies.objection(one.name, dark) for one in running):
            return False
        for node in running:
            node.host.lose_power((Fate.LOST,))
            self._restart(node.name, 0.0)
        return True

    def fail_append(self, name: str, partition: PartitionId) -> None:
        """Have the next append to a topic's log of the partition fail on the host *name*.  Its
        process must be restarted after that.  Call this after `heal`."""
        self.broken_disks.add(name)
        disk = self._cluster.nodes[name].host.disk
        paths = [
            one
            for one in disk.files(f"data/logs/{partition}")
            if one.endswith(".log") and not is_internal(one.split("/")[-2])
        ]
        disk.inject(DiskFault("append", Fail(errno.EIO), max(paths)[1:]))

    def _may_stay_away(self, host: str) -> bool:
        if self._last_copies.may_lose_last:
            return False  # its data may be the only copy
        node = self._cluster.nodes[host]
        is_spared = not self._last_copies.objection(host, Wipe()) and not is_needed(
            self._cluster, host
        )
        return node.kind == "broker" and host not in self.unfit and is_spared

    def is_gone(self, host: str) -> bool:
        """Whether *host* was ended for good."""
        return host in self._gone

    def replace_unfit(self) -> str:
        """Give unfit hosts new disks, as an operator does once the cluster can do without the old
        ones; return the names of those that still wait, empty if none does.  Call this repeatedly
        after `heal`, until none does."""
        for name in sorted(self.unfit):
            if can_be_replaced(self._cluster, name, self._cut_off):
                self.unfit.discard(name)
                self._kill(self._cluster.nodes[name])
                self._cluster.wipe(name)
                self._cluster.boot(name)
        return ", ".join(sorted(self.unfit))
