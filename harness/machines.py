"""Machines whose power and disks fail: a node on one forgets what no fsync brought to the device.

The node is a real process.  `harness/node_on_machine.py` notes what each fsync made durable and
gives it a boot id of its own; losing power cuts the files back to that and changes the id.
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
    """What a device holds, as far as fsyncs tell."""

    sizes: dict[int, int] = attrs.field(factory=dict)
    """Bytes of a file, by its inode: a name may change."""
    names: dict[Path, set[str]] = attrs.field(factory=dict)
    """The entries of a directory."""


class Machine:
    """One machine, with its boot id and the memory of what its device holds."""

    def __init__(self, directory: Path) -> None:
        """*directory* is for its own notes, outside of the node's data directory."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._boot()

    def node_command(self, *arguments: str) -> list[str]:
        """The command line that runs a node here."""
        return [sys.executable, str(_RUNNER), str(self.directory), *arguments]

    def fill(self, *, full: bool = True) -> None:
        """Have no room left on the disk, or have room again."""
        self._mark("full", there=full)

    def break_disk(self, *, broken: bool = True) -> None:
        """Have every fsync fail, or none any more."""
        self._mark("broken", there=broken)

    def _mark(self, name: str, *, there: bool) -> None:
        if there:
            (self.directory / name).touch()
        else:
            (self.directory / name).unlink(missing_ok=True)

    def unsynced(self, data_dir: Path) -> list[Path]:
        """The segments in *data_dir* that have bytes which the device need not hold."""
        durable = self._durable()
        states = {path: path.stat() for path in data_dir.rglob("*.log")}
        return [path for path, it in states.items() if durable.sizes.get(it.st_ino, 0) < it.st_size]

    def lose_power(self, data_dir: Path, randomness: random.Random) -> list[str]:
        """Take from *data_dir*, whose node is dead, what need not be on the device, and boot.

        A file that was appended to keeps what was synced and a random part of the rest, which
        may also be zeros.  A file whose name was not synced may be gone.  Return what changed,
        a line for each file.
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
        """What is there after a loss of power came from the device, so it is durable."""
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
                continue  # torn: the node was killed in the middle
            if entry["names"] is None:
                durable.sizes[entry["inode"]] = entry["size"]
            else:
                durable.names[Path(entry["path"])] = set(entry["names"])
        return durable
