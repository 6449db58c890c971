"""Changes of byte strings: the kinds that break decoders.

All depend on the given `random.Random` alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

_NUMBERS: Final = (
    0, 1, 2, 3, 4, 23, 24, 31, 32, 63, 64, 125, 126, 127, 128, 255, 256, 4095, 4096,
    2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
    2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1,
)  # fmt: skip
_TEXT_NUMBERS: Final = (
    b"0", b"-1", b"00", b"1e9", b"9999999999", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551616", b"1" * 30, b"9" * 400, b"-" + b"9" * 400, b"1" * 4400, b"nan", b"inf",
)  # fmt: skip
_BYTES: Final = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\x1b[31m", b"\r\n", b"\n", b"\r", b" ", b"\t",
    b"\xc3\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xae", b"%00", b"..", b"../",
)  # fmt: skip
_EDITS_MAX: Final = 5
_BEGINNING_BYTES: Final = 8

Edit = Callable[[random.Random, bytearray, bytes, Sequence[bytes]], None]
"""Changes the second; the third is another input, the fourth are words."""


def mutated(
    randomness: random.Random, data: bytes, other: bytes, words: Sequence[bytes], bytes_max: int
) -> bytes:
    """*data*, changed a few times; *other* is an input of which parts may be put in."""
    changed = bytearray(data)
    count = 1
    while count < _EDITS_MAX and randomness.random() < 0.45:
        count += 1
    for _ in range(count):
        randomness.choice(_EDITS)(randomness, changed, other, words)
    return bytes(changed[:bytes_max])


def close_by(data: bytes, count: int) -> Iterator[bytes]:
    """*data* with one of its *count* first bytes changed, each in each way that is a small one:
    there lies what says what the others mean."""
    for at in range(min(len(data), count)):
        byte = data[at]
        near = {byte ^ 1 << bit for bit in range(8)} | {(byte + 1) % 256, (byte - 1) % 256}
        for other in sorted(near):
            yield data[:at] + bytes([other]) + data[at + 1 :]


def _place(randomness: random.Random, size_bytes: int) -> int:
    """A place in so many bytes; often near the beginning, which says what the others mean."""
    return randomness.randrange(
        min(size_bytes, _BEGINNING_BYTES) if randomness.random() < 0.25 else size_bytes
    )


def _stretch(randomness: random.Random, size_bytes: int) -> tuple[int, int]:
    """Begin and end of a part, mostly a short one."""
    begin = _place(randomness, size_bytes + 1)
    longest = size_bytes - begin
    length = randomness.choice((1, 2, 4, 8, 16, 64, longest))
    return begin, begin + min(longest, randomness.randint(0, length))


def _word(randomness: random.Random, words: Sequence[bytes]) -> bytes:
    """One of *words*, or of those that harm many formats; every other time a short one."""
    if not words or randomness.random() < 0.3:
        return randomness.choice(_BYTES)
    first, second = randomness.choice(words), randomness.choice(words)
    return min(first, second, key=len) if randomness.random() < 0.5 else first


def _flip_bit(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    if data:
        data[_place(randomness, len(data))] ^= 1 << randomness.randrange(8)


def _set_byte(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    if data:
        data[_place(randomness, len(data))] = randomness.randrange(256)


def _count(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    """Add a little to a number, or take a little from it."""
    if data:
        at = _place(randomness, len(data))
        data[at] = (data[at] + randomness.randint(-4, 4)) % 256


def _set_number(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    """Change what may be a length or a count to a number at an edge."""
    width = randomness.choice((1, 2, 4, 8))
    number = randomness.choice(_NUMBERS) + randomness.choice((0, 0, -1, 1))
    at = _place(randomness, len(data) + 1)
    data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "big")


def _set_text_number(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    """The same in a text: the digits around a place."""
    digits = [at for at, byte in enumerate(data) if 48 <= byte < 58]
    begin = end = randomness.choice(digits) if digits else randomness.randrange(len(data) + 1)
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    data[begin:end] = randomness.choice(_TEXT_NUMBERS)


def _remove(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    begin, end = _stretch(randomness, len(data))
    del data[begin:end]


def _cut(randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]) -> None:
    del data[randomness.randrange(len(data) + 1) :]


def _repeat(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    begin, end = _stretch(randomness, len(data))
    data[begin:begin] = data[begin:end] * randomness.choice((1, 1, 1, 2, 3, 10))


def _nest(randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]) -> None:
    """A word, or a short part, very often: deep nesting where it opens something."""
    short = [word for word in words if len(word) <= 4]
    begin, end = _stretch(randomness, len(data))
    part = (
        randomness.choice(short)
        if short and randomness.random() < 0.7
        else bytes(data[begin:end][:8])
    )
    behind = [at + 1 for at, byte in enumerate(data) if byte in b"=:,[{( "]
    at = randomness.choice(behind) if behind and randomness.random() < 0.5 else begin
    data[at:at] = part * randomness.choice((16, 100, 1000, 4000))


def _insert(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    at = _place(randomness, len(data) + 1)
    data[at:at] = _word(randomness, words)


def _overwrite(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    begin, end = _stretch(randomness, len(data))
    data[begin:end] = _word(randomness, words)


def _move(randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]) -> None:
    begin, end = _stretch(randomness, len(data))
    part = data[begin:end]
    del data[begin:end]
    at = _place(randomness, len(data) + 1)
    data[at:at] = part


def _splice(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    """The beginning of one input and the end of another."""
    data[randomness.randrange(len(data) + 1) :] = other[randomness.randrange(len(other) + 1) :]


def _graft(
    randomness: random.Random, data: bytearray, other: bytes, words: Sequence[bytes]
) -> None:
    begin, end = _stretch(randomness, len(other))
    at = _place(randomness, len(data) + 1)
    data[at:at] = other[begin:end]


_EDITS: Final[tuple[Edit, ...]] = (
    _flip_bit, _flip_bit, _set_byte, _count, _set_number, _set_number, _set_text_number, _remove,
    _remove, _cut, _repeat, _nest, _insert, _insert, _overwrite, _overwrite, _move, _splice, _graft,
)  # fmt: skip
