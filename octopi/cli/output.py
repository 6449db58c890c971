"""The only functions that print to the terminal.

What commands print contains names and texts of other programs, which could have control sequences
for the terminal.  So no other module of `octopi.cli` or `sim` writes to standard output or standard
error (tests/architecture/test_output.py checks that), and everything here passes
`octopi.printable`.  The exceptions are messages (`octopi.cli.consuming`), and only where no
terminal reads them or with ``--raw``.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import click

from octopi.printable import as_json, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, ProgressColumn


def say(line: str = "", *, err: bool = False) -> None:
    """Print one line; a line end within it is printed as an escape.  *err*: on standard error."""
    click.echo(printable(line), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print *text*, which has line ends of its own."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=err)


def print_json(value: object) -> None:
    """Print *value* as JSON on standard output."""
    click.echo(as_json(value, indent=2))


def print_json_line(value: object) -> None:
    """Print *value* as JSON on one line of standard output."""
    click.echo(as_json(value))


def print_exception(error: BaseException) -> None:
    """Print the traceback of *error* on standard error."""
    for part in traceback.format_exception(error):
        say_lines(part.rstrip("\n"), err=True)


def agreed(question: str) -> None:
    """Ask *question* on standard error, and return if the answer is yes.

    Raises:
      click.Abort: if the answer is no.
    """
    click.confirm(printable(question), abort=True, err=True)


def show(renderable: RenderableType) -> None:
    """Print a renderable of rich.  Texts in it have to be `printable` already: the colours that
    rich adds can't be told from control sequences in a text."""
    from rich.console import Console

    Console().print(renderable)


def clear_screen() -> None:
    """Clear the terminal that reads standard output; no effect without a terminal."""
    click.clear()


def is_watched() -> bool:
    """Whether standard error is a terminal, where `progress` can be seen."""
    return sys.stderr.isatty()


def progress(*columns: str | ProgressColumn, redirect_stdout: bool = True) -> Progress:
    """A display of progress on standard error, which disappears at the end."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=redirect_stdout,
    )
