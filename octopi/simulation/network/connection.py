"""One end of a simulated connection: what TCP and the operating system do for a program.

Bytes arrive in order, or not at all.  What a cut route loses is sent again after the cut ends, as
long as the sender's machine has power.  A reset is sent once; an end that misses it learns of it
when it sends something.  A window bounds the bytes that a sender may have in flight and unread.
`octopi.simulation.network.message_links` puts whole messages on a connection, and
`octopi.simulation.network.streams` pieces of a stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs
import trio

from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.world import World
from octopi.simulation.network.route import Mishap, Route, Trap

WINDOW_BYTES: Final = 256 * 1024
"""The bytes that a connection may have in flight and unread, in each direction."""

PIECE_BYTES: Final = WINDOW_BYTES // 4
"""The most bytes that are sent at once."""

_WHOLE_CHANCE: Final = 0.9
"""The probability that bytes that are sent at once also arrive at once."""


@attrs.frozen
class Departure:
    """Data was sent.  What arrives of one connection arrives in the order of departure."""

    source: ProcessLife
    target: str
    """The host that the data is sent to."""
    connection: int
    at: float
    data: Any
    """See `Arrival.data`."""


@attrs.frozen
class Arrival:
    """Data that was sent has arrived."""

    source: ProcessLife
    target: ProcessLife
    connection: int
    sent_at: float
    at: float
    data: Any
    """A message or a part of one; bytes, if the connection carries a stream."""


class ConnectionPorts(Protocol):
    """What a connection needs of its network."""

    @property
    def world(self) -> World: ...

    @property
    def observers(self) -> list[Callable[[Departure | Arrival], None]]:
        """The functions to call with each departure and each arrival."""

    def packet(self, source: str, target: str, comes: Callable[[], None]) -> None:
        """Send a packet: *comes* is called when it reaches *target*, unless it is lost."""

    def forget(self, end: End) -> None:
        """Note that no process has *end* open any more."""


class End:
    """One end of a connection.  What the other end sends arrives in `inbox`.

    Invariant: at most one call of `_come` is scheduled, by the world or by the blocked route, for
    all data in flight from this end.
    """

    def __init__(
        self, network: ConnectionPorts, life: ProcessLife, route: Route, number: int
    ) -> None:
        self.life = life
        self.connection = number
        """The number of the connection in this run."""
        self.path = ""
        """The endpoint that this end asked for when it opened the connection, such as
        ``/v1/follow``; empty at the accepting end."""
        self.other: End = self
        """The other end; this end itself until the connection is accepted."""
        self.inbox: deque[tuple[Any, int]] = deque()
        """The data that has arrived, each with its size in bytes.  Call `take` to get it."""
        self.is_open = False
        """Whether the other machine has accepted the connection."""
        self.is_finished = False
        """Whether the other end has finished sending: nothing follows the data in the inbox."""
        self.last_word: Any = None
        """What the other end passed to `finish`."""
        self.on_finished: Callable[[], None] | None = None
        """Called when `is_finished` becomes true."""
        self.is_broken = False
        """Whether the connection was reset."""
        self.is_gone = False
        """Whether this end was closed or reset, so that nothing is received any more."""
        self.arrived = trio.lowlevel.ParkingLot()
        """The reader waits here for a change of the fields above."""
        self.taker: Callable[[Any, int], bool] | None = None
        """Called with the data that arrives while the inbox is empty, and its size in bytes.  If it
        returns false, the data goes into the inbox."""
        self.room = trio.lowlevel.ParkingLot()
        """The sender waits here for `has_room`, or for the end of the connection."""
        self._network = network
        self._world = network.world
        self._route = route
        self._under_way: deque[tuple[float, float, Callable[..., None], Any, int]] = deque()
        """What is in flight: the time of arrival, the time of sending, the function to call on
        arrival, the data, and its size in bytes."""
        self._is_expected = False
        """Whether the world or the route will call `_come`."""
        self._arrives_last = 0.0
        self._sent_at = 0.0
        self._unread_bytes = 0
        """The bytes that this end sent, and that were not reported as read yet."""
        self._untold_bytes = 0
        """The bytes that were read here, and were not reported to the other end yet."""
        self._has_finished = False
        self._sends_once = False
        """Whether what is lost on the way from here is not sent again."""
        self._is_silenced = False
        self._trap: Trap | None = route.traps.popleft() if route.traps else None

    @property
    def has_room(self) -> bool:
        """Whether this end may send now."""
        return self._unread_bytes < WINDOW_BYTES

    @property
    def has_finished(self) -> bool:
        """Whether this end has finished sending."""
        return self._has_finished

    # --- for programs ----------------------------------------------------------------

    def put(self, message: Any, size_bytes: int) -> None:  # noqa: ANN401
        """Send *message*, which arrives as a whole."""
        self._unread_bytes += size_bytes
        if self._network.observers:
            self._tell(message)
        self._send(End._message_comes, message, size_bytes)

    def put_bytes(self, data: bytes) -> None:
        """Send *data*, at most `PIECE_BYTES`, which may arrive in several pieces."""
        self._unread_bytes += len(data)
        start = 0
        while start < len(data):
            segment = data[start : start + self._segment_bytes(len(data) - start)]
            if self._network.observers:
                self._tell(segment)
            self._send(End._bytes_come, segment, len(segment))
            start += len(segment)

    def _tell(self, data: Any) -> None:  # noqa: ANN401
        departure = Departure(self.life, self._route.target, self.connection, self._world.now, data)
        for observer in self._network.observers:
            observer(departure)

    def _segment_bytes(self, size_bytes: int) -> int:
        if self._route.segment_bytes is not None:
            return self._route.segment_bytes
        randomness = self._route.randomness
        return size_bytes if randomness() < _WHOLE_CHANCE else 1 + int(randomness() * size_bytes)

    def take(self) -> Any:  # noqa: ANN401
        """Remove and return the first data of the inbox."""
        data, size_bytes = self.inbox.popleft()
        self.taken(size_bytes)
        return data

    def taken(self, size_bytes: int) -> None:
        """Note that *size_bytes* of what arrived were read."""
        self._untold_bytes += size_bytes
        if self._untold_bytes >= PIECE_BYTES and not self.is_gone:
            # The report takes the route back, which may be cut.
            self._send(End._credit_comes, self._untold_bytes, 0)
            self._untold_bytes = 0

    def finish(self, last_word: Any = None) -> None:  # noqa: ANN401
        """Finish sending, with a TCP FIN behind all that was sent."""
        if not self._has_finished and not self.is_broken:
            self._has_finished = True
            self._send(End._finish_comes, last_word, 0)

    def reset(self) -> None:
        """Break the connection, with a TCP RST behind all that was sent."""
        if not self.is_gone:
            self._send_nothing_again()
            self._send(End._reset_comes, None, 0)
            self.break_off()

    def close(self, *, leaves_unread: bool = False) -> None:
        """Close the connection, as a program does, and as the operating system does when the
        program dies.

        If data is unread, here or with the caller (*leaves_unread*), the other end gets a reset
        (RFC 1122, section 4.2.2.13).
        """
        if self.is_gone:
            return
        if self.inbox or leaves_unread:
            self.reset()
            return
        if self.is_open:
            self.finish()
        self._let_go()

    # --- what happens to the connection ----------------------------------------------

    def vanish(self) -> None:
        """The machine has lost power: what is on the wire arrives, and nothing else."""
        self._send_nothing_again()
        self.break_off()

    def _send_nothing_again(self) -> None:
        """Don't send again what a cut has lost, or will lose."""
        self._sends_once = True
        if self._route.is_cut:
            self._under_way.clear()
            self._is_silenced = True

    def break_off(self) -> None:
        """A reset arrived: end the connection."""
        self.is_broken = True
        self._let_go()

    def _let_go(self) -> None:
        self.is_gone = True
        self._network.forget(self)
        self.arrived.unpark_all()
        self.room.unpark_all()

    def opened(self) -> None:
        """The other machine has accepted the connection."""
        if not self.is_gone and not self.is_open:
            self.is_open = True
            self.arrived.unpark_all()

    def turn_away(self) -> None:
        """The other machine accepted the connection, and resets it, because nobody listens any
        more."""
        self._is_silenced = True
        self._under_way.clear()
        self._network.packet(self._route.target, self._route.source, self.break_off)

    def spoil(self, mishap: Mishap, after_bytes: int) -> None:
        """Have *mishap* strike what is sent from here after *after_bytes* more have arrived."""
        self._trap = Trap(mishap, after_bytes)
        if after_bytes == 0 and mishap is not Mishap.CORRUPT:
            self._befall(mishap)

    # --- the way to the other end ----------------------------------------------------

    def establish(self, comes: Callable[[], None]) -> None:
        """Have *comes* called at the other machine, before anything that is sent from here
        arrives."""
        self._send(lambda end, data, size_bytes: comes(), None, 0)

    def _send(
        self,
        comes: Callable[[End, Any, int], None],
        data: Any,  # noqa: ANN401
        size_bytes: int,
    ) -> None:
        """Have *comes* called after everything that was sent before has arrived."""
        if self._is_silenced:
            return
        now = self._world.now
        when = self._route.arrival(now, size_bytes)
        if when < self._arrives_last:
            when = self._arrives_last
        self._arrives_last = when
        self._under_way.append((when, now, comes, data, size_bytes))
        if not self._is_expected:
            self._is_expected = True
            self._world.at(when, self._come)

    def _come(self) -> None:
        """Deliver the data whose time has come, unless the route is blocked."""
        under_way, now = self._under_way, self._world.now
        while under_way and under_way[0][0] <= now:
            if self._route.blockades:
                self._stall()
                return
            _, self._sent_at, comes, data, size_bytes = under_way.popleft()
            comes(self, data, size_bytes)
        if under_way:
            self._world.at(under_way[0][0], self._come)
        else:
            self._is_expected = False

    def _stall(self) -> None:
        if self._sends_once and self._route.is_cut:
            self._under_way.clear()
            self._is_expected = False
        else:
            self._route.stalled.append(self._come)

    def _message_comes(self, message: Any, size_bytes: int) -> None:  # noqa: ANN401
        trap = self._trap
        if trap is None or not self._springs(trap, size_bytes):
            self._arrive(message, size_bytes)
        elif trap.mishap is Mishap.CORRUPT:
            self._arrive(self._corrupt(message, trap.after_bytes), size_bytes)
        else:
            if trap.after_bytes == size_bytes:
                self._arrive(message, size_bytes)
            self._befall(trap.mishap)

    def _bytes_come(self, data: bytes, size_bytes: int) -> None:
        trap = self._trap
        if trap is None or not self._springs(trap, size_bytes):
            self._arrive(data, size_bytes)
        elif trap.mishap is Mishap.CORRUPT:
            self._arrive(self._corrupt(data, trap.after_bytes), size_bytes)
        else:
            if trap.after_bytes:
                self._arrive(data[: trap.after_bytes], trap.after_bytes)
            self._befall(trap.mishap)

    def _springs(self, trap: Trap, size_bytes: int) -> bool:
        """Whether *trap* strikes within the next *size_bytes*.  If not, count them."""
        if trap.after_bytes + (trap.mishap is Mishap.CORRUPT) <= size_bytes:
            self._trap = None
            return True
        self._trap = Trap(trap.mishap, trap.after_bytes - size_bytes)
        return False

    def _corrupt(self, data: Any, position: int) -> Any:  # noqa: ANN401
        if not isinstance(data, bytes) or not data:
            return data
        changed = bytearray(data)
        changed[position % len(data)] ^= 1 << int(self._route.randomness() * 8)
        return bytes(changed)

    def _befall(self, mishap: Mishap) -> None:
        self._trap = None
        if mishap is Mishap.FINISH:
            self._finish_comes(None, 0)
        elif mishap is Mishap.RESET:
            self.other.break_off()
            self._network.packet(self._route.target, self._route.source, self.break_off)
        self._is_silenced = True
        self._under_way.clear()

    def _arrive(self, data: Any, size_bytes: int) -> None:  # noqa: ANN401
        other = self.other
        if other.is_gone:
            # A machine answers data for a connection that it doesn't have with a reset.
            if not self.is_broken:
                self._network.packet(self._route.target, self._route.source, self.break_off)
            return
        if self._network.observers:
            arrival = Arrival(
                self.life, other.life, self.connection, self._sent_at, self._world.now, data
            )
            for observer in self._network.observers:
                observer(arrival)
        if other.taker is not None and not other.inbox and other.taker(data, size_bytes):
            return
        other.inbox.append((data, size_bytes))
        if other.arrived:
            other.arrived.unpark_all()

    def _credit_comes(self, read_bytes: int, _: int) -> None:
        other = self.other
        other._unread_bytes -= read_bytes
        if other.has_room:
            other.room.unpark_all()

    def _finish_comes(self, last_word: Any, _: int) -> None:  # noqa: ANN401
        other = self.other
        if other.is_gone or other.is_finished:
            return
        other.is_finished = True
        other.last_word = last_word
        other.arrived.unpark_all()
        other.room.unpark_all()
        if other.on_finished is not None:
            other.on_finished()

    def _reset_comes(self, _: Any, __: int) -> None:  # noqa: ANN401
        if not self.other.is_gone:
            self.other.break_off()
