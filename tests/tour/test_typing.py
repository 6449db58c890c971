"""The tour itself: it notices what does not work, and what a page promises in vain."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tour.blocks import blocks_of
from tests.tour.shell import Shell, Terminal

PAGE = """
1. A list:

    which goes on.

<!-- prints: two * -->
<!-- prints: three -->
```sh
echo one; echo two words; echo three
```
<!-- not run: it is a setting -->
```toml
a = 1
```
<!-- keeps running -->
```sh
sleep 100
```
<!-- Ctrl-C -->
```python
print(1)
```
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell to type into."""
    made = Shell(tmp_path, dict(os.environ))
    yield made
    made.close()


def test_comments_say_what_is_to_be_done_with_the_block_behind_them() -> None:
    first, setting, running, program = blocks_of("a.md", PAGE)
    assert (first.language, first.prints) == ("sh", ("two *", "three"))
    assert first.place == "a.md:8"
    assert setting.reason == "it is a setting"
    assert running.keeps_running
    assert not running.after_ctrl_c
    assert (program.after_ctrl_c, program.text) == (True, "print(1)\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\n    octopi-node status\n", "fence it"),
        ("<!-- runs: never -->\n```sh\nls\n```\n", "doesn't understand"),
        ("<!-- not run -->\n```sh\nls\n```\n", "without a reason"),
    ],
    ids=["an indented block", "an unknown comment", "no reason"],
)
def test_what_the_tour_does_not_understand_is_an_error(text: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        blocks_of("a.md", text)


@pytest.mark.parametrize(
    "output", ["one\ntwo words\n", "two words\nthree\nthree\n", "two words\nthree more\n"]
)
def test_a_promised_line_that_is_missing_or_comes_too_often_is_an_error(output: str) -> None:
    block = blocks_of("a.md", PAGE)[0]
    block.check_output("one\ntwo words\nthree\n")
    with pytest.raises(AssertionError, match="the page promises"):
        block.check_output(output)


def test_a_shell_keeps_what_earlier_blocks_have_set(shell: Shell) -> None:
    assert shell.type("name=octopus; greet() { echo hello $name; }", "a.md:1") == ""
    assert shell.type("greet", "a.md:5") == "hello octopus\n"
    assert shell.type("printf 'no newline'", "a.md:9") == "no newline"


@pytest.mark.parametrize("command", ["false", "no-such-program", "exit 0", "echo $UNSET_NAME"])
def test_a_command_that_fails_fails_its_block(shell: Shell, command: str) -> None:
    with pytest.raises(AssertionError, match=r"a\.md:1: a command failed"):
        shell.type(f"echo begins\n{command}\necho goes on", "a.md:1")


def test_a_command_that_keeps_running_is_ended_by_ctrl_c(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, dict(os.environ), "echo ready; exec sleep 100", "ready\n")
    assert terminal.output == "ready\n"
    with pytest.raises(AssertionError, match="ended with code -2 at Ctrl-C"):
        terminal.interrupt()  # no clean end


def test_a_command_that_goes_on_at_ctrl_c_fails_and_is_killed_and_closed(tmp_path: Path) -> None:
    """What stayed open would warn when it is collected, and fail a later test in its stead."""
    text = "trap '' INT; echo $$; echo ready; exec sleep 100"
    terminal = Terminal(tmp_path, dict(os.environ), text, "ready\n")
    with pytest.raises(AssertionError, match="the command goes on"):
        terminal.interrupt(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(int(terminal.output.split()[0]), 0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del terminal
        gc.collect()
    assert told == []
