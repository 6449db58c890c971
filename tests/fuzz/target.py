"""What is fuzzed: where valid inputs come from, and what must hold for any input."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import attrs
from hypothesis import strategies as st


@attrs.frozen
class Target:
    """A decoder, a grammar or a file format.  Every input is a byte string."""

    name: str
    """Also that of its folder in the corpus."""
    summary: str
    """What must hold, in one line."""
    valid: st.SearchStrategy[bytes]
    """Inputs that are accepted; the fuzzer changes them."""
    check: Callable[[bytes], bool]
    """Raises whatever it likes if the property doesn't hold for an input.  Returns whether the
    input passed the first check of the decoder: one that is refused at its first byte tests
    little."""
    files: tuple[str, ...]
    """Sources under test, from the root of the repository; inputs that take new ways through them
    are kept and changed further."""
    words: tuple[bytes, ...] = ()
    """What the format is made of, for the fuzzer to put in."""
    input_bytes_max: int = 4096


def pieces(data: bytes) -> list[list[bytes]]:
    """Ways in which *data* may come from a network: at once, byte by byte (or as many pieces, if
    it is long), and cut at places that depend on *data* alone."""
    step = max(1, len(data) // 60)
    uneven = [0]
    for byte in data[::3]:
        if uneven[-1] < len(data):
            uneven.append(min(len(data), uneven[-1] + 1 + byte % 23 * step))
    uneven.append(len(data))
    return [
        [data],
        [data[at : at + step] for at in range(0, len(data), step)],
        [data[a:b] for a, b in pairwise(uneven) if a < b],
    ]
