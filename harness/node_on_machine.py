"""Runs `octopi_node` on a machine that can lose power: ``node_on_machine.py DIRECTORY ARGUMENTS``.

The program runs unchanged; only `os.pwrite`, `os.fsync`, `os.fdatasync` and the file with the boot
id are replaced, and files are never synced together.  The boot id is in *DIRECTORY*.  Every sync
that succeeds adds a line to the file ``synced`` there: the durable size of a file, or the durable
names of a directory.  `harness.machines` cuts the files back to that when the machine loses power.
While *DIRECTORY* has a file ``full``, `os.pwrite` and `os.fsync` fail with ENOSPC; while it has a
file ``broken``, both syncs fail with EIO.
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
import octopi.platforms
from octopi_node import main

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike, ReadableBuffer


def run(directory: Path) -> None:
    """Run the node that the rest of the command line describes, on the machine of *directory*."""
    octopi.operating_system.BOOT_ID_FILE = str(directory / "boot_id")
    # The journal is unbuffered, so that it survives a SIGKILL, as the data on a device does.
    journal = (directory / "synced").open("ab", buffering=0)
    lock = threading.Lock()

    def noted(sync: Callable[[FileDescriptorLike], None], fd: FileDescriptorLike) -> None:
        descriptor = fd if isinstance(fd, int) else fd.fileno()
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        # The size is taken before the fsync, which need not sync what is written while it runs.
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
        need_room()  # the interpreter writes checkpoint files without `os.pwrite`
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
    octopi.platforms.file_system_sync = lambda directory: None
    main()


if __name__ == "__main__":
    run(Path(sys.argv.pop(1)))
