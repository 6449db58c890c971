"""The executables carry the licences of everything that others wrote of them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from harness.executables.contents import needed
from harness.executables.licenses import VENDOR
from tests.dist.bare import DIRECTORY, OF_EXECUTABLES, ONE_FILE

pytestmark = [
    *OF_EXECUTABLES,
    pytest.mark.skipif(
        "CI" not in os.environ and find_spec("PyInstaller") is None,
        reason="without PyInstaller, which reads executables: `make .venv/.dist`",
    ),
]

OWN = {"octopi", "octopi_node", "pyspark_octopi", "pytest_octopi", "sim"}


def table_of_contents() -> Any:  # noqa: ANN401
    """The reader of the one file: the names of what is in it, and their bytes."""
    from PyInstaller.archive.readers import CArchiveReader

    return CArchiveReader(str(ONE_FILE))


def modules() -> set[str]:
    """The top-level modules in the one file that are neither Octopi's nor Python's."""
    reader = table_of_contents()
    (archive,) = [name for name in reader.toc if name.endswith(".pyz")]
    names = {name.partition(".")[0] for name in reader.open_embedded_archive(archive).toc}
    # Compiled modules, which may be of a package or by themselves.
    names |= {
        re.split(r"[./]", name)[0] for name in reader.toc if ".so" in name and name[:3] != "lib"
    }
    names -= {"python3"}
    names = {one for one in names if not one.startswith("_sysconfigdata")}  # Python's, too
    return {one for one in names if one not in sys.stdlib_module_names and one not in OWN}


def bundled() -> set[str]:
    """The normalized names of the distributions that these modules are of."""
    known = importlib.metadata.packages_distributions()
    # PyInstaller has no module of its name there, only some that help it.
    found = {one: known.get(one, ["pyinstaller"] if "pyi" in one else []) for one in modules()}
    assert [one for one, names in found.items() if not names] == []
    return {canonicalize_name(name) for names in found.values() for name in names}


def text() -> str:
    return (DIRECTORY.parent / "THIRD-PARTY-LICENSES.txt").read_text()


def named() -> dict[str, str]:
    """The sections of the text: the name of each, and what follows."""
    rule = "=" * 80
    pieces = re.split(rf"^{rule}\n(.+) \S+\nLicence: (.+)\n{rule}$", text(), flags=re.MULTILINE)[1:]
    return {
        canonicalize_name(name): body for name, _, body in zip(*[iter(pieces)] * 3, strict=True)
    }


def test_each_bundled_distribution_is_there_with_the_text_of_its_licence() -> None:
    sections = named()
    assert {"attrs", "cryptography", "trio"} < bundled()
    assert bundled() - sections.keys() == set()
    for name in bundled() | {"cpython", "pyinstaller"}:
        assert re.search("permi(t|ssion)|licen[cs]ed?", sections[name], re.IGNORECASE), name
        assert len(sections[name]) > 500, name
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in sections["cpython"]


def test_the_libraries_of_the_console_are_there() -> None:
    for file in VENDOR.glob("*.LICENSE.txt"):
        assert file.read_text().strip() in text()


def test_one_file_has_the_same_text_in_itself() -> None:
    assert table_of_contents().extract("THIRD-PARTY-LICENSES.txt").decode() == text()


def test_an_executable_has_only_what_octopi_needs() -> None:
    assert bundled() - needed() <= {"pyinstaller", "pyinstaller-hooks-contrib"}


def test_no_library_forbids_to_pass_the_executable_on() -> None:
    assert [one for one in table_of_contents().toc if "readline" in one] == []
