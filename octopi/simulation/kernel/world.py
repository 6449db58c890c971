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
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

import attrs
import trio

from octopi.environment import TraceEvent
from octopi.simulation.invariants.queue_bounds import Looks

_Due = tuple[float, int, Callable[[], object]]
"""When, in which order of those of one moment, and what."""

_MARSHAL_VERSION: Final = 2
"""The newest whose bytes depend on nothing but the value: later ones say what is interned,
and what is the same object."""

_FOLDED_COUNT: Final = 64
"""So many events are folded into the digest at once."""

AStep = TypeVar("AStep", covariant=True)

_PLAIN: Final = {bool, bytes, float, int, str, type(None)}


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
    """The text of a step of `octopi.tracing.steps`, or a word of `octopi.simulation`."""
    about: TraceEvent | dict[str, Any]
    """The step; of a word, what it says."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it says, by name."""
        about = self.about
        return about if isinstance(about, dict) else about.facts

    def get(self, name: str) -> Any:  # noqa: ANN401
        """What it says by that name; None: nothing.  For those who look at any event."""
        about = self.about
        return about.get(name) if isinstance(about, dict) else getattr(about, name, None)

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.at:10.6f} {self.host or '-':10} {self.what} {facts}".rstrip()


class StepEvent(Event, Generic[AStep]):
    """A step that a node came to."""

    __slots__ = ()

    @property
    def step(self) -> AStep:
        """What it is, with its fields."""
        return cast(AStep, self.about)


Observer: TypeAlias = Callable[[Event], None]

_new_event: Final = tuple.__new__
"""Makes an `Event` without the call in between that its class would make."""


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
        self.observers: list[Observer] = []
        """Called with each event as it happens, or with those that `observe` names.  May
        change the world, but never wait."""
        self._kinds: dict[Observer, frozenset[str]] = {}
        self._observed: list[Observer] = []
        """What `observers` were when `_observers_of` was filled."""
        self._observers_of: dict[str, list[Observer]] = {}
        self.failure: BaseException | None = None
        """Why the run was given up, if it was."""
        self.outlives_crashes = False
        """Whether the run goes on when a program ends with an exception that is its own fault,
        as it would for everybody else."""
        self.checks_invariants = False
        """Whether every machine of every node checks its invariants after each event."""
        self.looks = Looks()
        """What is done now and then while time goes on."""
        self.scope = trio.CancelScope()
        """All tasks of the run."""
        self._due: list[_Due] = []
        self._order = count()
        self._event_count = 0
        self._told: list[Any] = []
        """What is not in the digest yet."""
        self._with_objects: set[str] = set()
        """Events known to tell of more than numbers, text and bytes."""
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

    async def sleep(self, seconds: float) -> None:
        """Wait for so many *seconds*: what `trio.sleep` does, for a fraction of its price,
        since it takes neither a cancel scope nor an exception to end it."""
        if seconds <= 0.0:
            await trio.lowlevel.checkpoint()
            return
        await trio.lowlevel.checkpoint_if_cancelled()
        due, wake = self._due, partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
        entry: _Due = (self.now + seconds, next(self._order), wake)
        heappush(due, entry)

        def give_up(_: object) -> trio.lowlevel.Abort:
            due.remove(entry)
            heapify(due)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)

    def next_due(self) -> float:
        """When something is due next; infinite if nothing is."""
        return self._due[0][0] if self._due else inf

    def advance(self, when: float) -> None:
        """Let it be *when*, and do what is due by then."""
        self.now = max(self.now, when)
        self.looks.moment()
        due = self._due
        while due and due[0][0] <= self.now:
            heappop(due)[2]()

    # --- what happened ---------------------------------------------------------------

    def observe(self, observer: Observer, kinds: Iterable[str] | None = None) -> None:
        """Append *observer* to `observers`, to be called with events of these *kinds* only:
        most events are of no interest to most observers.  None: with all."""
        if kinds is not None:
            self._kinds[observer] = frozenset(kinds)
        self.observers.append(observer)

    def note(self, what: str, host: str = "", life: int = 0, **facts: Any) -> Event:  # noqa: ANN401
        """Record an event and tell the observers."""
        return self.record(what, host, life, facts)

    def record(self, what: str, host: str, life: int, facts: dict[str, Any]) -> Event:
        """`note`, for those who have the *facts* in a dictionary of their own."""
        number, now = self._event_count, self.now
        event: Event = _new_event(Event, (number, now, host, life, what, facts))
        self._keep(event, (now, host, life, what, *facts.values()))
        return event

    def record_step(self, step: TraceEvent, host: str, life: int) -> None:
        """Record that *host* came to *step*, and tell the observers."""
        number, now, what = self._event_count, self.now, step.text
        event: Event = _new_event(StepEvent, (number, now, host, life, what, step))
        self._keep(event, (now, host, life, what, *step.values()))

    def _keep(self, event: Event, told: tuple[Any, ...]) -> None:
        self._event_count += 1
        what = event.what
        self._told.append(_plain(told) if what in self._with_objects else told)
        if len(self._told) == _FOLDED_COUNT:
            self._fold_told()
        self.events.append(event)
        if self.observers != self._observed:
            self._observed = list(self.observers)
            self._observers_of.clear()
        observers = self._observers_of.get(what)
        if observers is None:
            observers = self._observers_of[what] = [
                one for one in self.observers if what in self._kinds.get(one, {what})
            ]
        for observer in observers:
            observer(event)

    def fold(self, data: bytes) -> None:
        """Have *data*, such as a message delivered, in the digest without an event."""
        self._told.append(data)
        if len(self._told) == _FOLDED_COUNT:
            self._fold_told()

    def _fold_told(self) -> None:
        self._digest.update(self._folded())
        self._told.clear()

    def _folded(self) -> bytes:
        """What stands for all of `_told` in the digest."""
        try:
            return marshal.dumps(self._told, _MARSHAL_VERSION)
        except ValueError:  # there is more to some of it than numbers, text and bytes
            plain = [_plain(one) for one in self._told]
        pairs = zip(self._told, plain, strict=True)
        self._with_objects.update(told[3] for told, same in pairs if told != same)
        return marshal.dumps(plain, _MARSHAL_VERSION)

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that stand for everything that happened so far."""
        digest = self._digest.copy()
        digest.update(self._folded())
        return digest.hexdigest()

    def fail(self, failure: BaseException) -> None:
        """Give the run up: the first *failure* is its verdict, and all tasks are cancelled."""
        if self.failure is None:
            self.failure = failure
        self.scope.cancel()


def _plain(told: Any) -> Any:  # noqa: ANN401
    """*told* as what `marshal` takes; the same where it is that already."""
    cls = type(told)
    if cls in _PLAIN:
        return told
    if cls is tuple:
        return tuple([_plain(one) for one in told])
    if cls is list:
        return [_plain(one) for one in told]
    if cls is dict:
        return {_plain(key): _plain(one) for key, one in told.items()}
    if attrs.has(cls):
        names = _field_names(cls)
        return (cls.__name__, *[_plain(getattr(told, name)) for name in names])
    return repr(told)


@cache
def _field_names(cls: type) -> list[str]:
    return [field.name for field in attrs.fields(cls)]
