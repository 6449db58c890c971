"""A simulated disk against a simple model: whatever was done, what a crash leaves can be explained.

The model knows no sectors and no journals.  Of each file it keeps every content that it had
when something was cut off it since the last sync, and the present one; of each name every
meaning since it was last certain.
"""

from __future__ import annotations

from random import Random

import attrs
import trio
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.disk.image import Fate

DIRECTORIES = ("/a", "/b")
PATHS = tuple(f"{directory}/{name}" for directory in DIRECTORIES for name in "xyz")
CLEAN_FATES = (Fate.LOST, Fate.KEPT, Fate.TORN)
"""Those that leave a beginning of what was written."""
ID_BYTES = 8

SIZES = st.sampled_from([1, 10, 511, 512, 1500, 5000])
FATES = st.sampled_from([tuple(Fate), CLEAN_FATES, *((fate,) for fate in Fate)])


@attrs.define(eq=False)
class ModelFile:
    """A file.  Its first bytes say which one it is, and are always durable."""

    content: bytes
    settled_bytes: int
    earlier: list[tuple[int, bytes]] = attrs.field(factory=list)
    """Settled bytes and content, each time before something was cut off."""

    def sync(self) -> None:
        self.settled_bytes = len(self.content)
        self.earlier.clear()

    def explains(self, found: bytes, fates: tuple[Fate, ...]) -> bool:
        """Whether *found* is what a power failure may have made of it."""
        clean = set(fates) <= set(CLEAN_FATES)
        return any(
            settled <= len(found) <= len(content)
            and found[:settled] == content[:settled]
            and (not clean or content.startswith(found))
            for settled, content in [*self.earlier, (self.settled_bytes, self.content)]
        )


class DiskMachine(RuleBasedStateMachine):
    """One process after the other on one disk."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.disk.sync_s = 0.0
        self.names: dict[str, ModelFile] = {}
        self.meanings: dict[str, list[ModelFile | None]] = {path: [None] for path in PATHS}
        """All since the name was last certain, the present one last."""
        self.certain: dict[ModelFile, None] = {}
        """Files that a power failure may rename, but not remove."""
        self.file_count = 0

    @initialize(names_in_order=st.booleans())
    def begin(self, names_in_order: bool) -> None:
        self.disk.names_in_order = names_in_order
        self.boot()
        for directory in DIRECTORIES:
            self.view.make_directory(directory)
        self.disk.settle()

    def boot(self) -> None:
        self.view = self.disk.attach(lambda _operation, _edge, _path: None)

    def next_id(self) -> bytes:
        self.file_count += 1
        return self.file_count.to_bytes(ID_BYTES, "big")

    def mean(self, path: str, file: ModelFile | None) -> None:
        gone = self.names.pop(path, None)
        if file is not None:
            self.names[path] = file
        if gone is not None and gone not in self.names.values():
            self.certain.pop(gone, None)
        self.meanings[path].append(file)

    def make_certain(self, directory: str) -> None:
        for path in PATHS:
            if path.startswith(directory):
                self.meanings[path] = [self.names.get(path)]
                if path in self.names:
                    self.certain[self.names[path]] = None

    # --- what a process does -----------------------------------------------------------------

    @rule(path=st.sampled_from(PATHS))
    def create(self, path: str) -> None:
        if path not in self.names:
            file = self.view.open(path, create=True)
            content = self.next_id()
            file.append(content)
            trio.run(file.sync)
            file.close()
            self.mean(path, ModelFile(content, len(content)))

    @rule(path=st.sampled_from(PATHS), size=SIZES, seed=st.integers(0, 255))
    def append(self, path: str, size: int, seed: int) -> None:
        if path in self.names:
            data = Random(seed).randbytes(size)
            file = self.view.open(path)
            file.append(data)
            file.close()
            self.names[path].content += data

    @rule(path=st.sampled_from(PATHS), fraction=st.floats(0, 1))
    def truncate(self, path: str, fraction: float) -> None:
        if path in self.names:
            model = self.names[path]
            size = ID_BYTES + round(fraction * (len(model.content) - ID_BYTES))
            file = self.view.open(path)
            file.truncate(size)
            file.close()
            model.earlier.append((model.settled_bytes, model.content))
            model.settled_bytes = min(model.settled_bytes, size)
            model.content = model.content[:size]

    @rule(path=st.sampled_from(PATHS))
    def sync(self, path: str) -> None:
        if path in self.names:
            file = self.view.open(path)
            trio.run(file.sync)
            file.close()
            self.names[path].sync()

    @rule(path=st.sampled_from(PATHS))
    def remove(self, path: str) -> None:
        if path in self.names:
            self.view.remove(path)
            self.mean(path, None)

    @rule(old=st.sampled_from(PATHS), new=st.sampled_from(PATHS))
    def rename(self, old: str, new: str) -> None:
        if old in self.names and old != new:
            self.view.rename(old, new)
            moved = self.names[old]
            self.mean(new, moved)
            self.mean(old, None)

    @rule(directory=st.sampled_from(DIRECTORIES))
    def sync_directory(self, directory: str) -> None:
        trio.run(self.view.sync_directory, directory)
        self.make_certain(directory)

    @rule(path=st.sampled_from(PATHS), size=SIZES)
    def replace(self, path: str, size: int) -> None:
        content = self.next_id() + bytes(size)
        trio.run(self.view.replace_file, path, content)
        self.mean(path, ModelFile(content, len(content)))
        self.make_certain(path.rpartition("/")[0])

    # --- what the world does -------------------------------------------------------------------

    @rule()
    def kill(self) -> None:
        self.disk.end_life()
        self.boot()

    @rule(seed=st.integers(0, 2**32), fates=FATES)
    def lose_power(self, seed: int, fates: tuple[Fate, ...]) -> None:
        before = {path: self.disk.durable(path) for path in self.durable_paths()}
        by_id = {
            file.content[:ID_BYTES]: file
            for meanings in self.meanings.values()
            for file in meanings
            if file is not None
        }
        self.disk.lose_power(Random(seed), fates)
        self.boot()
        left: dict[str, ModelFile] = {}
        for path in self.disk.files():
            found = self.disk.cached(path)
            file = left[path] = by_id[found[:ID_BYTES]]
            assert file.explains(found, fates)
            if before.get(path, b"")[:ID_BYTES] == found[:ID_BYTES]:
                assert found.startswith(before[path])
        for path in PATHS:
            assert left.get(path) in self.meanings[path]
        assert len(set(left.values())) == len(left)
        assert set(self.certain) <= set(left.values())
        self.names = {}
        for path in left:
            content = self.disk.cached(path)
            self.names[path] = ModelFile(content, len(content))
            assert self.disk.durable(path) == content
        self.certain.clear()
        for directory in DIRECTORIES:
            self.make_certain(directory)

    def durable_paths(self) -> list[str]:
        found = []
        for path in PATHS:
            try:
                self.disk.durable(path)
            except FileNotFoundError:
                continue
            found.append(path)
        return found

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def processes_see_what_was_done(self) -> None:
        assert self.disk.files() == sorted(self.names)
        for path, file in self.names.items():
            assert self.disk.cached(path) == file.content

    @invariant()
    def what_was_synced_is_durable(self) -> None:
        durable = self.durable_paths()
        for path, meanings in self.meanings.items():
            (file, *others) = meanings
            if not others:
                assert (path in durable) == (file is not None)
                if file is not None:
                    assert self.disk.durable(path) == file.content[: file.settled_bytes]


DiskMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestDisk = DiskMachine.TestCase
