"""Formats results: tables, sizes and rates.

On a terminal a table has rules and colours.  Anywhere else its columns are aligned with spaces, and
nothing is cut or wrapped, so that awk and grep can read it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from octopi.cli.output import say_lines, show
from octopi.printable import printable

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on standard output.  Columns of numbers are aligned to the right."""
    cells = [
        ["-" if cell is None or cell == "" else printable(str(cell)) for cell in row]
        for row in rows
    ]
    numeric = [
        bool(rows) and all(isinstance(row[column], int | float | None) for row in rows)
        for column in range(len(headings))
    ]
    if sys.stdout.isatty():
        _print_rich(headings, cells, numeric)
    else:
        say_lines(aligned([[*headings], *cells], numeric))


def aligned(cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """*cells* in columns, two spaces apart; *right* says which columns are aligned to the right."""
    widths = [max(len(row[column]) for row in cells) for column in range(len(right))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    )


def _print_rich(
    headings: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading, to_right in zip(headings, right, strict=True):
        table.add_column(heading, justify="right" if to_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))  # Text: brackets aren't markup
    show(table)


def size(count_bytes: float) -> str:
    """*count_bytes* in readable form: ``914.1 kB`` (powers of 1000)."""
    for unit in _UNITS:
        if count_bytes < 999.95 or unit == _UNITS[-1]:
            break
        count_bytes /= 1000
    return f"{count_bytes:,.0f} B" if unit == "B" else f"{count_bytes:,.1f} {unit}"


def span(seconds: float) -> str:
    """*seconds* in readable form, rounded down: ``41 s``, ``12 min``, ``3 h 5 min``, ``9 d``."""
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours >= 24:
        return f"{hours // 24} d"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"


def counted(count: int, thing: str) -> str:
    """*count* and *thing*, in the plural unless *count* is 1: ``2 logs``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
