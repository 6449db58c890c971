"""What happens to the files of a broker that is stopped: cut, flipped, gone, or older again.

`damage` draws one kind that the files there allow, does it, and says what it did.  Older files
are those that `keep_copy` put aside earlier.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

Harm = Callable[[random.Random, Path, Path], str]
"""Does it to a data directory, with the folder of older copies; says what, or nothing if the
files there do not allow it."""


def damage(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """Harm the files in *data_dir* in one way; return what was done, empty if nothing could be."""
    kinds = list(KINDS)
    randomness.shuffle(kinds)
    for kind in kinds:
        done = kind(randomness, data_dir, copy)
        if done:
            return done
    return ""


def keep_copy(data_dir: Path, copy: Path) -> None:
    """Put an older state of *data_dir*, whose node is stopped, aside."""
    if copy.exists():
        shutil.rmtree(copy)
    shutil.copytree(data_dir, copy)


def cut_segment(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """A segment loses its second half, or its end from anywhere on."""
    path = _one_of(randomness, data_dir, "logs/*/*/*.log")
    if path is None:
        return ""
    size = path.stat().st_size
    kept = randomness.choice((size // 2, randomness.randrange(size)))
    _cut(path, kept)
    return f"{path.relative_to(data_dir)} cut from {size} to {kept} bytes"


def flip_bit(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """One bit of a segment is another one."""
    path = _one_of(randomness, data_dir, "logs/*/*/*.log")
    if path is None:
        return ""
    at, bit = randomness.randrange(path.stat().st_size), randomness.randrange(8)
    with path.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    return f"bit {bit} of byte {at} of {path.relative_to(data_dir)} flipped"


def lose_segment(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """A segment is gone, one in the middle if there is one."""
    logs = [sorted(one.glob("*.log")) for one in sorted(data_dir.glob("logs/*/*"))]
    long = [segments for segments in logs if len(segments) > 2] or [one for one in logs if one]
    if not long:
        return ""
    segments = randomness.choice(long)
    path = randomness.choice(segments[1:-1] or segments)
    path.unlink()
    return f"{path.relative_to(data_dir)} removed, of {len(segments)} segments"


def lose_file(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """A file that is no segment is gone: index, checkpoint, state or notes of ends."""
    path = _one_of(randomness, data_dir, "**/*", kept=(".log",), empty_too=True)
    if path is None:
        return ""
    path.unlink()
    return f"{path.relative_to(data_dir)} removed"


def cut_file(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """A file that is no segment is cut."""
    path = _one_of(randomness, data_dir, "**/*", kept=(".log",))
    if path is None:
        return ""
    size = path.stat().st_size
    kept = randomness.randrange(size)
    _cut(path, kept)
    return f"{path.relative_to(data_dir)} cut from {size} to {kept} bytes"


def lose_log(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """The directory of a log is gone."""
    logs = sorted(data_dir.glob("logs/*/*"))
    if not logs:
        return ""
    path = randomness.choice(logs)
    shutil.rmtree(path)
    return f"{path.relative_to(data_dir)} removed"


def older_file(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """One file is as it was some time ago."""
    older = [
        path
        for path in _files(copy)
        if (now := data_dir / path.relative_to(copy)).exists()
        and now.read_bytes() != path.read_bytes()
    ]
    if not older:
        return ""
    path = randomness.choice(older)
    shutil.copy2(path, data_dir / path.relative_to(copy))
    return f"{path.relative_to(copy)} put back as it was when the broker was stopped before"


def older_directory(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """All files are as they were some time ago."""
    if not copy.exists():
        return ""
    _empty(data_dir)
    shutil.copytree(copy, data_dir, dirs_exist_ok=True)
    return "all files put back as they were when the broker was stopped before"


def lose_everything(randomness: random.Random, data_dir: Path, copy: Path) -> str:
    """All logs are gone; the broker knows its id, as when only the disk of the logs broke."""
    if not (data_dir / "logs").exists():
        return ""
    shutil.rmtree(data_dir / "logs")
    return "all logs removed"


KINDS: Final[tuple[Harm, ...]] = (
    cut_segment,
    flip_bit,
    lose_segment,
    lose_file,
    cut_file,
    lose_log,
    older_file,
    older_directory,
    lose_everything,
)


def _files(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.rglob("*")) if path.is_file()]


def _one_of(
    randomness: random.Random,
    data_dir: Path,
    pattern: str,
    *,
    kept: tuple[str, ...] = (),
    empty_too: bool = False,
) -> Path | None:
    found = [
        path
        for path in sorted(data_dir.glob(pattern))
        if path.is_file()
        and path.suffix not in kept
        and path.name not in PROTECTED
        and (empty_too or path.stat().st_size)
    ]
    return randomness.choice(found) if found else None


PROTECTED: Final = ("lock", "identity")
"""A broker whose identity is gone is another broker: `older_directory` and a replaced disk are
that.  A damaged identity stops the node with an error, which a test of its own asks for."""


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
