"""The disk of one simulated machine: files that outlive processes, and all that goes wrong.

In charge of what happens to the disk as a whole: lives begin and end on it, the power
fails, faults are injected, an oracle looks.  How one process's calls meet it is
`octopi.simulation.disk.view`'s, what a power failure leaves `octopi.simulation.disk.image`'s.
It knows no host, no plan and no clock.

**Lives.**  `SimulatedDisk.attach` gives each process a `DiskView`, the only way to the
files.  `SimulatedDisk.end_life` ends processes as SIGKILL does: locks are released, what
was written stays in the page cache, a sync that is under way never comes back.
`SimulatedDisk.lose_power` takes the page cache, too.

**Edges.**  Each call tells the process's *effect*, ``effect(operation, edge, path)``, before
it does anything (``before``) and, if it changed anything, when it has (``after``); a sync
also once it has begun (``during``).  Operations have the names of the methods of `Disk` and
`File`; `DiskView.replace_file` comes to its own edges and to those of the calls it is made of.
*effect* may raise.  What it raises ends the call there: a process that is killed before an
append has written nothing.  An `OSError` that it raises before or during a sync is a failed
sync.  It may also end the life or lose the power first.

**What is promised** is what Linux promises for ext4 and XFS, and no more: an append is in
the page cache; a successful `File.sync` makes a file's content durable, not its name;
`Disk.sync_directory` makes names durable.  A failed sync is never made good by a later one.

Nothing here depends on the order of a hash table, on real time or on entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import attrs

from octopi.simulation.disk.device import StorageDevice
from octopi.simulation.disk.faults import DiskFault
from octopi.simulation.disk.image import Directory, Fate, FileImage, Tree
from octopi.simulation.disk.view import After, DiskView, Effect, after_by_trio


@attrs.frozen
class DiskSnapshot:
    """What was on the device at one moment."""

    tree: Tree


class SimulatedDisk(StorageDevice):
    """The disk of one machine, from the outside: what a simulation and its oracle do to it."""

    def __init__(self) -> None:
        super().__init__()
        self.names_in_order = True
        """Whether a power failure takes the latest changes of names first, as the journals of
        ext4 and XFS have it."""
        self._views: list[DiskView] = []

    # --- lives ---------------------------------------------------------------------------

    def attach(self, effect: Effect, after: After = after_by_trio) -> DiskView:
        """What a new process sees.  *after* counts its time."""
        view = DiskView(self, effect, after)
        self._views.append(view)
        return view

    def end_life(self) -> None:
        """End every process that uses the disk; the page cache stays."""
        for view in self._views:
            view.end()
        self._views.clear()
        self.locks.clear()

    def lose_power(self, randomness: Random, fates: Sequence[Fate] = tuple(Fate)) -> None:
        """End every process and the machine: what isn't durable meets one of *fates*, drawn
        for each file and for the names."""
        self._become(self.tree.lose(fates, randomness, names_in_order=self.names_in_order))

    def wipe(self) -> None:
        """Put an empty disk in its place; every process ends."""
        self._become(Tree())

    def snapshot(self) -> DiskSnapshot:
        """A copy of the device as it is now: what isn't synced is not in it."""
        return DiskSnapshot(self.tree.copy(lambda _, image: bytes(image.durable)))

    def restore(self, snapshot: DiskSnapshot) -> None:
        """Put what was on the device at *snapshot* in its place; every process ends."""
        self._become(snapshot.tree.copy(lambda _, image: bytes(image.durable)))

    def _become(self, tree: Tree) -> None:
        self.end_life()
        self.page_cache_count += 1
        self.tree = tree

    # --- faults --------------------------------------------------------------------------

    def inject(self, fault: DiskFault) -> None:
        """Have *fault* strike from now on, in this life and the next ones."""
        self.faults.add(fault)

    def heal(self) -> None:
        """Have nothing fail any more, for want of space neither; damage stays."""
        self.faults.clear()
        self.capacity_bytes = None
        self.read_only = False

    def flip(self, path: str, bit: int) -> None:
        """Turn a bit of a file over at rest: on the device and, as when it is read from there
        again, in the page cache."""
        self.image(path).flip(bit)

    def put(self, path: str, content: bytes | None) -> None:
        """Have *path*, which is there, mean a file with other *content*, or nothing (None), on
        the device and in the page cache.  Every process has to have ended."""
        assert not self._views, "a process uses the disk"
        head, _, name = path.rpartition("/")
        directory = self.tree.find(head)
        assert isinstance(directory, Directory)
        image = None if content is None else FileImage(content)
        for names in (directory.cached, directory.durable):
            if name in names:
                if image is None:
                    del names[name]
                else:
                    names[name] = image

    # --- what an oracle asks -------------------------------------------------------------

    def files(self, under: str = "/") -> list[str]:
        """Paths of all files that processes see below *under*, sorted, each from ``/`` on."""
        prefix = f"/{under.strip('/')}/".replace("//", "/")
        return [path for path, _ in self.tree.files() if path.startswith(prefix)]

    def durable(self, path: str, start_bytes: int = 0, end_bytes: int | None = None) -> bytes:
        """What any power failure leaves of a file, or a range of that.

        Raises:
          FileNotFoundError: if it may leave none of that name.
        """
        image = self.image(path, durable=True)
        with memoryview(image.durable) as data:
            return bytes(data[: image.settled_bytes][start_bytes:end_bytes])

    def settle(self) -> None:
        """Have all on the device as processes see it, without any call."""
        self.tree.settle_all()
