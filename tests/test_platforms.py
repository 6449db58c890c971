"""What nodes do on macOS, and what they say on Windows."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from octopi import operating_system, platforms
from octopi.operating_system import SystemDisk, allow_many_files

ROOT = Path(__file__).parents[1]
_FULL_SYNC = 51


class Calls:
    """The calls that bring data to the device, and what F_FULLFSYNC answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusal: int | None = None) -> None:
        self.made: list[str] = []
        fsync = os.fsync

        def full_sync(descriptor: int, command: int) -> int:
            assert command == _FULL_SYNC
            self.made.append("F_FULLFSYNC")
            if refusal is not None:
                raise OSError(refusal, os.strerror(refusal))
            return 0

        def sync(descriptor: int) -> None:
            self.made.append("fsync")
            fsync(descriptor)

        monkeypatch.delattr(os, "fdatasync")
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", _FULL_SYNC, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", full_sync)
        monkeypatch.setattr(os, "fsync", sync)


async def _write(directory: Path) -> None:
    disk = SystemDisk()
    file = disk.open(str(directory / "file"), create=True)
    file.append(b"data")
    await file.sync()
    assert file.is_synced
    file.close()


async def test_macos_brings_data_through_the_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    await _write(tmp_path)
    assert calls.made == ["F_FULLFSYNC"]
    await SystemDisk().replace_file(str(tmp_path / "small"), b"small")
    assert calls.made == ["F_FULLFSYNC"] * 3  # the file, and its directory


async def test_a_file_system_of_macos_without_full_sync_gets_an_ordinary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch, errno.ENOTSUP)
    await _write(tmp_path)
    assert calls.made == ["F_FULLFSYNC", "fsync"]


async def test_a_drive_that_fails_a_full_sync_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        await _write(tmp_path)
    assert calls.made == ["F_FULLFSYNC"]


async def test_a_system_without_fdatasync_and_full_sync_gets_an_ordinary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    monkeypatch.delattr(fcntl, "F_FULLFSYNC")
    await _write(tmp_path)
    assert calls.made == ["fsync"]


def test_macos_tells_its_boots_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating_system, "BOOT_ID_FILE", str(tmp_path / "not there"))
    monkeypatch.setattr(platforms, "BOOT_ID_COMMAND", ("echo", "A-BOOT"))
    assert [SystemDisk().page_cache_id() for _ in range(2)] == ["A-BOOT"] * 2
    monkeypatch.setattr(platforms, "BOOT_ID_COMMAND", ("false",))
    assert SystemDisk().page_cache_id() != SystemDisk().page_cache_id()


def test_macos_gets_the_open_files_that_it_really_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (256, resource.RLIM_INFINITY)

    def set_limits(which: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        if wanted[0] > 10_240 or wanted[0] == resource.RLIM_INFINITY:
            raise ValueError("current limit exceeds maximum limit")
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    allow_many_files()
    assert limits == (10_240, resource.RLIM_INFINITY)


def test_a_whole_cluster_works_without_what_only_linux_has(tmp_path: Path) -> None:
    """`octopi-node dev`, in a Python that has lost what macOS lacks."""
    program = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
for name in ("fdatasync", "sched_getaffinity", "posix_fallocate", "posix_fadvise", "pidfd_open"):
    delattr(os, name)
import octopi.operating_system
octopi.operating_system.BOOT_ID_FILE = "/not/there"
from octopi_node import main
sys.argv = ["octopi-node", "dev", "--listen", "127.0.0.1:0", "--data-dir", {str(tmp_path)!r}]
main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as dev:
        assert dev.stdout is not None
        ready = dev.stdout.readline().split()
        assert ready[:2] == ["ready", "register"]
        produce = [sys.executable, "-m", "octopi_node", "produce", "notes", "--server", ready[2]]
        subprocess.run(produce, input="first\n", text=True, check=True, cwd=ROOT, timeout=60)
        dev.terminate()
        _, said = dev.communicate(timeout=30)
    assert dev.returncode == 0, said


@pytest.mark.parametrize(
    "program",
    ["import octopi", "import octopi_node; octopi_node.main()"],
    ids=["a program", "the command"],
)
def test_windows_is_told_in_one_line_what_to_use(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.platform = 'win32'; {program}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    *before, line = done.stderr.splitlines()
    assert "use it in WSL (wsl --install), or in a container" in line
    if "octopi_node" in program:
        assert before == []
        assert line.startswith("octopi-node: ")


# --- syncing a whole file system -------------------------------------------------------


@pytest.fixture
def _file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Linux and a file system that report errors, whichever these are."""
    monkeypatch.setattr(platforms, "_kernel_version", lambda: (5, 8))
    monkeypatch.setattr(platforms, "_file_system_type", lambda descriptor: 0xEF53)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has syncfs")
@pytest.mark.usefixtures("_file_system")
def test_a_file_system_is_synced_and_tells_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = platforms.file_system_sync(str(tmp_path))
    assert sync is not None
    sync()
    monkeypatch.setattr(sync, "_syncfs", lambda descriptor: -1)
    ctypes.set_errno(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        sync()


@pytest.mark.usefixtures("_file_system")
@pytest.mark.parametrize("version", [(0, 0), (4, 19), (5, 7)])
def test_a_linux_that_would_not_tell_errors_syncs_files_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]
) -> None:
    monkeypatch.setattr(platforms, "_kernel_version", lambda: version)
    assert platforms.file_system_sync(str(tmp_path)) is None


@pytest.mark.usefixtures("_file_system")
def test_so_does_a_file_system_above_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = 0x794C7630
    monkeypatch.setattr(platforms, "_file_system_type", lambda descriptor: overlay)
    assert platforms.file_system_sync(str(tmp_path)) is None


def test_so_does_a_system_without_such_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name, **options: object())
    assert platforms.file_system_sync(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.1.0-18-amd64", (6, 1)), ("5.10", (5, 10)), ("unknown", (0, 0))],
)
def test_the_version_of_the_kernel_is_read(
    monkeypatch: pytest.MonkeyPatch, release: str, version: tuple[int, int]
) -> None:
    names = os.uname()
    fields = (names.sysname, names.nodename, release, names.version, names.machine)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(fields))
    assert platforms._kernel_version() == version


@pytest.mark.skipif(sys.platform != "linux", reason="Linux numbers file systems")
def test_the_type_of_a_file_system_is_read(tmp_path: Path) -> None:
    descriptor = os.open("/proc", os.O_RDONLY)
    try:
        assert platforms._file_system_type(descriptor) == 0x9FA0
    finally:
        os.close(descriptor)
    assert platforms._file_system_type(-1) == 0
