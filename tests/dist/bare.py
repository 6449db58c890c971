"""A root directory with an executable and nothing else: a system that has no Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.deploy.host import Host

DIST: Final = Path(__file__).parents[2] / "dist"
DIRECTORY: Final = DIST / "octopi-node/octopi-node"
ONE_FILE: Final = DIST / "octopi-node-one-file"
KINDS: Final = {"directory": DIRECTORY, "one file": ONE_FILE}
PROGRAM: Final = "/opt/octopi-node/octopi-node"

OF_EXECUTABLES: Final = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(
        "CI" not in os.environ and not DIRECTORY.exists(),
        reason="no executables: `make executables` makes them",
    ),
    pytest.mark.timeout(300),
]
"""The marks of these tests: skipped where there are no executables, but not in CI, which makes
them."""


@attrs.frozen
class Bare:
    """A root directory with an executable, the C library that it needs, and nothing else."""

    root: Path

    def in_root(self, command: Sequence[str]) -> list[str]:
        """The command line that runs *command* there.  It is one process: that of *command*."""
        as_root = [] if os.geteuid() == 0 else ["/usr/bin/unshare", "--map-root-user"]
        return [*as_root, "/usr/sbin/chroot", str(self.root), *command]

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs the program there."""
        return self.in_root([PROGRAM, *arguments])

    def run(
        self, *arguments: str, text: str = "", code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run the program with an empty environment."""
        done = subprocess.run(
            self.command(*arguments),
            input=text,
            env={},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    def processes(self) -> dict[int, list[str]]:
        """The processes that run there now: the arguments of each."""
        found = {}
        for one in Path("/proc").glob("[0-9]*"):
            try:
                if (one / "root").readlink() == self.root:
                    found[int(one.name)] = (one / "cmdline").read_text().split("\0")[:-1]
            except OSError:  # it is another user's, or has ended
                continue
        return {pid: arguments for pid, arguments in found.items() if arguments}


def bare_root(directory: Path, kind: str) -> Bare:
    """Make *directory* the root of an executable of this *kind*."""
    made = KINDS[kind]
    opt = directory / "opt" / "octopi-node"
    if kind == "directory":
        shutil.copytree(made.parent, opt, symlinks=True)
    else:
        opt.mkdir(parents=True)
        shutil.copy(made, opt / "octopi-node")
    # The libraries of the machine that any program needs: the loader, the C library, zlib.
    said = subprocess.run(["ldd", opt / "octopi-node"], capture_output=True, text=True, check=True)
    for library in re.findall(r"(/\S+) \(0x", said.stdout):
        place = directory / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    libraries = next(directory.glob("**/libc.so.6")).parent
    found = Path("/") / libraries.relative_to(directory)
    for name in ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1"):
        shutil.copy(found / name, libraries / name)
    for name in ("tmp", "dev/shm", "data"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "dev" / "null").touch()
    return Bare(directory)


@attrs.define
class BareHost(Host):
    """A host whose whole system is such a root: its paths are those of the files in deploy/."""

    bare: Bare = attrs.field(kw_only=True)

    def named(self, path: str) -> str:
        return path

    def command_line(self, command: Sequence[str]) -> list[str]:
        return self.bare.in_root(command)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {**variables, "PATH": "/usr/local/bin"}

    def _install(self, program: Path) -> None:
        program.symlink_to(PROGRAM)


def bare_host(directory: Path) -> BareHost:
    """A host on which the executable for services is installed, as docs/install.md says."""
    bare = bare_root(directory, "directory")
    return BareHost(directory, bare=bare)
