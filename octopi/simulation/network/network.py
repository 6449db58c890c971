"""The simulated network: hosts, the routes between them, and their faults.

`Network` knows which process listens where, opens connections, and injects faults.
`octopi.simulation.network.connection` carries the bytes of one connection, and
`octopi.simulation.network.route` decides when they arrive.

A method that begins a lasting fault returns a function that ends it.  To end it twice, or after
`Network.heal`, does nothing, so faults may overlap.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

import attrs
import trio

from octopi.environment import Net
from octopi.simulation.kernel.host import ProcessLife, SimulatedHost
from octopi.simulation.kernel.world import World
from octopi.simulation.network.connection import Arrival, Departure, End
from octopi.simulation.network.route import BYTES_PER_S, Blockade, Mishap, Route, Spread, Trap

_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_LOOPBACKS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EPHEMERAL_PORTS: Final = range(49_152, 65_536)

_KNOCK_AGAIN_S: Final = 1.0
"""How long a machine waits at first before it repeats a SYN without an answer (RFC 6298)."""

Accept: TypeAlias = Callable[[End], None]
"""Called with the accepting end of a new connection."""

Tier: TypeAlias = Callable[["Network", ProcessLife, trio.Nursery], Net]
"""Makes the `octopi.environment.Net` of a process on top of connections."""

Undo: TypeAlias = Callable[[], None]
"""Ends a fault."""


@attrs.frozen
class Listener:
    """A process that listens at a port."""

    life: ProcessLife
    accept: Accept


class Network:
    """All hosts and the routes between them.  *tier* decides what connections carry; *latency_s*
    and *jitter_s* are the defaults of every route."""

    def __init__(
        self, world: World, tier: Tier, *, latency_s: float = 0.0005, jitter_s: float = 0.0005
    ) -> None:
        self.world = world
        self.observers: list[Callable[[Departure | Arrival], None]] = []
        """Called with each message, or piece of a stream, when it is sent and when it arrives.  An
        observer never waits."""
        self._tier = tier
        self._latency_s = latency_s
        self._jitter_s = jitter_s
        self._hosts: dict[str, SimulatedHost] = {}
        self._routes: dict[tuple[str, str], Route] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ends: dict[ProcessLife, dict[End, None]] = {}
        self._connection_count = 0
        self._powerless: dict[str, Blockade] = {}
        self._refusing: dict[str, int] = {}
        self._swallowing: dict[str, int] = {}
        self._swizzle_count = 0
        self._heal_count = 0

    def add(self, host: SimulatedHost) -> None:
        """Connect *host* to the network."""
        self._hosts[host.name] = host

    def net(self, life: ProcessLife, tasks: trio.Nursery) -> Net:
        """The network as a process sees it; *tasks* owns the tasks of its connections."""
        return self._tier(self, life, tasks)

    # --- faults of routes ------------------------------------------------------------

    def route(self, source: str, target: str) -> Route:
        """The route from *source* to *target*; callers may change its fields."""
        route = self._routes.get((source, target))
        if route is None:
            randomness = self.world.random("route", source, target).random
            route = Route(source, target, randomness, self._latency_s, self._jitter_s)
            self._routes[source, target] = route
            if target in self._powerless:
                route.block(self._powerless[target], self.world.now)
        return route

    def cut(self, source: str, target: str) -> Undo:
        """Lose what travels from *source* to *target*, in this direction only.

        What TCP sends again arrives some time after the end of the cut.
        """
        return self._block("cut", [(source, target)], loses=True, source=source, target=target)

    def hold(self, source: str, target: str) -> Undo:
        """Keep what travels from *source* to *target* on its way until the end of the hold.
        Nothing is lost."""
        return self._block("hold", [(source, target)], loses=False, source=source, target=target)

    def clog(self, source: str, target: str, seconds: float) -> None:
        """`hold` for a number of *seconds*."""
        self.world.after(seconds, self.hold(source, target))

    def mend(self, source: str, target: str) -> None:
        """End each `cut`, `hold`, `isolate`, `split` and `swizzle` from *source* to *target*."""
        route = self.route(source, target)
        for blockade in list(route.blockades):
            if blockade is not self._powerless.get(target):
                self._lift(blockade, [route])

    def isolate(self, host: str, *, sends: bool = False, receives: bool = False) -> Undo:
        """Cut *host* off from all others.  It may still send if *sends*, and receive if
        *receives*."""
        others = [name for name in self._hosts if name != host]
        pairs = [] if sends else [(host, other) for other in others]
        pairs += [] if receives else [(other, host) for other in others]
        return self._block(
            "isolate", pairs, loses=True, host_name=host, sends=sends, receives=receives
        )

    def split(self, *groups: Iterable[str]) -> Undo:
        """Split the network into *groups*: hosts that share no group can't reach each other.

        A host in several groups is a bridge between them; a host in none reaches every host.
        """
        members = [list(group) for group in groups]
        named = list(dict.fromkeys(name for group in members for name in group))
        pairs = [
            (one, other)
            for one in named
            for other in named
            if one != other and not any(one in group and other in group for group in members)
        ]
        return self._block("split", pairs, loses=True, groups=members)

    def swizzle(self, hosts: Iterable[str], seconds: float) -> None:
        """Hold all routes of a random half of the *hosts*, one host after the other, and release
        the hosts in another order.  All of it takes *seconds*.

        The fault is from FoundationDB's simulator, where it found more bugs than any other.
        """
        self._swizzle_count += 1
        randomness = self.world.random("swizzle", self._swizzle_count)
        names = list(hosts)
        chosen = randomness.sample(names, (len(names) + 1) // 2)
        step_s = seconds / (2 * len(chosen))
        undo: dict[str, Undo] = {}
        heal_count = self._heal_count

        def enter(name: str) -> None:
            if self._heal_count > heal_count:
                return
            others = [other for other in self._hosts if other != name]
            pairs = [(name, other) for other in others] + [(other, name) for other in others]
            undo[name] = self._block("swizzle", pairs, loses=False, host_name=name)

        def leave(name: str) -> None:
            if name in undo:
                undo[name]()

        for index, name in enumerate(chosen):
            self.world.after(step_s * index, partial(enter, name))
        for index, name in enumerate(randomness.sample(chosen, len(chosen))):
            # No host is released before the last one was held.
            self.world.after(seconds / 2 + step_s * (index + 1), partial(leave, name))

    def heal(self) -> None:
        """End all faults of routes and of hosts' networks, and give every route its first settings
        again.  Mishaps that have struck a connection stay."""
        self.world.note("heal")
        self._heal_count += 1
        self._refusing.clear()
        self._swallowing.clear()
        for route in self._routes.values():
            route.latency_s, route.jitter_s, route.spread = (
                self._latency_s,
                self._jitter_s,
                Spread.UNIFORM,
            )
            route.loss_chance, route.bytes_per_s, route.segment_bytes = 0.0, BYTES_PER_S, None
            route.traps.clear()
            for blockade in list(route.blockades):
                if blockade is not self._powerless.get(route.target):
                    self._lift(blockade, [route])

    def _block(self, what: str, pairs: list[tuple[str, str]], *, loses: bool, **facts: Any) -> Undo:  # noqa: ANN401
        self.world.note(what, **facts)
        blockade = Blockade(loses)
        routes = [self.route(*pair) for pair in pairs]
        for route in routes:
            route.block(blockade, self.world.now)

        def undo() -> None:
            if any(blockade in route.blockades for route in routes):
                self.world.note(f"end of {what}", **facts)
                self._lift(blockade, routes)

        return undo

    def _lift(self, blockade: Blockade, routes: Iterable[Route]) -> None:
        for route in routes:
            for when, goes_on in route.lift(blockade, self.world.now):
                self.world.at(when, goes_on)

    # --- faults of hosts' networks and of connections --------------------------------

    def refuse(self, host: str) -> Undo:
        """Have *host* refuse new connections, as if no process listened."""
        return self._count("refuse", self._refusing, host)

    def swallow(self, host: str) -> Undo:
        """Have *host* accept connections without its program learning of them."""
        return self._count("swallow", self._swallowing, host)

    def _count(self, what: str, counts: dict[str, int], host: str) -> Undo:
        self.world.note(what, host_name=host)
        counts[host] = counts.get(host, 0) + 1
        lasts = [True]

        def undo() -> None:
            if lasts and counts.get(host):
                self.world.note(f"end of {what}", host_name=host)
                counts[host] -= 1
            lasts.clear()

        return undo

    def reset(self, one: str, other: str) -> None:
        """Reset every connection between two hosts; both ends are told at once."""
        self.world.note("reset", one=one, other=other)
        for end in self._between(one, other) + self._between(other, one):
            end.break_off()

    def links(self, one: str, other: str, path: str) -> list[End]:
        """The connections between two hosts to the endpoint *path*, in the order in which they were
        opened: of each, the end that opened it."""
        ends = self._between(one, other) + self._between(other, one)
        return sorted((end for end in ends if end.path == path), key=lambda end: end.connection)

    def reset_link(self, end: End) -> None:
        """Reset the connection of *end*; both ends are told at once."""
        one, other = end.life.host.name, end.other.life.host.name
        self.world.note("reset link", one=one, other=other, path=end.path)
        far = end.other
        end.break_off()
        far.break_off()

    def spoil(self, source: str, target: str, mishap: Mishap, after_bytes: int = 0) -> None:
        """Have *mishap* strike each connection between the two hosts, in the direction from
        *source* to *target*, after *after_bytes* more have arrived on it.

        A message that is interrupted arrives in part if connections carry bytes, and not at all if
        they carry messages.
        """
        self._note_mishap("spoil", source, target, mishap, after_bytes)
        for end in self._between(source, target):
            end.spoil(mishap, after_bytes)

    def spoil_next(self, source: str, target: str, mishap: Mishap, after_bytes: int = 0) -> None:
        """Do the same to the next connection between the two hosts, whichever opens it.  The mishap
        doesn't strike before data travels in this direction."""
        self._note_mishap("spoil next", source, target, mishap, after_bytes)
        self.route(source, target).traps.append(Trap(mishap, after_bytes))

    def _note_mishap(
        self, what: str, source: str, target: str, mishap: Mishap, after_bytes: int
    ) -> None:
        self.world.note(
            what, source=source, target=target, mishap=mishap.value, after_bytes=after_bytes
        )

    def half_open(self, one: str, other: str) -> None:
        """Break all connections between the two hosts without telling either: nothing arrives any
        more."""
        self.spoil(one, other, Mishap.SILENCE)
        self.spoil(other, one, Mishap.SILENCE)

    def _between(self, source: str, target: str) -> list[End]:
        return [
            end
            for life, ends in self._ends.items()
            if life.host.name == source
            for end in ends
            if end.other is not end and end.other.life.host.name == target
        ]

    # --- for hosts -------------------------------------------------------------------

    def booted(self, life: ProcessLife) -> None:
        """A process starts: its machine has power."""
        self._ends[life] = {}
        blockade = self._powerless.pop(life.host.name, None)
        if blockade is not None:
            self._lift(blockade, self._routes_to(life.host.name))

    def closed(self, life: ProcessLife) -> None:
        """A process has ended: the operating system closes its connections and its listeners."""
        for end in self._forget(life):
            end.close()

    def vanished(self, life: ProcessLife) -> None:
        """A machine has lost power: packets to it are lost."""
        blockade = self._powerless[life.host.name] = Blockade(loses=True)
        for route in self._routes_to(life.host.name):
            route.block(blockade, self.world.now)
        for end in self._forget(life):
            end.vanish()

    def _routes_to(self, host: str) -> list[Route]:
        return [route for route in self._routes.values() if route.target == host]

    def _forget(self, life: ProcessLife) -> list[End]:
        self._listeners = {at: one for at, one in self._listeners.items() if one.life is not life}
        return list(self._ends.pop(life, {}))

    # --- for tiers -------------------------------------------------------------------

    def take_address(self, life: ProcessLife, host: str, port: int, accept: Accept) -> int:
        """Listen at *port*, and return it; 0 picks a free one.  *accept* gets the connections.

        Raises:
          OSError: if the port is taken, or *host* is another host.
        """
        name = life.host.name
        if host not in {name, *_WILDCARDS, *_LOOPBACKS}:
            raise _os_error(errno.EADDRNOTAVAIL)
        if port == 0:
            port = next(n for n in _EPHEMERAL_PORTS if (name, n) not in self._listeners)
        if (name, port) in self._listeners:
            raise _os_error(errno.EADDRINUSE)
        self._listeners[name, port] = Listener(life, accept)
        return port

    def leave_address(self, life: ProcessLife, port: int) -> None:
        """Stop listening at *port*, if *life* listens there."""
        found = self._listeners.get((life.host.name, port))
        if found is not None and found.life is life:
            del self._listeners[life.host.name, port]

    async def connect(self, life: ProcessLife, host: str, port: int) -> End:
        """Open a connection.  Waits for ever if nothing answers.

        Raises:
          OSError: if the machine refuses, or if no machine has that name.
        """
        name = life.host.name if host in _LOOPBACKS else host
        if name not in self._hosts:
            await trio.lowlevel.checkpoint()
            raise OSError(errno.EHOSTUNREACH, f"there is no host {host}")
        self._connection_count += 1
        here = self._end(life, name, self._connection_count)
        wait_s = _KNOCK_AGAIN_S
        try:
            while not here.is_open and not here.is_broken:
                self.packet(life.host.name, name, partial(self._knock, here, name, port))
                with trio.move_on_after(wait_s):
                    await here.arrived.park()
                wait_s *= 2
        except BaseException:
            here.close()
            raise
        life.check()
        if here.is_broken:
            raise _os_error(errno.ECONNREFUSED)
        return here

    def _knock(self, here: End, name: str, port: int) -> None:
        """A SYN arrived at the host *name*."""
        listens = (name, port) in self._listeners and not self._refusing.get(name)

        def answer() -> None:
            if not listens:
                here.break_off()
            elif not here.is_open and not here.is_gone:
                here.establish(partial(self._accept, here, name, port))
                here.opened()

        self.packet(name, here.life.host.name, answer)

    def _accept(self, here: End, name: str, port: int) -> None:
        """The last packet of the handshake arrived at the host *name*: accept the connection."""
        source = here.life.host.name
        listener = self._listeners.get((name, port))
        if listener is None:  # it has stopped since the SYN arrived
            here.turn_away()
            return
        there = self._end(listener.life, source, here.connection)
        here.other, there.other = there, here
        there.is_open = True
        if not self._swallowing.get(name):
            listener.accept(there)

    def _end(self, life: ProcessLife, other: str, number: int) -> End:
        end = End(self, life, self.route(life.host.name, other), number)
        self._ends[life][end] = None
        return end

    def packet(self, source: str, target: str, comes: Callable[[], None]) -> None:
        """Send a packet: *comes* is called when it reaches *target*, unless it is lost."""
        route = self.route(source, target)

        def arrive() -> None:
            if not route.blockades:
                comes()
            elif not route.is_cut:
                route.packets.append(arrive)

        self.world.at(route.arrival(self.world.now, 0), arrive)

    def forget(self, end: End) -> None:
        """Note that no process has *end* open any more."""
        ends = self._ends.get(end.life)
        if ends is not None:
            ends.pop(end, None)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
