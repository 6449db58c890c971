"""Errors as people and scripts see them."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from octopi.cli.failures import CommandError, ExitCode, explain, leaves
from octopi.cli.invocation import OctopiGroup
from octopi.errors import (
    ConnectionLostError,
    InvalidOptionError,
    InvalidTopicError,
    NotDeliveredError,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    Status,
    StorageError,
    UnknownTopicError,
    UnreachableError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreachableError("nobody there"), 3),
        (ConnectionLostError("gone"), 3),
        (ProtocolError("no Octopi"), 3),
        (UnknownTopicError("no topic x"), 4),
        (RefusedError("no", Status.NO_BROKER), 4),
        (InvalidTopicError("x/y"), 2),
        (InvalidOptionError("x"), 2),
        (StorageError("broken disk"), 1),
        (NotDeliveredError("late"), 1),
        (OutcomeUnknownError("late"), 1),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 1),
        (CommandError("data", ExitCode.DATA_FAULT), 5),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("oops"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_exit_codes_are_stable(error: BaseException, code: int) -> None:
    assert explain(error).code == code


def test_a_refusal_says_what_happened_which_side_acts_and_what_to_do() -> None:
    assert explain(UnknownTopicError("there is no topic x")).line == (
        "there is no topic x [unknown_topic]; on your side: "
        "correct the name (`octopi-node topics list`), or run `octopi-node topics create NAME`"
    )


def test_a_file_error_names_the_file() -> None:
    error = FileNotFoundError(2, "No such file or directory", "x.csv")
    assert explain(error).line == "x.csv: No such file or directory"


def test_a_bug_is_reported_as_a_bug() -> None:
    line = explain(ZeroDivisionError("oops")).line
    assert "octopi-node itself" in line
    assert "ZeroDivisionError: oops" in line
    assert "--debug" in line


def test_a_failed_delivery_has_the_exit_code_of_its_cause() -> None:
    error = NotDeliveredError("orders: refused")
    error.__cause__ = RefusedError("disk full", Status.DISK_FULL)
    assert explain(error).code == ExitCode.REFUSED
    assert "on the node's side: free space" in explain(error).line


def test_a_group_of_one_exception_is_explained_as_that_exception() -> None:
    inner = UnreachableError("nobody there")
    group = ExceptionGroup("a", [ExceptionGroup("b", [inner])])
    assert explain(group) == explain(inner)


def test_a_group_is_explained_by_its_most_informative_exception() -> None:
    group = ExceptionGroup("a", [ConnectionLostError("gone"), StorageError("broken disk")])
    explanation = explain(group)
    assert explanation.code == ExitCode.FAILED
    assert explanation.line == "broken disk (and 1 more: --debug shows all)"


def test_equal_exceptions_of_a_group_count_once() -> None:
    group = ExceptionGroup("a", [ConnectionLostError("gone"), ConnectionLostError("gone")])
    assert len(leaves(group)) == 1


def run(*arguments: str, raising: BaseException) -> tuple[int, str]:
    """A program whose only command fails."""

    @click.command()
    @click.option("--debug", is_flag=True)
    def fail(debug: bool) -> None:
        raise raising

    class Failing(OctopiGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return fail

    result = CliRunner().invoke(Failing("program"), arguments)
    return result.exit_code, result.stderr


def test_an_error_is_one_line_on_standard_error() -> None:
    group = ExceptionGroup("a", [StorageError("broken disk")])
    assert run("fail", raising=group) == (1, "octopi-node: broken disk\n")


def test_a_traceback_comes_only_with_debug() -> None:
    code, stderr = run("fail", "--debug", raising=StorageError("broken disk"))
    assert code == 1
    assert "Traceback" in stderr
    assert stderr.endswith("octopi-node: broken disk\n")


def test_an_interruption_has_an_exit_code_of_its_own() -> None:
    code, stderr = run("fail", raising=KeyboardInterrupt())
    assert code == 130
    assert stderr.strip() == "octopi-node: interrupted"  # after the ^C, on a line of its own


def test_the_exit_code_of_a_system_exit_is_kept() -> None:
    assert run("fail", raising=SystemExit(7))[0] == 7


def test_the_documentation_lists_every_exit_code() -> None:
    document = Path(__file__).parents[2] / "docs" / "command-line.md"
    rows = re.findall(r"^\| (\d+) \|", document.read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == [int(code) for code in ExitCode]
