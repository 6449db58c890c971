"""The search for an input that breaks a property: valid inputs of Hypothesis, changed again and
again; an input that takes a new way through the code is changed further.

The same seed and the same corpus give the same inputs.
"""

from __future__ import annotations

import itertools
import random
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import attrs
from hypothesis import HealthCheck, Phase, Verbosity, given, seed as seeded, settings

from tests.fuzz.mutation import close_by, mutated
from tests.fuzz.target import Target
from tests.fuzz.ways import Ways

ROOT: Final = Path(__file__).parents[2]

INPUT_CPU_S: Final = 1.0
"""One input may take so much processor time: more is a finding."""

KEPT_BYTES_MAX: Final = 1024
"""Of what is kept of an input to be changed further, or to be stored in the corpus."""

_FRESH_COUNT: Final = 20
"""Valid inputs of a round."""
_VALID_KEPT: Final = 200
_CHANGED_COUNT: Final = 1000
"""Changed inputs of a round."""
_SHORTENINGS_MAX: Final = 2000


class TookTooLongError(AssertionError):
    """An input took more than `INPUT_CPU_S`."""


@attrs.frozen
class Finding:
    """An input for which the property doesn't hold."""

    target: str
    data: bytes
    error: BaseException = attrs.field(eq=False)


@attrs.define
class Counts:
    """What a search did."""

    inputs: int = 0
    passed: int = 0
    """Inputs that passed the first check."""
    ways: int = 0


class Search:
    """One search in one target.  Not for several threads: it uses a signal and a trace function."""

    def __init__(self, target: Target, corpus: Sequence[bytes], seed: int) -> None:
        self.target = target
        self.counts = Counts()
        self.kept: list[bytes] = []
        """Inputs that took new ways, in this order; those of the corpus first."""
        self._next_kept = 0
        """Of `kept`: the beginnings of those before it have been changed one by one."""
        self._corpus = list(corpus)
        self._valid: deque[bytes] = deque(maxlen=_VALID_KEPT)
        """The newest valid inputs, whichever way they took."""
        self._seed = seed
        self._randomness = random.Random(f"{target.name} {seed}")
        self._ways = Ways(str(ROOT / file) for file in target.files)

    def run(self, goes_on: Callable[[], bool]) -> Finding | None:
        """Search while *goes_on*; return what was found, with the shortest input that shows it."""
        with _processor_time_bounded():
            try:
                self._run(goes_on)
            except _FoundError as found:
                error = found.__cause__
                assert error is not None
                return Finding(self.target.name, *self._shortened(found.data, error))
        return None

    def _run(self, goes_on: Callable[[], bool]) -> None:
        for data in self._inputs():
            if not goes_on():
                return
            self._try(data)

    def _inputs(self) -> Iterator[bytes]:
        yield from self._corpus
        for round_number in itertools.count():
            for data in self._fresh(round_number):
                yield data
                if data not in self._valid:
                    yield from close_by(data, 2)
                self._valid.append(data)
            while self._next_kept < len(self.kept):
                self._next_kept += 1
                yield from close_by(self.kept[self._next_kept - 1], 8)
            for _ in range(_CHANGED_COUNT):
                yield self._changed()

    def replay(self) -> None:
        """Try what was kept once more, for others to look on."""
        for data in self.kept:
            self.target.check(data)

    def worth_keeping(self, inputs: Sequence[bytes]) -> list[bytes]:
        """Those of *inputs* that take a way that none before them takes, nor any of the corpus:
        the shortest ones first.  Ways from file to file don't count here."""
        ways = Ways((str(ROOT / file) for file in self.target.files), whole=False)
        chosen = []
        for data in [*self._corpus, *sorted(inputs, key=lambda one: (len(one), one))]:
            before = len(ways.taken)
            with ways.followed():
                self.target.check(data)
            if len(ways.taken) > before and data in inputs:
                chosen.append(data)
        return chosen

    def _changed(self) -> bytes:
        randomness, target, kept = self._randomness, self.target, self.kept
        # Little was made so far of the newest ones that took a new way.
        data = randomness.choice(randomness.choice((self._valid, kept, kept[-16:])))
        other = randomness.choice(kept)
        return mutated(randomness, data, other, target.words, target.input_bytes_max)

    def _fresh(self, round_number: int) -> list[bytes]:
        """Valid inputs."""
        found: list[bytes] = []

        @seeded(self._seed * 1_000_000 + round_number)
        @settings(
            max_examples=_FRESH_COUNT,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @given(self.target.valid)
        def draw(data: bytes) -> None:
            found.append(data)

        draw()
        return found

    def _try(self, data: bytes) -> None:
        before = len(self._ways.taken)
        self.counts.inputs += 1
        try:
            with self._ways.followed(), _one_input():
                self.counts.passed += self.target.check(data)
        except Exception as error:
            raise _FoundError(data) from error
        if len(self._ways.taken) > before or not self.kept:
            self.counts.ways = len(self._ways.taken)
            if len(data) <= max(KEPT_BYTES_MAX, self.target.input_bytes_max // 4):
                self.kept.append(data)

    def _shortened(self, data: bytes, error: BaseException) -> tuple[bytes, BaseException]:
        """The shortest input that could be made of *data* and fails in the same way."""
        tries = 0
        size_bytes = max(1, len(data) // 2)
        while size_bytes:
            at = 0
            while at < len(data) and tries < _SHORTENINGS_MAX:
                tries += 1
                shorter = data[:at] + data[at + size_bytes :]
                other = self._error_of(shorter)
                if other is not None and _kind(other) == _kind(error):
                    data, error = shorter, other
                else:
                    at += size_bytes
            size_bytes //= 2
        return data, error

    def _error_of(self, data: bytes) -> BaseException | None:
        try:
            with _one_input():
                self.target.check(data)
        except Exception as error:
            return error
        return None


class _FoundError(Exception):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


def _kind(error: BaseException) -> tuple[object, ...]:
    """What two errors have in common that come of one fault: type and place."""
    trace = error.__traceback__
    place: tuple[object, ...] = ()
    while trace is not None:
        place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return (type(error), *place)


@contextmanager
def _processor_time_bounded() -> Iterator[None]:
    """Have `_one_input` bound what it is around."""

    def stop(_: int, __: FrameType | None) -> None:
        raise TookTooLongError(f"one input took more than {INPUT_CPU_S:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _one_input() -> Iterator[None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, INPUT_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
