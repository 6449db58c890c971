"""The lines that `demo` produces: those of a file, or of the sample that is installed.

A short file is repeated, because a stream of a few lines would end before anything happens.
"""

from __future__ import annotations

import gzip
import math
import shutil
from importlib import resources
from pathlib import Path
from typing import Final

import attrs

from octopi.cli.failures import CommandError, ExitCode
from octopi.operating_system import open_private

_SAMPLE: Final = "flights-10k.csv"
_LINES_MIN: Final = 100_000
_PIECE_BYTES: Final = 1024 * 1024


@attrs.frozen
class SampleLines:
    """A file of whole lines."""

    path: Path
    line_count: int
    times: int
    """How often the original file is repeated in it."""

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self.path.stat().st_size


def make_stream(file: Path | None, directory: Path) -> SampleLines:
    """A stream of the lines of *file* (None: the sample), which ends with a newline.  Files that
    have to be made for it are put in *directory*.

    Raises:
      CommandError: if *file* is empty.
    """
    if file is None:
        packed = resources.files("octopi.cli").joinpath("samples", f"{_SAMPLE}.gz")
        file = directory / _SAMPLE
        with open_private(file, "wb") as unpacked:
            unpacked.write(gzip.decompress(packed.read_bytes()))
    line_count, last = 0, b""
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE_BYTES):
            line_count += piece.count(b"\n")
            last = piece[-1:]
    if not last:
        raise CommandError(f"{file} is empty: give a file of lines", ExitCode.USAGE)
    ending = b"" if last == b"\n" else b"\n"
    line_count += len(ending)
    times = math.ceil(_LINES_MIN / line_count)
    if times == 1 and not ending:
        return SampleLines(file, line_count, times)
    path = directory / "stream"
    with open_private(path, "wb") as stream:
        if times == 1:
            with file.open("rb") as opened:
                shutil.copyfileobj(opened, stream)
            stream.write(ending)
        else:
            once = file.read_bytes() + ending
            for _ in range(times):
                stream.write(once)
    return SampleLines(path, line_count * times, times)
