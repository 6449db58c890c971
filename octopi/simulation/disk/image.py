"""The content of a simulated disk: page cache and device, for each file and each directory.

This module handles what a power failure leaves of the content.  It knows no process, no call that
fails (`octopi.simulation.disk.view` does), and no time.

**A file** has a cached content, which processes see, and a durable one, which the device has for
certain.  They differ behind `FileImage.settled_bytes`.  A power failure first undoes some of the
truncations since the last sync, the latest ones first, because a journal keeps their order.  Then
the unsynced bytes meet a `Fate`, in sectors: the device writes a sector whole or not at all, and
sectors in any order.  The settled bytes don't change.  Garbage is random, never an old valid
record: with ``data=ordered`` and unwritten extents ext4 shows no blocks that were never written
through the file (Linux, Documentation/filesystems/ext4).

**Names** are changed by operations.  Each happens completely or not at all, even a rename, which
changes two names.  A sync of a directory makes the operations in it durable, and those that they
build on.  A power failure keeps the first ones of the others, as the journals of ext4 and XFS do,
or, if `octopi.simulation.disk.disk.SimulatedDisk.names_in_order` is false, any of them that fit
together, as btrfs does (Pillai et al., *All file systems are not created equal*, OSDI 2014).  Names
and contents are independent: a name may be durable and its content lost, or the other way round.

**A failed sync** leaves its bytes off the device, but the system considers them written: the next
sync succeeds without them (Rebello et al., *Can applications recover from fsync failures?*, USENIX
ATC 2020).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, unique
from random import Random
from typing import Final

import attrs

SECTOR_BYTES: Final = 512
"""The bytes of a sector, which a device writes whole or not at all."""


def os_error(number: int, path: str) -> OSError:
    """The error of the system about *path*.  *number* is one of `errno`."""
    return OSError(number, os.strerror(number), path)


@unique
class Fate(Enum):
    """What a power failure does to the unsynced end of a file.

    Of the operations on names since the sync, LOST undoes all and KEPT none; any other fate keeps
    some of them.
    """

    LOST = "lost"
    KEPT = "kept"
    TORN = "torn"
    """Only the beginning was written, some whole sectors."""
    REORDERED = "reordered"
    """The last sector was written; some before it were not, and hold zeros or garbage."""
    GARBAGE = "garbage"
    """The beginning was written, and the file is longer: the rest is random bytes."""


@attrs.define
class _Cut:
    """A truncation since the last sync, with all that it takes to undo it."""

    settled_bytes: int
    """The settled bytes before it."""
    size_bytes: int
    """The size of the file after it."""
    tail: bytes
    """The bytes that were cut off."""


@attrs.frozen
class PendingSync:
    """What a sync in progress will have written to the device when it ends."""

    start_bytes: int
    """The bytes before this position are not written: the system considers them clean."""
    data: bytes
    cuts_count: int
    """The number of truncations that it covers."""


class FileImage:
    """One file, whatever names it has."""

    # fmt: off
    __slots__ = (
        "_clean_bytes", "_cuts", "_lost_from", "cached", "durable", "has_error", "settled_bytes",
    )
    # fmt: on

    def __init__(self, data: bytes = b"") -> None:
        self.cached = bytearray(data)
        """The content that processes see."""
        self.durable = bytearray(data)
        """The content of the device, if no truncation since the last sync has reached it."""
        self.settled_bytes = len(data)
        """The number of leading bytes of `durable` that survive any power failure."""
        self._clean_bytes = len(data)
        """The number of leading bytes of `cached` that the system believes to be on the device."""
        self._lost_from: int | None = None
        """Where the first bytes begin that a failed sync left off the device; None: nowhere."""
        self.has_error = False
        """Whether writing it failed in a sync of the whole disk, which its next sync reports."""
        self._cuts: list[_Cut] = []
        """The truncations since the last sync, in order."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the cached content to *size_bytes*, or extend it with zeros."""
        if size_bytes < len(self.cached):
            self._cuts.append(_Cut(self.settled_bytes, size_bytes, bytes(self.cached[size_bytes:])))
            del self.cached[size_bytes:]
            self._clean_bytes = min(self._clean_bytes, size_bytes)
            self.settled_bytes = min(self.settled_bytes, size_bytes)
            if self._lost_from is not None and size_bytes <= self._lost_from:
                self._lost_from = None
        else:
            self.cached.extend(bytes(size_bytes - len(self.cached)))

    # --- syncing -------------------------------------------------------------------------

    def rewrite(self, position_bytes: int) -> None:
        """Have the next sync write the cached content from *position_bytes* on."""
        self._clean_bytes = min(self._clean_bytes, position_bytes)

    def begin_flush(self) -> PendingSync:
        """What a sync that begins now will write."""
        start = self._clean_bytes
        return PendingSync(start, bytes(memoryview(self.cached)[start:]), len(self._cuts))

    def settle(self, flush: PendingSync) -> None:
        """Note that a sync has succeeded: *flush* is on the device."""
        self._settle(flush.start_bytes, flush.data, flush.cuts_count)
        self._clean_bytes = self.settled_bytes
        if self._lost_from is not None and flush.start_bytes <= self._lost_from:
            self._lost_from = None

    def forget(self, flush: PendingSync) -> None:
        """Note that a sync has failed: the system considers *flush* written all the same."""
        end = flush.start_bytes + len(flush.data)
        lowest = min((cut.size_bytes for cut in self._cuts[flush.cuts_count :]), default=end)
        self._clean_bytes = min(end, lowest)
        if flush.data and self._lost_from is None:
            self._lost_from = flush.start_bytes

    @property
    def kept_bytes(self) -> int:
        """The number of leading bytes that any power failure leaves as processes see them now."""
        known = min(self.settled_bytes, len(self.cached))
        return known if self._lost_from is None else min(known, self._lost_from)

    def settle_all(self) -> None:
        """Make the content durable as processes see it."""
        self._settle(0, bytes(self.cached), len(self._cuts))
        self._clean_bytes = self.settled_bytes
        self._lost_from = None

    def _settle(self, start_bytes: int, data: bytes, cuts_count: int) -> None:
        del self.durable[start_bytes:]
        self.durable.extend(bytes(start_bytes - len(self.durable)))
        self.durable += data
        self.settled_bytes = len(self.durable)
        del self._cuts[:cuts_count]
        for cut in self._cuts:  # truncations during the sync
            cut.settled_bytes = self.settled_bytes
            self.settled_bytes = min(self.settled_bytes, cut.size_bytes)

    # --- losing --------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether a power failure leaves exactly `durable`."""
        return not self._cuts and self._clean_bytes == self.settled_bytes == len(self.cached)

    def lose(self, fate: Fate, randomness: Random) -> bytes:
        """The content that a power failure leaves, by *fate*."""
        cuts_kept = len(self._cuts)
        if fate is Fate.LOST:
            cuts_kept = randomness.choice([0, cuts_kept])
        elif fate is not Fate.KEPT:
            cuts_kept = randomness.randint(0, cuts_kept)
        written, settled = self._before_cut(cuts_kept)
        unsynced = _meet(fate, memoryview(written)[settled:], settled, randomness)
        return bytes(memoryview(self.durable)[:settled]) + unsynced

    def _before_cut(self, number: int) -> tuple[bytes, int]:
        """The cached content and the settled bytes as they were before truncation *number*."""
        content, settled = bytes(self.cached), self.settled_bytes
        for cut in reversed(self._cuts[number:]):
            content = content[: cut.size_bytes] + cut.tail
            settled = cut.settled_bytes
        return content, settled

    def flip(self, bit: int) -> None:
        """Flip one bit, in the page cache and on the device."""
        for data in (self.cached, self.durable):
            if bit // 8 < len(data):
                data[bit // 8] ^= 1 << bit % 8


def _meet(fate: Fate, data: memoryview, position: int, randomness: Random) -> bytes:
    """What *fate* leaves of unsynced *data*, which begins at *position* in its file."""
    if fate is Fate.LOST or not data:
        return b""
    if fate is Fate.KEPT:
        return bytes(data)
    first = SECTOR_BYTES - position % SECTOR_BYTES
    sectors = [0, *range(first, len(data), SECTOR_BYTES), len(data)]
    if fate is Fate.TORN:
        return bytes(data[: randomness.choice(sectors)])
    if fate is Fate.GARBAGE:
        start = randomness.choice(sectors[:-1])
        end = randomness.randint(start + 1, len(data))
        return bytes(data[:start]) + randomness.randbytes(end - start)
    left = bytearray(data)
    holes = len(sectors) - 2 or 1  # the last sector is whole, unless it is the only one
    certain = randomness.randrange(holes)
    for number in range(holes):
        if number == certain or randomness.random() < 0.5:
            start, end = sectors[number], sectors[number + 1]
            size_bytes = end - start
            garbage = randomness.random() < 0.5
            left[start:end] = randomness.randbytes(size_bytes) if garbage else bytes(size_bytes)
    return bytes(left)


# --- names ---------------------------------------------------------------------------------


class Directory:
    """The names in a directory, as processes see them and as the device has them."""

    __slots__ = ("cached", "durable")

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileImage | Directory
"""What a name may refer to."""


@attrs.frozen
class _Change:
    """What one name refers to before and after an operation; None: the name doesn't exist."""

    directory: Directory
    name: str
    before: Node | None
    after: Node | None

    def is_of(self, other: _Change) -> bool:
        """Whether both change the same name."""
        return self.directory is other.directory and self.name == other.name

    @property
    def fits(self) -> bool:
        """Whether the device has the name as it was before."""
        return self.directory.durable.get(self.name) is self.before

    def apply(self, names: dict[str, Node]) -> None:
        """Make the change in *names*."""
        if self.after is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.after


@attrs.define(eq=False)
class Operation:
    """Changes of names that happen together or not at all."""

    changes: tuple[_Change, ...]
    forgotten: bool = False
    """Whether a sync of it failed: later ones cover it only for operations that build on it."""

    def settle(self) -> None:
        """Make the changes on the device."""
        for change in self.changes:
            change.apply(change.directory.durable)


class Tree:
    """All files and directories of a disk.

    Paths are ``/``-separated; a leading ``/`` changes nothing.
    """

    def __init__(self) -> None:
        self.root = Directory()
        self._unsynced: list[Operation] = []
        """The operations that are not durable yet, in order."""

    def find(self, path: str, *, durable: bool = False) -> Node | None:
        """What *path* refers to as processes see names, or (*durable*) as the device has them; None
        if it doesn't exist.

        Raises:
          NotADirectoryError: if *path* passes through a file.
        """
        found: Node = self.root
        for name in path.split("/"):
            if name in {"", "."}:
                continue
            if isinstance(found, FileImage):
                raise os_error(errno.ENOTDIR, path)
            after = (found.durable if durable else found.cached).get(name)
            if after is None:
                return None
            found = after
        return found

    def files(self) -> Iterator[tuple[str, FileImage]]:
        """All files that processes see, each with its path, which begins with ``/``, sorted."""
        return _files_in(self.root, "")

    def change(self, *changes: tuple[Directory, str, Node | None]) -> None:
        """Have names refer to other files or directories, or to none (None), in one operation."""
        operation = Operation(
            tuple(
                _Change(directory, name, directory.cached.get(name), after)
                for directory, name, after in changes
            )
        )
        for change in operation.changes:
            change.apply(change.directory.cached)
        self._unsynced.append(operation)

    # --- syncing -------------------------------------------------------------------------

    def begin_sync(self, directory: Directory) -> list[Operation]:
        """What a sync of *directory* that begins now covers: the operations in the directory, and
        those that they build on, in order."""
        covered: list[Operation] = []
        needed: list[_Change] = []
        for operation in reversed(self._unsynced):
            asked = not operation.forgotten and any(
                change.directory is directory for change in operation.changes
            )
            if asked or any(one.is_of(change) for one in operation.changes for change in needed):
                covered.append(operation)
                needed.extend(operation.changes)
        return covered[::-1]

    def begin_sync_of_all(self) -> list[Operation]:
        """What a sync of the whole disk that begins now covers."""
        return [operation for operation in self._unsynced if not operation.forgotten]

    def settle(self, operations: list[Operation]) -> None:
        """Note that a sync has succeeded: *operations* are on the device."""
        for operation in operations:
            if operation in self._unsynced:
                operation.settle()
                self._unsynced.remove(operation)

    def settle_names(self) -> None:
        """Make all names durable as processes see them."""
        self.settle(list(self._unsynced))

    def settle_all(self) -> None:
        """Make all names and contents durable as processes see them."""
        self.settle_names()
        for _, image in self.files():
            image.settle_all()

    # --- losing --------------------------------------------------------------------------

    def lose(self, fates: Sequence[Fate], randomness: Random, *, names_in_order: bool) -> Tree:
        """The disk that a power failure leaves.  Each file meets one of *fates*, and so do the
        names."""
        key = randomness.getrandbits(64)
        self._lose_names(fates, Random(f"{key}"), names_in_order)

        def left(path: str, image: FileImage) -> bytes:
            if image.is_settled:
                return bytes(image.durable)
            # Each file has its own source, so that the fate of one doesn't change those of others.
            source = Random(f"{key} {path}")
            return image.lose(source.choice(fates), source)

        return self.copy(left)

    def _lose_names(self, fates: Sequence[Fate], randomness: Random, in_order: bool) -> None:
        count = len(self._unsynced)
        fate = randomness.choice(fates)
        kept = {Fate.LOST: 0, Fate.KEPT: count}.get(fate)
        if kept is None and (in_order or fate is Fate.TORN):
            kept = randomness.randrange(count + 1)
        for number, operation in enumerate(self._unsynced):
            stays = randomness.random() < 0.5 if kept is None else number < kept
            if stays and all(change.fits for change in operation.changes):
                operation.settle()
        self._unsynced.clear()

    def copy(self, content: Callable[[str, FileImage], bytes]) -> Tree:
        """A disk whose device has the same names as the device of this one, and the *content* of
        each file, which is called in the order of the paths."""
        copied = Tree()
        copied.root = _copy(self.root, "", content)
        return copied


def _files_in(directory: Directory, path: str) -> Iterator[tuple[str, FileImage]]:
    for name, node in sorted(directory.cached.items()):
        below = f"{path}/{name}"
        if isinstance(node, Directory):
            yield from _files_in(node, below)
        else:
            yield below, node


def _copy(directory: Directory, path: str, content: Callable[[str, FileImage], bytes]) -> Directory:
    copied = Directory()
    for name, node in sorted(directory.durable.items()):
        below = f"{path}/{name}"
        if isinstance(node, Directory):
            copied.durable[name] = _copy(node, below, content)
        else:
            copied.durable[name] = FileImage(content(below, node))
    copied.cached = dict(copied.durable)
    return copied


def names_in_path(path: str) -> list[str]:
    """The names of the directories that lead to *path*, and its own."""
    return [name for name in path.split("/") if name not in {"", "."}]
