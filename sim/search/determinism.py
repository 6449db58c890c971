"""Checks that runs depend on nothing but their plans, by running the same seeds in many processes.

Every seed is run by two processes of this Python with different hash seeds, and by every other
Python that has the same versions of the packages on which a run depends.  The digest of a run
covers all its events, so all digests of a seed have to be the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from secrets import randbelow
from typing import Final

import attrs

from octopi.errors import OctopiError

CHUNK_COUNT: Final = 25
"""How many seeds one process runs; it takes a second to start."""

_ROOT: Final = str(Path(__file__).parents[2])
_PACKAGES: Final = ("trio", "trio-websocket", "wsproto", "cbor2")
"""Packages on whose versions a run depends."""
_MINORS: Final = range(11, 20)
_PROBE: Final = f"""
import json, platform
from importlib.metadata import version
import sim.run.simulation
print(json.dumps([platform.python_version(), [version(name) for name in {_PACKAGES!r}]]))
"""


class MetaError(OctopiError):
    """A process ended without printing its digests."""


@attrs.frozen
class Interpreter:
    """A Python that can run plans."""

    path: str
    version: str


@attrs.frozen
class Share:
    """The seeds for one process."""

    interpreter: Interpreter
    hash_seed: int
    first: int
    count: int


@attrs.frozen
class Mismatch:
    """A plan whose runs differed."""

    seed: int
    digests: dict[str, list[str]]
    """The names of the processes that had a digest, by digest."""

    def __str__(self) -> str:
        said = [f"{digest} ({', '.join(who)})" for digest, who in sorted(self.digests.items())]
        return f"seed {self.seed}: {'; '.join(said)}"


# --- who runs ------------------------------------------------------------------------------


def interpreters(more: Iterable[str] = ()) -> tuple[list[Interpreter], list[str]]:
    """The Pythons that can run plans: this one, those in *more*, and those that are found.  Also
    the reasons why others can't."""
    ours = _probe(sys.executable)
    assert not isinstance(ours, str), ours
    found, skipped = [ours[0]], []
    names = [f"python3.{minor}" for minor in _MINORS]
    paths = [*more, *filter(None, map(shutil.which, names))]
    for path in dict.fromkeys(paths):
        probed = _probe(path)
        if isinstance(probed, str):
            skipped.append(f"{path}: {probed}")
        elif probed[1] != ours[1]:
            pairs = zip(_PACKAGES, probed[1], ours[1], strict=True)
            other = [
                f"{name} {theirs}, not {mine}" for name, theirs, mine in pairs if theirs != mine
            ]
            skipped.append(f"{path}: it has {', '.join(other)}")
        elif all(one.version != probed[0].version for one in found):
            found.append(probed[0])
    return found, skipped


def _probe(path: str) -> tuple[Interpreter, list[str]] | str:
    """The name and version of a Python with its versions of `_PACKAGES`; or why it can't run
    plans."""
    try:
        done = subprocess.run(
            [path, "-c", _PROBE], capture_output=True, text=True, env=_environment(0), timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ends with code {done.returncode}"]
        return lines[-1 if lines[0].startswith("Traceback") else 0]
    version, packages = json.loads(done.stdout)
    return Interpreter(path, version), packages


def _environment(hash_seed: int) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": _ROOT, "PYTHONHASHSEED": str(hash_seed)}


# --- running -------------------------------------------------------------------------------


def shares(first: int, count: int, pythons: list[Interpreter]) -> Iterator[Share]:
    """The shares of all processes; each seed is run at least twice."""
    for start in range(first, first + count, CHUNK_COUNT):
        size = min(CHUNK_COUNT, first + count - start)
        for python in (pythons[0], *pythons):
            yield Share(python, randbelow(2**32), start, size)


def run_share(share: Share, tier: str | None) -> list[str]:
    """The digests of the share's seeds.

    Raises:
      MetaError: if the process fails.
    """
    command = [share.interpreter.path, "-m", "sim.search.determinism_worker"]
    command += [str(share.first), str(share.count), tier or "drawn"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=_environment(share.hash_seed), check=False
    )
    digests = done.stdout.split()
    if done.returncode or len(digests) != share.count:
        raise MetaError(f"{' '.join(command)} failed: {done.stderr.strip()[-1000:]}")
    return digests


class Comparison:
    """The digests of seeds, as processes report them."""

    def __init__(self) -> None:
        self.runs = 0
        self._seen: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))

    @property
    def seed_count(self) -> int:
        """How many seeds were run."""
        return len(self._seen)

    def add(self, share: Share, digests: list[str]) -> None:
        """Add the digests of a process that has run its share."""
        who = f"Python {share.interpreter.version}, hash seed {share.hash_seed}"
        for seed, digest in enumerate(digests, share.first):
            self.runs += 1
            self._seen[seed][digest].append(who)

    def mismatches(self) -> list[Mismatch]:
        """The plans whose runs differed."""
        return [
            Mismatch(seed, {digest: list(who) for digest, who in digests.items()})
            for seed, digests in sorted(self._seen.items())
            if len(digests) > 1
        ]


def compare(
    work: Iterable[Share], tier: str | None, jobs: int, comparison: Comparison
) -> Iterator[Share]:
    """Run the shares, *jobs* at a time; yield each when its digests are in *comparison*.

    Raises:
      MetaError: if a process fails.
    """
    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = {pool.submit(run_share, share, tier): share for share in work}
            for future in as_completed(futures):
                comparison.add(futures[future], future.result())
                yield futures[future]
        finally:
            pool.shutdown(cancel_futures=True)
