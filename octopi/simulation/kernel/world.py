"""One simulated world: its time, its randomness, and the record of its events.

The world knows neither nodes nor networks.  It keeps virtual time and the actions that are due,
gives every part a source of randomness of its own, and folds each event into one digest. If two
runs of the same seed have different digests, something is not deterministic.

Randomness is keyed by its user (`World.random`), never shared: a run without one of its faults
draws the same everywhere else, so that failures can be shrunk.
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
"""The time, the order among actions of the same time, and the action."""

_MARSHAL_VERSION: Final = 2
"""The newest version whose bytes depend only on the value: later ones also encode which strings are
interned, and which objects are identical."""

_FOLDED_COUNT: Final = 64
"""The number of events that are folded into the digest together."""

AStep = TypeVar("AStep", covariant=True)

_PLAIN: Final = {bool, bytes, float, int, str, type(None)}


class Event(NamedTuple):  # made for every step of a run, and cheaper to make than a class
    """Something that happened at one moment on one host."""

    number: int
    """Position among all events of the run, from 0."""
    at: float
    """Seconds of virtual time."""
    host: str
    """The name of the host; empty if the world itself is the cause."""
    life: int
    """The number of the host's process, from 1."""
    what: str
    """The text of a step of `octopi.tracing.steps`, or a word of `octopi.simulation`."""
    about: TraceEvent | dict[str, Any]
    """The step; or the facts of an event of the simulation."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the event by name."""
        about = self.about
        return about if isinstance(about, dict) else about.facts

    def get(self, name: str) -> Any:  # noqa: ANN401
        """The fact with this name; None if there is none.  For observers of events of any kind."""
        about = self.about
        return about.get(name) if isinstance(about, dict) else getattr(about, name, None)

    def __str__(self) -> str:
        facts = " ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.at:10.6f} {self.host or '-':10} {self.what} {facts}".rstrip()


class StepEvent(Event, Generic[AStep]):
    """A step that a node took."""

    __slots__ = ()

    @property
    def step(self) -> AStep:
        """The step with its fields."""
        return cast(AStep, self.about)


Observer: TypeAlias = Callable[[Event], None]

_new_event: Final = tuple.__new__
"""Makes an `Event` without the additional call in the constructor of its class."""


class Violation(Exception):  # what is broken is a rule, the run itself is fine
    """An invariant was broken.

    *rule* is its name, the text describes what was observed, and *events* are the events in
    conflict.
    """

    def __init__(self, rule: str, text: str, events: tuple[Event, ...] = ()) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule
        self.events = events


class World:
    """Virtual time, keyed randomness, and the record of events.

    *events_kept* bounds the number of events in `events`, which has the latest ones; the digest
    covers all events.
    """

    def __init__(self, seed: int, *, events_kept: int | None = 20_000) -> None:
        self.seed = seed
        self.now = 0.0
        """Seconds since the run began."""
        self.events: deque[Event] = deque(maxlen=events_kept)
        self.observers: list[Observer] = []
        """Called with each event as it happens, or with those of the kinds given to `observe`.
        Observers may change the world, but must not wait."""
        self._kinds: dict[Observer, frozenset[str]] = {}
        self._observed: list[Observer] = []
        """The value of `observers` when `_observers_of` was filled."""
        self._observers_of: dict[str, list[Observer]] = {}
        self.failure: BaseException | None = None
        """Why the run was given up; None if it wasn't."""
        self.outlives_crashes = False
        """Whether the run continues when a program ends with an exception that is its own fault, as
        a real cluster would."""
        self.checks_invariants = False
        """Whether every machine of every node checks its invariants after each event."""
        self.looks = Looks()
        """The checks that are made from time to time as virtual time passes."""
        self.scope = trio.CancelScope()
        """The cancel scope of all tasks of the run."""
        self._due: list[_Due] = []
        self._order = count()
        self._event_count = 0
        self._told: list[Any] = []
        """Events that are not in the digest yet."""
        self._with_objects: set[str] = set()
        """Kinds of events known to have facts other than numbers, text and bytes."""
        self._digest = hashlib.blake2b(digest_size=16)
        self._sources: dict[tuple[str | int, ...], random.Random] = {}
        self._salt: tuple[str, ...] = ()

    # --- randomness --------------------------------------------------------------------

    def random(self, *key: str | int) -> random.Random:
        """The source of randomness for *key*; always the same one."""
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = random.Random(self._state(key))
        return source

    def reseed(self, salt: str) -> None:
        """From now on draw otherwise: every source begins again, from the seed, *salt* and its key.
        So two runs that are the same up to here can go different ways."""
        self._salt = (salt,)
        for key, source in self._sources.items():
            source.seed(self._state(key))

    def _state(self, key: tuple[str | int, ...]) -> int:
        named = "|".join(str(part) for part in (self.seed, *key, *self._salt))
        return int.from_bytes(hashlib.blake2b(named.encode(), digest_size=8).digest(), "big")

    # --- time ------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Call *action* at the virtual time *when*, after all tasks that could run before.  Actions
        of the same time are called in the order of their registration."""
        heappush(self._due, (when, next(self._order), action))

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Call *action* in *seconds*."""
        heappush(self._due, (self.now + seconds, next(self._order), action))

    async def sleep(self, seconds: float) -> None:
        """Wait for *seconds*, as `trio.sleep` does, but much faster, because this needs neither a
        cancel scope nor an exception to end it."""
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
        """The time when something is due next; infinite if nothing is."""
        return self._due[0][0] if self._due else inf

    def advance(self, when: float) -> None:
        """Set the time to *when*, and call the actions that are due by then."""
        self.now = max(self.now, when)
        self.looks.moment()
        due = self._due
        while due and due[0][0] <= self.now:
            heappop(due)[2]()

    # --- events --------------------------------------------------------------------------

    def observe(self, observer: Observer, kinds: Iterable[str] | None = None) -> None:
        """Append *observer* to `observers`, to be called only with events of these *kinds*, because
        most events concern few observers.  None: with all events."""
        if kinds is not None:
            self._kinds[observer] = frozenset(kinds)
        self.observers.append(observer)

    def note(self, what: str, host: str = "", life: int = 0, **facts: Any) -> Event:  # noqa: ANN401
        """Record an event and call the observers."""
        return self.record(what, host, life, facts)

    def record(self, what: str, host: str, life: int, facts: dict[str, Any]) -> Event:
        """Like `note`, with the *facts* in a dictionary."""
        number, now = self._event_count, self.now
        event: Event = _new_event(Event, (number, now, host, life, what, facts))
        self._keep(event, (now, host, life, what, *facts.values()))
        return event

    def record_step(self, step: TraceEvent, host: str, life: int) -> None:
        """Record that *host* took *step*, and call the observers."""
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

    @property
    def event_count(self) -> int:
        """How many events there were so far."""
        return self._event_count

    def fold(self, data: bytes) -> None:
        """Fold *data*, such as a delivered message, into the digest without an event."""
        self._told.append(data)
        if len(self._told) == _FOLDED_COUNT:
            self._fold_told()

    def _fold_told(self) -> None:
        self._digest.update(self._folded())
        self._told.clear()

    def _folded(self) -> bytes:
        """The representation of `_told` in the digest."""
        try:
            return marshal.dumps(self._told, _MARSHAL_VERSION)
        except ValueError:  # some facts aren't numbers, text or bytes
            plain = [_plain(one) for one in self._told]
        pairs = zip(self._told, plain, strict=True)
        self._with_objects.update(told[3] for told, same in pairs if told != same)
        return marshal.dumps(plain, _MARSHAL_VERSION)

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that depend on everything that has happened so far."""
        digest = self._digest.copy()
        digest.update(self._folded())
        return digest.hexdigest()

    def fail(self, failure: BaseException) -> None:
        """Give up the run: the first *failure* is its verdict, and all tasks are cancelled."""
        if self.failure is None:
            self.failure = failure
        self.scope.cancel()


def _plain(told: Any) -> Any:  # noqa: ANN401
    """*told* converted to values that `marshal` takes; unchanged if it has only such values."""
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
