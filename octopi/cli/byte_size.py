"""Parses a size on the command line: ``1048576``, ``500kB``, ``10GB``, ``16MiB``, ``1.5TB``.

Units without an ``i`` are powers of 1000, those with one are powers of 1024 (IEC 80000-13).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
else:  # older versions of click don't have generic types
    _IntType = click.ParamType

_UNITS_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_TEXT: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,15})?)([A-Za-z]*)", re.ASCII)


def parse_byte_size(text: str) -> int:
    """The bytes of the size *text*; a number without a unit is bytes.  Small and large letters of a
    unit mean the same.

    Raises:
      ValueError: if it is no size, or no whole number of bytes; the text says what to write.
    """
    found = _TEXT.fullmatch(text)
    unit = None if found is None else _UNITS_BYTES.get(found[2].lower())
    if found is None or unit is None:
        raise ValueError(
            f"{text!r} is no size; write bytes such as 1048576, or 500kB, 10GB, 16MiB or 2TiB"
        )
    whole, _, fraction = found[1].partition(".")
    scale: int = 10 ** len(fraction)
    size_bytes, rest = divmod(int(whole + fraction) * unit, scale)
    if rest:
        raise ValueError(f"{text!r} is no whole number of bytes")
    return size_bytes


class ByteSize(_IntType):
    """A size in bytes, also in other units, from *low_bytes* to *high_bytes*."""

    name = "size"

    def __init__(self, low_bytes: int, high_bytes: int) -> None:
        self._low_bytes = low_bytes
        self._high_bytes = high_bytes

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            size_bytes = parse_byte_size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._low_bytes <= size_bytes <= self._high_bytes:
            self.fail(
                f"{value} is not from {self._low_bytes:,} to {self._high_bytes:,} bytes", param, ctx
            )
        return size_bytes
