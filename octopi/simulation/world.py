"""One simulated world: its time, its chances, and the record of all that happened.

The world knows neither nodes nor networks.  It keeps virtual time and what is due at which
moment, gives every part a source of randomness of its own, and folds each event into one
digest: two runs of the same seed have the same digest or something is not deterministic.

Randomness is keyed by who draws (`World.random`), never shared: leaving one fault out of a
run leaves every other draw as it was, so failures shrink.
"""

from __future__ import annotations

import hashlib
import marshal
import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple

import trio

_MARSHAL_VERSION: Final = 2
"""The newest whose bytes depend on nothing but the value: later ones say what is interned,
and what is the same object."""


class Event(NamedTuple):  # made for every step of a run, and cheaper to make than a class
    """Something that happened at one moment in one place."""

    number: int
    """Position among all events of the run, from 0."""
    at: float
    """Seconds of virtual time."""
    host: str
    """Name of the host, or empty if the world itself did it."""
    life: int
    """Which life of the host, from 1."""
    what: str
    """A step of `octopi.steps`, or a word of `octopi.simulation`."""
    facts: dict[str, Any]

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.at:10.6f} {self.host or '-':10} {self.what} {facts}".rstrip()


class Violation(Exception):  # what is broken is a rule, the run itself is fine
    """A rule that never may be broken was broken.

    *rule* is its name; the text says in words what was seen; *events* are the ones in
    conflict.
    """

    def __init__(self, rule: str, text: str, events: tuple[Event, ...] = ()) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.events = events


class World:
    """Virtual time, keyed randomness, and the record of events.

    *events_kept* bounds the events that `events` remembers, the latest ones; the digest
    has all of them.
    """

    def __init__(self, seed: int, *, events_kept: int | None = 20_000) -> None:
        self.seed = seed
        self.now = 0.0
        """Seconds since the run began."""
        self.events: deque[Event] = deque(maxlen=events_kept)
        self.observers: list[Callable[[Event], None]] = []
        """Called with each event as it happens.  May change the world, but never waits."""
        self.failure: BaseException | None = None
        """Why the run was given up, if it was."""
        self.scope = trio.CancelScope()
        """All tasks of the run."""
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._event_numbers = count()
        self._digest = hashlib.blake2b(digest_size=16)
        self._sources: dict[tuple[str | int, ...], random.Random] = {}

    # --- chance ----------------------------------------------------------------------

    def random(self, *key: str | int) -> random.Random:
        """The source of randomness of whoever *key* names; always the same one."""
        source = self._sources.get(key)
        if source is None:
            named = "|".join(str(part) for part in (self.seed, *key))
            state = hashlib.blake2b(named.encode(), digest_size=8).digest()
            source = self._sources[key] = random.Random(int.from_bytes(state, "big"))
        return source

    # --- time ------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Do *action* at the virtual time *when*: after all tasks that could run before
        have run, and in the order of the calls among those of one moment."""
        heappush(self._due, (when, next(self._order), action))

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do *action* in so many *seconds*."""
        heappush(self._due, (self.now + seconds, next(self._order), action))

    def next_due(self) -> float:
        """When something is due next; infinite if nothing is."""
        return self._due[0][0] if self._due else inf

    def advance(self, when: float) -> None:
        """Let it be *when*, and do what is due by then."""
        self.now = max(self.now, when)
        due = self._due
        while due and due[0][0] <= self.now:
            heappop(due)[2]()

    # --- what happened ---------------------------------------------------------------

    def note(self, what: str, host: str = "", life: int = 0, **facts: Any) -> Event:  # noqa: ANN401
        """Record an event and tell the observers."""
        return self.record(what, host, life, facts)

    def record(self, what: str, host: str, life: int, facts: dict[str, Any]) -> Event:
        """`note`, for those who have the *facts* in a dictionary of their own."""
        event = Event(next(self._event_numbers), self.now, host, life, what, facts)
        self._digest.update(_folded((self.now, host, life, what, *facts.values())))
        self.events.append(event)
        for observer in self.observers:
            observer(event)
        return event

    def fold(self, data: bytes) -> None:
        """Have *data*, such as a message delivered, in the digest without an event."""
        self._digest.update(data)

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that stand for everything that happened so far."""
        return self._digest.hexdigest()

    def fail(self, failure: BaseException) -> None:
        """Give the run up: the first *failure* is its verdict, and all tasks are cancelled."""
        if self.failure is None:
            self.failure = failure
        self.scope.cancel()


def _folded(told: tuple[Any, ...]) -> bytes:
    """What stands for *told* in the digest."""
    try:
        return marshal.dumps(told, _MARSHAL_VERSION)
    except ValueError:  # there is more to it than numbers, text and bytes
        return repr(told).encode()
