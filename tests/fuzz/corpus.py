"""Small inputs in files, a folder for each target: those that failed once, and those that reach
what is seldom reached.  The tests replay them, and searches begin with them."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

CORPUS: Final = Path(__file__).parent / "corpus"


def stored(folder: Path, target: str) -> dict[str, bytes]:
    """The inputs for *target*, by the names of their files."""
    files = sorted(path for path in (folder / target).glob("*") if path.is_file())
    return {path.name: path.read_bytes() for path in files}


def store(folder: Path, target: str, data: bytes) -> Path:
    """Keep *data*; the path of its file, named after what is in it."""
    path = folder / target / blake2b(data, digest_size=6).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
