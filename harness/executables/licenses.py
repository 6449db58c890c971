"""The licences of everything that an executable contains, as one text.

The texts are those that the installed distributions, CPython, the console's libraries and the
system's packages came with.  A part without a text fails the build.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

import attrs

VENDOR: Final = Path(__file__).parents[2] / "octopi/console/static/vendor"
_TEXT: Final = re.compile(r"\.dist-info/(licenses/.+|(?i:licen[cs]e|copying|notice|authors)[^/]*)$")
_RULE: Final = "=" * 80
_HEAD: Final = """\
Third-party licences

An executable of Octopi contains the following works of others, each under its own licence.
Octopi itself is under the licence in the file LICENSE.
"""


@attrs.frozen
class Part:
    """A work of others, and what it is licensed under."""

    name: str
    version: str
    license: str
    """As its own metadata name it."""
    texts: list[str]

    def __str__(self) -> str:
        """Its section of the text."""
        head = f"{_RULE}\n{self.name} {self.version}\nLicence: {self.license}\n{_RULE}"
        return "\n\n".join([head, *(text.strip("\n") for text in self.texts)])


def third_party_licenses(files: Iterable[str]) -> str:
    """The text about an executable that is made of these *files*.

    Raises:
      ValueError: if a part has no licence text.
    """
    paths = {Path(file) for file in files}
    owners = {path: one for one in importlib.metadata.distributions() for path in _files(one)}
    found = {one.name: one for path in paths if (one := owners.get(path)) is not None}
    found.pop("octopi-node", None)
    # Its start is in each executable, as a program that no module stands for.
    found["pyinstaller"] = importlib.metadata.distribution("pyinstaller")
    python = Path(sysconfig.get_path("stdlib"))
    libraries = {path for path in paths if path not in owners and ".so" in path.name}
    parts = [
        _cpython(python),
        *(_of_distribution(found[name]) for name in sorted(found, key=str.lower)),
        *_of_console(),
        *_of_system(path for path in libraries if not path.is_relative_to(python)),
    ]
    for part in parts:
        if not part.texts:
            raise ValueError(f"{part.name} {part.version} comes without the text of its licence")
    return "\n\n\n".join([_HEAD, *map(str, parts)]) + "\n"


def _files(distribution: Distribution) -> Iterator[Path]:
    for file in distribution.files or ():
        yield Path(str(distribution.locate_file(file)))


def _cpython(library: Path) -> Part:
    version = sysconfig.get_config_var("py_version")
    places = [library / "LICENSE.txt", Path(f"/usr/share/doc/{library.name}/copyright")]
    texts = [place.read_text() for place in places if place.exists()][:1]
    return Part("CPython", version, "PSF-2.0", texts)


def _of_distribution(one: Distribution) -> Part:
    about = one.metadata
    classified = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or []
        if line.startswith("License :: ")
    ]
    named = about["License"] or ""  # some have the whole text there
    short = about["License-Expression"] or ("" if "\n" in named else named)
    texts = [file for file in sorted(one.files or (), key=str) if _TEXT.search(str(file))]
    return Part(
        one.name,
        one.version,
        short or ", ".join(classified) or "see below",
        [Path(str(one.locate_file(file))).read_text() for file in texts],
    )


def _of_console() -> Iterator[Part]:
    for package in json.loads((VENDOR / "vendor.json").read_text()):
        files = [one["file"] for one in package["files"]]
        texts = [(VENDOR / file).read_text() for file in files if "LICENSE" in file]
        yield Part(f"{package['name']} (console)", package["version"], package["license"], texts)


def _of_system(libraries: Iterable[Path]) -> Iterator[Part]:
    """Libraries of the system on which the executable is built, where its packages are Debian's."""
    if shutil.which("dpkg-query") is None:
        return
    files = {str(one.resolve()) for one in libraries}
    files |= {file.removeprefix("/usr") for file in files}  # as packages name what is in /lib
    command = ["dpkg-query", "--search", *sorted(files)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    for package in sorted({line.partition(": ")[0] for line in said.stdout.splitlines()}):
        form = ["dpkg-query", "--show", "--showformat=${Version}", package]
        version = subprocess.run(form, capture_output=True, text=True, check=True).stdout
        text = Path("/usr/share/doc") / package.partition(":")[0] / "copyright"
        texts = [text.read_text()] if text.exists() else []
        yield Part(f"{package.partition(':')[0]} (Debian)", version, "see below", texts)
