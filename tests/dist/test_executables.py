"""The executables that `make executables` makes, on a system that has no Python.

They are skipped where there are no executables, but not in CI, which makes them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
KINDS = {"directory": "octopi-node/octopi-node", "one file": "octopi-node-one-file"}

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(
        "CI" not in os.environ and not (DIST / KINDS["directory"]).exists(),
        reason="no executables: `make executables` makes them",
    ),
    pytest.mark.timeout(300),
]


@attrs.frozen
class Bare:
    """A root directory with an executable, the C library that it needs, and nothing else."""

    root: Path

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs the program there."""
        as_root = [] if os.geteuid() == 0 else ["/usr/bin/unshare", "--map-root-user"]
        return [*as_root, "/usr/sbin/chroot", str(self.root), "/opt/octopi-node/octopi-node", *arguments]

    def run(self, *arguments: str, text: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
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


def bare_root(directory: Path, kind: str) -> Bare:
    made = DIST / KINDS[kind]
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


@pytest.fixture(scope="module", params=KINDS)
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bare:
    return bare_root(tmp_path_factory.mktemp("bare"), request.param)


@contextmanager
def running(bare: Bare, *arguments: str) -> Iterator[str]:
    """A cluster of the executable, until the end of the block; gives the line that it prints."""
    with subprocess.Popen(
        bare.command("dev", "--listen", "127.0.0.1:0", *arguments),
        env={},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as dev:
        assert dev.stdout is not None
        try:
            yield dev.stdout.readline()
        finally:
            dev.send_signal(signal.SIGTERM)
            _, log = dev.communicate(timeout=60)
    assert dev.returncode == 0, log


# What does not depend on how the program is packed is shown with one kind.
in_a_directory = pytest.mark.parametrize("bare", ["directory"], indirect=True, scope="module")


@in_a_directory
def test_a_cluster_takes_messages_and_gives_them_back(bare: Bare) -> None:
    with running(bare, "--brokers", "3", "--data-dir", "/data/dev") as line:
        url = line.split()[-1]
        bare.run("produce", "notes", "--server", url, text="first\nsecond\n")
        read = bare.run("consume", "notes", "-o", "earliest", "-e", "--server", url)
        assert read.stdout == "first\nsecond\n"
        assert "3 of 3 brokers up" in bare.run("status", "--server", url).stdout
    assert (bare.root / "data" / "dev" / "broker-3").is_dir()


def test_the_demonstration_kills_nodes_that_are_the_executable_itself(bare: Bare) -> None:
    shown = bare.run("demo").stdout
    assert re.search(r"^went on .* without an acknowledgement$", shown, re.MULTILINE)
    assert "survived the death of the leader" in shown.splitlines()[-1]
    assert list((bare.root / "tmp").iterdir()) == []


def test_the_simulator_runs_in_several_processes(bare: Bare) -> None:
    shown = bare.run("sim", "run", "--seeds", "2", "--jobs", "2").stdout
    assert shown.startswith("2 seeds, 0 failed")


@in_a_directory
def test_certificates_keys_and_tokens_are_made(bare: Bare) -> None:
    bare.run("tls", "dev-ca", "/data/tls")
    bare.run("token", "keygen", "/data/signing.json", "--public", "/data/keys.json")
    make = ["token", "create", "--key", "/data/signing.json", "--subject", "shop", "--admin", "*"]
    assert bare.run(*make).stdout.count(".") == 2


@in_a_directory
@pytest.mark.parametrize("command", ["meta", "mutants"])
def test_what_needs_a_python_says_so(bare: Bare, command: str) -> None:
    refused = bare.run("sim", command, code=2)
    (line,) = refused.stderr.splitlines()
    assert line.endswith("run it in a checkout of octopi-node")


@in_a_directory
def test_spark_is_not_part_of_it(bare: Bare) -> None:
    refused = bare.run("pipeline", "rates", "orders", code=2)
    assert "octopi-node[spark]" in refused.stderr.splitlines()[-1]
