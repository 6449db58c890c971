"""The simulated network: hosts, the routes between them, and connections.

A connection behaves as TCP does: bytes arrive in their order or not at all, a cut route
holds what is on its way until it is mended, a dead process is told by a reset, a machine
that lost its power says nothing until it is back.  What a connection carries (whole
messages, or pieces of a stream) is the business of `frames` and `streams`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from octopi.environment import Net
from octopi.simulation.world import World

if TYPE_CHECKING:
    from octopi.simulation.host import Host, Life

WINDOW_BYTES: Final = 256 * 1024
"""What a connection holds on its way and unread, in each direction."""

_RETRANSMIT_S: Final = 1.0
"""After so long a sender learns that the machine it talks to was restarted."""

Accept: TypeAlias = Callable[["End", Any], str | None]
"""Given the accepting end and what the opener asked for: None, or why not."""

Tier: TypeAlias = Callable[["Network", "Life", trio.Nursery], Net]
"""Makes the `octopi.environment.Net` of a life on top of connections."""


@attrs.define
class Route:
    """How bytes travel from one host to another, in one direction."""

    latency_s: float
    jitter_s: float
    bytes_per_s: float = 1e9
    is_cut: bool = False
    held: list[Callable[[], None]] = attrs.field(factory=list)
    """What a cut keeps from arriving."""


class RefusedByHostError(OSError):
    """Nobody listens there."""


class End:
    """One end of a connection.  What the other sends arrives in `inbox`."""

    def __init__(self, network: Network, life: Life, connection: int) -> None:
        self._network = network
        self.life = life
        self.connection = connection
        """Number of the connection in this run."""
        self.other: End = self
        self.inbox: deque[Any] = deque()
        self.is_finished = False
        """Nothing follows what is in the inbox."""
        self.last_word: Any = None
        """What the other side finished with."""
        self.is_broken = False
        """The connection is gone: a reset, or the other's death."""
        self.arrived = trio.lowlevel.ParkingLot()
        self.room = trio.lowlevel.ParkingLot()
        self._unread_bytes = 0
        """What this end sent and the other has not taken."""
        self._arrives_last = 0.0
        self.has_closed = False

    @property
    def has_room(self) -> bool:
        """Whether this end may send now."""
        return self._unread_bytes < WINDOW_BYTES

    def put(self, data: Any, size_bytes: int) -> None:  # noqa: ANN401
        """Send *data*."""
        self._unread_bytes += size_bytes
        self._travel(lambda: self.other._arrive(data, size_bytes), size_bytes)

    def take(self) -> Any:  # noqa: ANN401
        """The next of the inbox."""
        data, size_bytes = self.inbox.popleft()
        self._travel_free(lambda: self.other._credited(size_bytes))
        return data

    def finish(self, last_word: Any = None) -> None:  # noqa: ANN401
        """Send no more: a TCP FIN behind all that was sent."""
        if not self.has_closed:
            self.has_closed = True
            self._travel(lambda: self.other._finished(last_word), 0)

    def reset(self) -> None:
        """End the connection at once, for both."""
        self.break_off()
        self._travel_free(self.other.break_off)

    # --- within ----------------------------------------------------------------------

    def _travel(self, arrive: Callable[[], None], size_bytes: int) -> None:
        """Have *arrive* happen on the other side, behind all that was sent before."""
        delay_s = self._network.delay(self.life.host, self.other.life.host, size_bytes)
        when = max(self._network.world.now + delay_s, self._arrives_last)
        self._arrives_last = when
        self._network.deliver(self.life.host, self.other.life.host, when, arrive)

    def _travel_free(self, arrive: Callable[[], None]) -> None:
        """The same, not behind what was sent before."""
        source, target = self.life.host, self.other.life.host
        when = self._network.world.now + self._network.delay(source, target, 0)
        self._network.deliver(source, target, when, arrive)

    def _arrive(self, data: Any, size_bytes: int) -> None:  # noqa: ANN401
        if self.life.is_over or self.is_broken or self.has_closed:
            self._answer_for_the_dead()
            return
        self.inbox.append((data, size_bytes))
        self.arrived.unpark_all()

    def _answer_for_the_dead(self) -> None:
        """A machine that runs refuses what comes for a connection that it doesn't have."""
        if not self.other.is_broken and self._network.answers(self.life.host):
            self._travel_free(self.other.break_off)
        elif not self._network.answers(self.life.host):
            self._network.when_back(self.life.host, self._answer_for_the_dead)

    def _finished(self, last_word: Any) -> None:  # noqa: ANN401
        self.is_finished = True
        self.last_word = last_word
        self.arrived.unpark_all()
        self.room.unpark_all()

    def _credited(self, size_bytes: int) -> None:
        self._unread_bytes -= size_bytes
        if self.has_room:
            self.room.unpark_all()

    def break_off(self) -> None:
        """A reset came."""
        self.is_broken = True
        self.arrived.unpark_all()
        self.room.unpark_all()


@attrs.define
class Listener:
    """A port that somebody listens at."""

    life: Life
    accept: Accept


class Network:
    """All hosts and what lies between them.  *tier* decides what connections carry."""

    def __init__(
        self, world: World, tier: Tier, *, latency_s: float = 0.0005, jitter_s: float = 0.0005
    ) -> None:
        self.world = world
        self._tier = tier
        self._latency_s = latency_s
        self._jitter_s = jitter_s
        self._hosts: dict[str, Host] = {}
        self._routes: dict[tuple[str, str], Route] = {}
        self._chances: dict[tuple[str, str], Callable[[], float]] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ends: dict[Life, list[End]] = {}
        self._connection_count = 0
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._powerless: set[str] = set()

    def add(self, host: Host) -> None:
        """Connect *host* to the network."""
        self._hosts[host.name] = host

    def net(self, life: Life, tasks: trio.Nursery) -> Net:
        """The network as a life sees it; *tasks* owns the tasks of its connections."""
        return self._tier(self, life, tasks)

    # --- faults ----------------------------------------------------------------------

    def route(self, source: str, target: str) -> Route:
        """The route from *source* to *target*, to be changed at will."""
        route = self._routes.get((source, target))
        if route is None:
            route = self._routes[source, target] = Route(self._latency_s, self._jitter_s)
            self._chances[source, target] = self.world.random("route", source, target).random
        return route

    def cut(self, source: str, target: str) -> None:
        """Hold what travels from *source* to *target*, in this direction only."""
        self.route(source, target).is_cut = True

    def mend(self, source: str, target: str) -> None:
        """Let what was held arrive, and all that follows."""
        route = self.route(source, target)
        route.is_cut = False
        held, route.held = route.held, []
        when = self.world.now
        for arrive in held:
            when += self._latency_s / 100  # one after the other, as it was sent
            self.world.at(when, arrive)

    def reset(self, one: str, other: str) -> None:
        """Reset every connection between two hosts."""
        for end in [end for ends in self._ends.values() for end in ends]:
            if {end.life.host.name, end.other.life.host.name} == {one, other}:
                end.break_off()

    # --- for hosts -------------------------------------------------------------------

    def booted(self, life: Life) -> None:
        """A life begins: its machine has power."""
        name = life.host.name
        self._ends[life] = []
        self._powerless.discard(name)
        for answer in self._waiting.pop(name, []):
            self.world.after(_RETRANSMIT_S, answer)

    def closed(self, life: Life) -> None:
        """A process died: its system closes what it had open."""
        self._forget(life, tell=True)

    def vanished(self, life: Life) -> None:
        """A machine lost its power."""
        self._powerless.add(life.host.name)
        self._forget(life, tell=False)

    def _forget(self, life: Life, *, tell: bool) -> None:
        self._listeners = {at: one for at, one in self._listeners.items() if one.life is not life}
        for end in self._ends.pop(life, []):
            if tell and not end.is_broken and not end.has_closed:
                end._travel(end.other.break_off, 0)
            end.break_off()

    def answers(self, host: Host) -> bool:
        """Whether the machine has power, so that its system answers."""
        return host.name not in self._powerless

    def when_back(self, host: Host, answer: Callable[[], None]) -> None:
        """Do *answer* when *host* has power again and is asked again."""
        waiting = self._waiting.setdefault(host.name, [])
        if not waiting or waiting[-1] != answer:
            waiting.append(answer)

    # --- for tiers -------------------------------------------------------------------

    def delay(self, source: Host, target: Host, size_bytes: int) -> float:
        """Draw how long the next bytes take, in seconds."""
        key = source.name, target.name
        route = self._routes.get(key) or self.route(*key)
        return (
            route.latency_s + route.jitter_s * self._chances[key]() + size_bytes / route.bytes_per_s
        )

    def deliver(self, source: Host, target: Host, when: float, arrive: Callable[[], None]) -> None:
        """Have *arrive* happen at *when*, or when the route is mended."""
        route = self._routes[source.name, target.name]

        def come() -> None:
            if route.is_cut:
                route.held.append(arrive)
            else:
                arrive()

        self.world.at(when, come)

    def take_address(self, life: Life, host: str, port: int, accept: Accept) -> int:
        """Listen; port 0 picks one.

        Raises:
          OSError: if somebody listens there, or it is another host's address.
        """
        if host != life.host.name:
            raise OSError(99, f"{life.host.name} has no address {host}")
        if port == 0:
            port = next(n for n in range(49_152, 65_536) if (host, n) not in self._listeners)
        if (host, port) in self._listeners:
            raise OSError(98, f"{host}:{port} is in use")
        self._listeners[host, port] = Listener(life, accept)
        return port

    def leave_address(self, life: Life, host: str, port: int) -> None:
        """Stop listening."""
        found = self._listeners.get((host, port))
        if found is not None and found.life is life:
            del self._listeners[host, port]

    async def connect(self, life: Life, host: str, port: int, asked: Any) -> End:  # noqa: ANN401
        """Open a connection; *asked* is for whoever accepts it.  Waits for ever if nothing
        answers.

        Raises:
          OSError: if the machine refuses.
        """
        target = self._hosts.get(host)
        if target is None:
            await trio.lowlevel.checkpoint()
            raise OSError(-2, f"there is no host {host}")
        self._connection_count += 1
        here = End(self, life, self._connection_count)
        answered = trio.Event()
        problem: list[str] = []

        def arrive() -> None:
            if not self.answers(target):
                return
            listener = self._listeners.get((host, port))
            if listener is None:
                refuse("connection refused")
                return
            there = End(self, listener.life, here.connection)
            here.other, there.other = there, here
            refusal = listener.accept(there, asked)
            if refusal is not None:
                refuse(refusal)
                return
            self._ends[listener.life].append(there)
            there._travel_free(answered.set)

        def refuse(why: str) -> None:
            problem.append(why)
            self.delay(target, life.host, 0)
            when = self.world.now + self.delay(target, life.host, 0)
            self.deliver(target, life.host, when, answered.set)

        when = self.world.now + self.delay(life.host, target, 0)
        self.deliver(life.host, target, when, arrive)
        try:
            await answered.wait()
        except BaseException:
            if here.other is not here:
                here.reset()
            raise
        life.check()
        if problem:
            raise RefusedByHostError(111, problem[0])
        self._ends[life].append(here)
        return here

    def forget(self, end: End) -> None:
        """An end was closed by its program."""
        ends = self._ends.get(end.life)
        if ends is not None and end in ends:
            ends.remove(end)
