"""Parses a number of bytes on the command line: ``4096``, ``64kB``, ``10GB``, ``16MiB``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
else:  # older versions of click don't have generic types
    _IntType = click.ParamType

_UNITS: Final[dict[str, int]] = {"": 1, "b": 1} | {
    f"{letter}{suffix}": int(base**power)
    for power, letter in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_TEXT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)", re.ASCII | re.IGNORECASE)


class Size(_IntType):
    """Bytes, also in kB, MB, GB and TB (powers of 1000), and in KiB, MiB, GiB and TiB (powers of
    1024); at least 1."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        found = _TEXT.fullmatch(str(value))
        unit = None if found is None else _UNITS.get(found[2].lower())
        if found is None or unit is None:
            self.fail(f"{value!r} is no size; write 4096, 64kB, 10GB or 16MiB", param, ctx)
        count_bytes = round(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit
        if not 1 <= count_bytes < 2**63:
            self.fail(f"{value} is not from 1 byte to 8 EiB", param, ctx)
        return count_bytes
