"""What the documents tell people to type is understood (`tests/tour` types some of them)."""

import re
import shlex
from pathlib import Path

import click
import pytest

from octopi.cli.failures import PROGRAM
from octopi.cli.invocation import Invocation
from octopi.cli.main import cli
from octopi_node import find_search

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/command-line.md",
    "docs/operations.md",
    "docs/security.md",
    "docs/spark.md",
    "docs/subscriptions.md",
]


def blocks(page: str, language: str = "sh") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """The arguments of every `octopi-node` in the page's blocks."""
    lines = [line for block in blocks(page) for line in block.splitlines()]
    text = "\n".join(lines).replace("\\\n", " ")
    found = re.findall(rf"\b{PROGRAM} ([^|;&)>#\n]+)", text)
    return [shlex.split(one) for one in found]


def understood(arguments: list[str]) -> None:
    """Have click parse a command line, without running it."""
    here = Invocation(find_search=find_search)
    context: click.Context = cli.make_context(PROGRAM, list(arguments), obj=here)
    command: click.Command = cli
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)


def test_the_table_of_commands_has_every_command_and_every_part_of_it() -> None:
    page = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    text = page.partition("## Commands")[2].partition("## ")[0]
    rows = re.findall(r"^\| `([a-z-]+) ?([^`]*)` \|", text, re.MULTILINE)
    table = {name: rest.replace("\\|", " ").split() for name, rest in rows}
    context = click.Context(cli, obj=Invocation(find_search=find_search))
    assert set(table) == set(cli.list_commands(context))
    for name in table:
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            assert set(command.list_commands(context)) <= set(table[name]), name


@pytest.mark.parametrize("page", PAGES)
def test_every_documented_command_is_understood(page: str) -> None:
    found = commands(page)
    assert len(found) > 3
    for arguments in found:
        if "$@" in arguments or "..." in arguments:
            continue
        given = [re.sub(r"\$\w+", "1", one) for one in arguments]
        try:
            understood(given)
        except click.ClickException as error:
            if "does not exist" in error.format_message():
                continue  # a file of the page's own
            pytest.fail(f"{PROGRAM} {' '.join(arguments)}: {error.format_message()}")
