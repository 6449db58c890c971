"""What an installation has: the product, with compiled kernels where there is a compiler.  It lacks
the search for faults, which belongs to the source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import attrs
import pytest

from hatch_build import MODULE, SOURCE, compiled, platform_tag

ROOT = Path(__file__).parents[2]
SOURCES = (
    "octopi", "octopi_node.py", "pyspark_octopi.py", "pytest_octopi.py", "hatch_build.py",
    "pyproject.toml", "README.md", "LICENSE", ".gitignore",
)  # fmt: skip


@attrs.frozen
class Wheel:
    """A wheel that was built."""

    path: Path
    said: str
    """On standard error."""
    source: Path
    """From where."""

    @property
    def tag(self) -> str:
        return self.path.stem.split("-", 2)[2]

    def extract(self) -> Path:
        """Its files, as they lie where Python finds packages."""
        with zipfile.ZipFile(self.path) as files:
            files.extractall(self.path.parent / "installation")
        return self.path.parent / "installation"


def build_wheel(
    folder: Path, version: str = "standard", *, has_compiler: bool = True, damage: str = ""
) -> Wheel:
    """Build a wheel of a copy of the source in *folder*; *damage* is put into the kernels."""
    source = folder / "source"
    source.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.so")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, source / name)
    if damage:
        (source / SOURCE).write_text((source / SOURCE).read_text() + damage)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", f"wheel:{version}", "-d", folder],
        cwd=source,
        env=os.environ if has_compiler else os.environ | {"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    said = done.stderr.replace(f"{wheel}\n", "")
    return Wheel(wheel, said, source)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installation(wheel: Wheel) -> Path:
    return wheel.extract()


@pytest.fixture(scope="module")
def _with_compiler(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips the test where there is no compiler, which CI refuses."""
    why_not = compiled(ROOT / SOURCE, tmp_path_factory.mktemp("compiled") / MODULE.name)
    if why_not and os.environ.get("CI"):
        pytest.fail(why_not)
    elif why_not:
        pytest.skip(why_not)


def run(installation: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed program in a folder that has nothing else to import."""
    return subprocess.run(
        [sys.executable, "-m", "octopi_node", *arguments],
        env=os.environ | {"PYTHONPATH": str(installation), "OCTOPI_KERNELS": ""},
        cwd=installation.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installation_has_only_the_modules_of_the_product(installation: Path) -> None:
    names = {path.name for path in installation.iterdir() if path.suffix != ".dist-info"}
    assert names == {"octopi", "octopi_node.py", "pyspark_octopi.py", "pytest_octopi.py"}


def test_pytest_finds_the_plugin_of_an_installation(installation: Path) -> None:
    (text,) = (path.read_text() for path in installation.glob("*.dist-info/entry_points.txt"))
    assert "[pytest11]\npytest_octopi = pytest_octopi\n" in text


@pytest.mark.usefixtures("_with_compiler")
def test_a_wheel_has_compiled_kernels_for_this_system_and_each_python_from_3_11_on(
    wheel: Wheel, installation: Path
) -> None:
    assert wheel.tag == f"cp311-abi3-{platform_tag()}"
    assert (installation / MODULE).is_file()
    done = run(installation, "--version")
    assert done.stdout.endswith(" (records: compiled)\n")


@pytest.mark.usefixtures("_with_compiler")
def test_an_editable_installation_has_them_beside_their_source(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, "editable")
    assert wheel.said == ""
    assert (wheel.source / MODULE).is_file()
    assert run(wheel.source, "--version").stdout.endswith(" (records: compiled)\n")
    # Whose source has changed since.
    with (wheel.source / SOURCE).open("a") as text:
        text.write("/* changed */\n")
    assert run(wheel.source, "--version").stdout.endswith(
        "no compiled kernels: they were built from another source; install again)\n"
    )


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_without_a_compiler_there_are_none_and_everything_works(
    version: str, tmp_path: Path
) -> None:
    wheel = build_wheel(tmp_path, version, has_compiler=False)
    assert wheel.tag == "py3-none-any"
    assert wheel.said == (
        "octopi: no kernels are compiled, Python does all: there is no C compiler\n"
    )
    installed = wheel.source if version == "editable" else wheel.extract()
    assert not (installed / MODULE).exists()
    assert run(installed, "--version").stdout.endswith(
        " (records: Python; no compiled kernels: none were built; install again where there is a C "
        "compiler)\n"
    )


@pytest.mark.usefixtures("_with_compiler")
def test_kernels_that_can_not_be_compiled_are_no_reason_to_fail(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, damage="#error damaged\n")
    assert wheel.tag == "py3-none-any"
    (line,) = wheel.said.splitlines()
    assert line.startswith("octopi: no kernels are compiled, Python does all: ")
    assert line.endswith("error: #error damaged")


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
