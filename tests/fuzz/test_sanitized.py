"""The kernels do nothing that C leaves undefined, and read nothing that they weren't given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hatch_build import SOURCE, compiled, link_command
from octopi.kernels import digest_of
from tests.fuzz.sanitized import OPTIONS, environment_for, load

ROOT = Path(__file__).parents[2]
INPUTS = 1000
SEED = 1


def build(module: Path, *options: str, source: Path = ROOT / SOURCE) -> None:
    """Compile the kernels.  The test is skipped where that can't be done, which CI refuses."""
    why_not = compiled(source, module, options)
    if why_not and os.environ.get("CI"):
        pytest.fail(why_not)
    elif why_not:
        pytest.skip(why_not)


def run(module: Path) -> subprocess.CompletedProcess[str]:
    command = link_command()
    assert command is not None
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.sanitized", str(module), str(INPUTS), str(SEED)],
        cwd=ROOT,
        env=environment_for(command[0]),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="sanitizers are loaded as on Linux")
@pytest.mark.parametrize("options", [[], ["-DOCTOPI_MESSAGES_BY_NEW"]], ids=["", "Python 3.14"])
def test_kernels_with_sanitizers_say_what_python_says(options: list[str], tmp_path: Path) -> None:
    module = tmp_path / "_kernels.abi3.so"
    build(module, *OPTIONS, *options)
    done = run(module)
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) > 2 * INPUTS


@pytest.mark.skipif(sys.platform != "linux", reason="sanitizers are loaded as on Linux")
def test_a_read_outside_of_a_buffer_would_be_noticed(tmp_path: Path) -> None:
    text = (ROOT / SOURCE).read_text()
    check = "if (record->bytes > left || "
    assert text.count(check) == 1
    wrong = tmp_path / "_kernels.c"
    wrong.write_text(text.replace(check, "if ("))
    module = tmp_path / "_kernels.abi3.so"
    build(module, *OPTIONS, source=wrong)
    done = run(module)
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr


def test_the_compiler_has_no_warning_about_the_kernels(tmp_path: Path) -> None:
    module = tmp_path / "_kernels.abi3.so"
    build(module, "-Wall", "-Wextra", "-Wshadow", "-Werror")
    assert digest_of((ROOT / SOURCE).read_bytes()) == load(module).SOURCE
