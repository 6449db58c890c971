"""What an installation has: the product, without the search for faults, which belongs to the
source."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the wheel, as they lie where Python finds packages."""
    wheels = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(wheels / "installation")
    return wheels / "installation"


def run(installation: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed program in a folder that has nothing else to import."""
    return subprocess.run(
        [sys.executable, "-m", "octopi_node", *arguments],
        env=os.environ | {"PYTHONPATH": str(installation)},
        cwd=installation.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installation_has_only_the_modules_of_the_product(installation: Path) -> None:
    names = {path.name for path in installation.iterdir() if path.suffix != ".dist-info"}
    assert names == {"octopi", "octopi_node.py", "pyspark_octopi.py"}


@pytest.mark.parametrize(
    "arguments",
    [["sim"], ["sim", "--help"], ["sim", "run", "--seeds", "1"], ["pipeline", "simulate", "out"]],
    ids=" ".join,
)
def test_an_installed_program_says_where_the_search_is(
    installation: Path, arguments: list[str]
) -> None:
    done = run(installation, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "octopi-node: the search for faults comes with the source, and this is an installation "
        "without it: run `python -m sim` in a checkout of octopi-node\n"
    )


def test_an_installed_program_names_the_search_in_its_help(installation: Path) -> None:
    done = run(installation, "--help")
    assert done.returncode == 0
    assert "\n  sim " in done.stdout
    assert run(installation, "pipeline", "simulate", "--help").returncode == 0
