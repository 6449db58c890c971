"""The disk of one simulated machine: files that survive processes, and the faults of the disk.

This module handles what happens to the whole disk: processes begin and end, the power fails, faults
are injected, and an oracle reads it.  `octopi.simulation.disk.view` has the calls of one process,
and `octopi.simulation.disk.image` what a power failure leaves.  The disk knows no host, no plan and
no clock.

**Processes.**  `SimulatedDisk.attach` gives each process a `DiskView`, the only way to the files.
`SimulatedDisk.end_life` ends processes as SIGKILL does: locks are released, written data stays in
the page cache, and a sync in progress never returns.  `SimulatedDisk.lose_power` also destroys the
page cache.

**Edges.**  Each call reports to the process's *effect*, ``effect(operation, edge, path)``: before
it does anything (``before``), and after it has changed something (``after``); a sync also once it
has begun (``during``).  Operations have the names of the methods of `Disk` and `File`;
`DiskView.replace_file` reports its own edges and those of the calls that it makes. *effect* may
raise, which ends the call there: a process that is killed before an append has written nothing.  An
`OSError` that it raises before or during a sync is a failed sync.  It may also end the process or
cut the power first.

**Guarantees** are those of Linux for ext4 and XFS, and no others: an append is in the page cache; a
successful `File.sync` makes a file's content durable, but not its name; `Disk.sync_directory` makes
names durable.  A later sync doesn't make up for a failed one.  Syncs of several files at the same
time are made together (`octopi.group_sync`), by one sync of the whole disk
(`octopi.simulation.disk.file_system_sync`).

Nothing in this module depends on the order of a hash table, on real time or on entropy.
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
    """The content of the device at one moment."""

    tree: Tree


class SimulatedDisk(StorageDevice):
    """The disk of one machine, as a simulation and its oracle use it from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.names_in_order = True
        """Whether a power failure destroys the latest changes of names first, as the journals of
        ext4 and XFS ensure."""
        self._views: list[DiskView] = []

    # --- processes -----------------------------------------------------------------------

    def attach(self, effect: Effect, after: After = after_by_trio) -> DiskView:
        """The disk as a new process sees it.  *after* calls actions later."""
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
        """End every process and cut the power: data that isn't durable meets one of *fates*, drawn
        for each file and for the names."""
        self._become(self.tree.lose(fates, randomness, names_in_order=self.names_in_order))

    def wipe(self) -> None:
        """Replace the disk by an empty one; every process ends."""
        self._become(Tree())

    def snapshot(self) -> DiskSnapshot:
        """A copy of the device as it is now, without data that isn't synced."""
        return DiskSnapshot(self.tree.copy(lambda _, image: bytes(image.durable)))

    def restore(self, snapshot: DiskSnapshot) -> None:
        """Replace the content of the device by *snapshot*; every process ends."""
        self._become(snapshot.tree.copy(lambda _, image: bytes(image.durable)))

    def _become(self, tree: Tree) -> None:
        self.end_life()
        self.page_cache_count += 1
        self.tree = tree

    # --- faults --------------------------------------------------------------------------

    def inject(self, fault: DiskFault) -> None:
        """Have *fault* strike from now on, in this process and the next ones."""
        self.faults.add(fault)

    def heal(self) -> None:
        """End all faults, a lack of space included; damage stays."""
        self.faults.clear()
        self.capacity_bytes = None
        self.read_only = False

    def flip(self, path: str, bit: int) -> None:
        """Flip a bit of a file on the device, and also in the page cache, as if the file were read
        from the device again."""
        self.image(path).flip(bit)

    def put(self, path: str, content: bytes | None) -> None:
        """Replace the file *path*, which must exist, by one with other *content*, or remove it
        (None), on the device and in the page cache.  Every process must have ended."""
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

    # --- for an oracle -------------------------------------------------------------------

    def files(self, under: str = "/") -> list[str]:
        """The paths of all files that processes see below *under*, sorted, each beginning at
        ``/``."""
        prefix = f"/{under.strip('/')}/".replace("//", "/")
        return [path for path, _ in self.tree.files() if path.startswith(prefix)]

    def durable(self, path: str, start_bytes: int = 0, end_bytes: int | None = None) -> bytes:
        """The part of a file, or of a range of it, that survives any power failure.

        Raises:
          FileNotFoundError: if the file itself may not survive one.
        """
        image = self.image(path, durable=True)
        with memoryview(image.durable) as data:
            return bytes(data[: image.settled_bytes][start_bytes:end_bytes])

    def settle(self) -> None:
        """Make everything durable as processes see it, without any call."""
        self.tree.settle_all()
