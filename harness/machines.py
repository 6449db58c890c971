"""Machines whose power and disks fail: a loss of power takes the data that was not synced.

The node is a real process.  `harness/node_on_machine.py` runs it, notes what each fsync made
durable, and gives the machine a boot id of its own.  A loss of power cuts the files back to what
may be durable, and changes the boot id.
"""

from __future__ import annotations

import json
import random
import sys
import uuid
from pathlib import Path
from typing import Final

import attrs

_RUNNER: Final = Path(__file__).with_name("node_on_machine.py")


@attrs.define
class _Durable:
    """What a device holds for certain, because an fsync succeeded."""

    sizes: dict[int, int] = attrs.field(factory=dict)
    """The durable size of each file in bytes, by its inode, because a file may be renamed."""
    names: dict[Path, set[str]] = attrs.field(factory=dict)
    """The durable entries of each directory."""


class Machine:
    """One machine, with its boot id and a note of what its device holds."""

    def __init__(self, directory: Path) -> None:
        """Boot the machine.  Its notes are in *directory*, outside of the node's data directory."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._boot()

    def node_command(self, *arguments: str) -> list[str]:
        """The command line that runs a node on this machine."""
        return [sys.executable, str(_RUNNER), str(self.directory), *arguments]

    def fill(self, *, full: bool = True) -> None:
        """Fill the disk, or make room on it again."""
        self._mark("full", there=full)

    def break_disk(self, *, broken: bool = True) -> None:
        """Make every fsync fail, or succeed again."""
        self._mark("broken", there=broken)

    def _mark(self, name: str, *, there: bool) -> None:
        if there:
            (self.directory / name).touch()
        else:
            (self.directory / name).unlink(missing_ok=True)

    def unsynced(self, data_dir: Path) -> list[Path]:
        """The segments in *data_dir* with bytes that may not be durable."""
        durable = self._durable()
        states = {path: path.stat() for path in data_dir.rglob("*.log")}
        return [path for path, it in states.items() if durable.sizes.get(it.st_ino, 0) < it.st_size]

    def lose_power(self, data_dir: Path, randomness: random.Random) -> list[str]:
        """Take from *data_dir* data that may not be durable, and boot.  The node must be dead.

        A file that was appended to keeps what was synced, and a random part of the rest.  Zeros may
        take the place of the part that is lost.  A file whose name was not synced may be gone.
        Return a line about each file that changed.
        """
        durable = self._durable()
        changes = []
        for path in sorted(data_dir.rglob("*"), reverse=True):
            if path.is_dir() or path.name == "lock":
                continue
            known = durable.names.get(path.parent.resolve())
            if known is not None and path.name not in known and randomness.random() < 0.5:
                changes.append(f"{path.relative_to(data_dir)} is gone: its name was not synced")
                path.unlink()
                continue
            state = path.stat()
            synced = min(durable.sizes.get(state.st_ino, 0), state.st_size)
            if synced < state.st_size:
                kept = randomness.randint(synced, state.st_size)
                zeros = randomness.choice((0, state.st_size - kept))
                with path.open("r+b") as file:
                    file.truncate(kept)
                    file.truncate(kept + zeros)
                changes.append(
                    f"{path.relative_to(data_dir)} had {state.st_size} bytes, {synced} of them "
                    f"synced; has {kept} and {zeros} zeros"
                )
        self._note_all(data_dir)
        self._boot()
        return changes

    def _note_all(self, data_dir: Path) -> None:
        """Note everything as durable: what is there after a loss of power came from the device."""
        with (self.directory / "synced").open("w") as journal:
            for path in [data_dir, *data_dir.rglob("*")]:
                names = sorted(one.name for one in path.iterdir()) if path.is_dir() else None
                state = path.stat()
                entry = {"path": str(path.resolve()), "names": names}
                sizes = {"size": state.st_size, "inode": state.st_ino}
                journal.write(json.dumps({**entry, **sizes}) + "\n")

    def _boot(self) -> None:
        (self.directory / "boot_id").write_text(f"{uuid.uuid4()}\n")

    def _durable(self) -> _Durable:
        durable = _Durable()
        journal = self.directory / "synced"
        for line in journal.read_text().splitlines() if journal.exists() else []:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the node was killed while it wrote this line
            if entry["names"] is None:
                durable.sizes[entry["inode"]] = entry["size"]
            else:
                durable.names[Path(entry["path"])] = set(entry["names"])
        return durable
