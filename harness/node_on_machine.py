"""Runs `octopi_node` on a machine that can lose power: ``node_on_machine.py DIRECTORY ARGUMENTS``.

Only what a machine has of its own is taken from *DIRECTORY* instead: the id of its boot, and
what its device holds.  Every fsync that succeeded leaves a line in ``synced``: how much of
which file the device has, or which names of which directory.  `harness.machines` cuts the files
back to that when the power goes.  While there is a file ``full`` there is no room for what is
written; while there is one ``broken``, fsyncs fail.  Nothing of the program itself is replaced.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import octopi.operating_system
from octopi_node import main

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike, ReadableBuffer


def run(directory: Path) -> None:
    """Run the node as its command line says."""
    octopi.operating_system.BOOT_ID_FILE = str(directory / "boot_id")
    # Unbuffered: what a killed process wrote is kept, as what its device holds would be.
    journal = (directory / "synced").open("ab", buffering=0)
    lock = threading.Lock()

    def noted(sync: Callable[[FileDescriptorLike], None], fd: FileDescriptorLike) -> None:
        descriptor = fd if isinstance(fd, int) else fd.fileno()
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        # Looked at before: what is written meanwhile may come too late for the device.
        state = os.fstat(descriptor)
        names = sorted(os.listdir(path)) if stat.S_ISDIR(state.st_mode) else None
        if (directory / "broken").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        sync(descriptor)
        entry = {"path": path, "names": names, "size": state.st_size, "inode": state.st_ino}
        with lock:
            journal.write(json.dumps(entry).encode() + b"\n")

    of_file, of_data, write = os.fsync, os.fdatasync, os.pwrite

    def fsync(fd: FileDescriptorLike) -> None:
        need_room()  # files that are replaced are written by the interpreter itself
        noted(of_file, fd)

    def pwrite(fd: int, data: ReadableBuffer, offset: int, /) -> int:
        need_room()
        return write(fd, data, offset)

    def need_room() -> None:
        if (directory / "full").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fdatasync(fd: FileDescriptorLike) -> None:
        noted(of_data, fd)

    os.fsync, os.fdatasync, os.pwrite = fsync, fdatasync, pwrite
    main()


if __name__ == "__main__":
    run(Path(sys.argv.pop(1)))
