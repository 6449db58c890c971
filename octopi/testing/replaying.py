"""How to repeat a failed run: the seed in its message, and the page that shows the run.

Only this part of `octopi.testing` accesses the real world: it reads two environment variables and
writes pages.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.kernel.world import World
from octopi.simulation.network.network import Network
from octopi.simulation.report.html import write_page
from octopi.simulation.report.recorder import Recorder
from octopi.simulation.report.recording import Causes
from octopi.testing.errors import MisuseError, alone
from octopi.testing.failure_page import broken_of
from octopi.testing.planned_faults import PlannedFault
from octopi.testing.property_log import PropertyLog
from octopi.testing.random_faults import FaultsOfRun
from octopi.testing.unexpected_log_errors import OnLine

SEED_VARIABLE: Final = "OCTOPI_TEST_SEED"
"""If this variable is set, tests run only with its value as the seed."""
PAGES_VARIABLE: Final = "OCTOPI_TEST_PAGES"
"""The directory where each failing run leaves its page."""
_TEST_VARIABLE: Final = "PYTEST_CURRENT_TEST"

_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.]+")
_NAME_LENGTH_MAX: Final = 150
_NONE_DRAWN: Final = "no fault was drawn in this run; those of the test itself are listed below"
_NOT_SMALLER: Final = "the faults of this run are listed below; nobody has made them fewer"


def chosen_seed(seed: int | None) -> int:
    """The seed to run with: the one in the environment, else *seed*, else 1."""
    pinned = pinned_seed()
    return pinned if pinned is not None else 1 if seed is None else seed


def pinned_seed() -> int | None:
    """The seed in the environment; None if there is none.

    Raises:
      MisuseError: if that is no whole number.
    """
    text = os.environ.get(SEED_VARIABLE, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise MisuseError(f"{SEED_VARIABLE} is {text!r}; it has to be a whole number") from None


def _pages() -> Path | None:
    directory = os.environ.get(PAGES_VARIABLE, "")
    return Path(directory) if directory else None


@attrs.define
class RunOfTest:
    """One run of a test in one world."""

    world: World
    name: str
    """The name of the test, if pytest doesn't give one."""
    faults: FaultsOfRun = attrs.Factory(FaultsOfRun)
    """The faults in its blocks of random faults."""
    properties: PropertyLog = attrs.Factory(PropertyLog)
    """The properties that were stated in it."""
    is_tried: bool = False
    """Whether the run is only one of many that are tried: it has no page."""
    has_cluster: bool = False
    """Whether the run has a cluster."""
    seed: int = attrs.field(default=attrs.Factory(lambda self: self.world.seed, takes_self=True))
    """The seed with which the test is run again."""
    on_line: OnLine = attrs.field(default=lambda life, record: None)
    """Called with what nodes log."""
    _recorder: Recorder | None = None
    _network: Network | None = None
    _ended_at: float = 0.0
    """When the test was over (s of virtual time)."""
    _test: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._test = os.environ.get(_TEST_VARIABLE, "").rpartition(" ")[0]

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        program = f"pytest {self._test!r}" if " " in self._test else f"pytest {self._test}"
        if not self._test:
            program = f"python {sys.argv[0]}" if sys.argv[0] else "it"
        return f"{SEED_VARIABLE}={self.seed} {program}"

    def watch(self, simulated: SimulatedCluster) -> None:
        """Record what the page needs, if a page is wanted."""
        if _pages() is not None and not self.is_tried:
            self._recorder = Recorder().watch(simulated)
            self.world.observers.append(self._recorder)
            self._network = simulated.network

    def ends(self) -> None:
        """Stop recording: the shutdown of the cluster isn't part of the run."""
        self._ended_at = self.world.now
        if self._recorder is not None:
            self.world.observers.remove(self._recorder)
            assert self._network is not None
            self._network.observers.clear()

    def told(
        self,
        error: BaseException,
        causes: Causes | None = None,
        faults: Sequence[PlannedFault] = (),
    ) -> BaseException:
        """Add to *error* the line that says how to repeat the run, and return it.  Writes the page,
        if one is wanted.  *causes*: what is said of the faults that matter, if somebody has looked
        for them; *faults*: these faults."""
        error = alone(error)
        if isinstance(error, trio.Cancelled | KeyboardInterrupt):
            return error  # no verdict
        if any(SEED_VARIABLE in note for note in getattr(error, "__notes__", ())):
            return error
        path = self._write_page(error, causes, faults)
        if path is not None:
            error.add_note(f"what happened: {path}")
        error.add_note(f"again: {self.command}")
        return error

    def _write_page(
        self, error: BaseException, causes: Causes | None, faults: Sequence[PlannedFault]
    ) -> Path | None:
        directory = _pages()
        if directory is None or self._recorder is None:
            return None
        title = self._test or self.name
        struck = faults or [one.fault for one in self.faults.struck]
        recording = self._recorder.recording(
            title,
            command=self.command,
            options=(f"seed = {self.world.seed}",),
            faults=tuple(one.code() for one in struck),
            causes=causes or Causes(_NOT_SMALLER if struck else _NONE_DRAWN, (), ()),
            digest=self.world.digest,
        )
        broken = broken_of(error, self._ended_at, recording.happenings, faults)
        recording = attrs.evolve(recording, broken=broken)
        directory.mkdir(parents=True, exist_ok=True)
        name = _PLAIN.sub("-", title)[-_NAME_LENGTH_MAX:].strip("-")
        path = directory / f"{name}-seed-{self.seed}.html"
        write_page(recording, path)
        return path
