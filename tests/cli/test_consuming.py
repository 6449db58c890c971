"""`consume` through real nodes: where it starts, its help, and the completion of topic names."""

import click
import pytest
from click.shell_completion import BashComplete

from octopi.cli import topic_completion
from octopi.cli.invocation import Invocation
from octopi.cli.main import cli
from octopi_node import find_search
from tests.cli.conftest import Consume, Program


@pytest.mark.process
def test_an_offset_behind_the_end_is_refused_with_the_end(
    program: Program, consume: Consume, topic: str
) -> None:
    assert program("produce", topic, "a", "b").exit_code == 0
    end = int(consume(topic, "-e", "-f", r"%o\n").split()[1]) * 2
    assert consume(topic, "-e", "-o", str(end)) == b""
    failed = program("consume", topic, "-e", "-o", str(end + 1))
    assert failed.exit_code == 4
    assert f"--offset {end + 1} is behind the end of {topic}/" in failed.stderr
    assert f"which is {end}" in failed.stderr


@pytest.mark.process
def test_a_span_of_time_before_now_is_a_start(
    program: Program, consume: Consume, topic: str
) -> None:
    assert program("produce", topic, "a").exit_code == 0
    assert consume(topic, "-e", "-o", "@-1d") == b"a\n"
    assert consume(topic, "-e", "-o", "@-0s") == b""


def helps(command: click.Command, name: str) -> list[tuple[str, str]]:
    """The help of a command and of all commands in it, with their names."""
    context = click.Context(command, info_name=name, obj=Invocation(find_search=find_search))
    found = [(name, command.get_help(context))]
    if isinstance(command, click.Group):
        for part in command.list_commands(context):
            inner = command.get_command(context, part)
            assert inner is not None
            found += helps(inner, f"{name} {part}")
    return found


def test_no_help_shows_the_marks_of_its_layout() -> None:
    found = helps(cli, "octopi-node")
    assert len(found) > 40
    assert [name for name, text in found if r"\b" in text or "\b" in text] == []
    consume = dict(found)["octopi-node consume"]
    assert r"'%o %k %v\n'" in consume
    assert r"such as \x1b." in consume


def completions(words: list[str], incomplete: str) -> list[str]:
    shell = BashComplete(cli, {}, "octopi-node", "_OCTOPI_NODE_COMPLETE")
    return [one.value for one in shell.get_completions(words, incomplete)]


@pytest.mark.process
def test_names_of_topics_are_completed(
    program: Program, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_completion, "COMPLETION_S", 20.0)
    for name in (topic, f"{topic}-other"):
        assert program("produce", name, "a").exit_code == 0
    for words in (["consume"], ["produce"], ["topics", "describe"], ["topics", "delete"]):
        assert completions(words, topic) == [topic, f"{topic}-other"]
    assert completions(["consume", topic], topic) == [f"{topic}-other"]
    assert completions(["consume"], "no-such-") == []


def test_completion_is_silent_where_no_cluster_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(topic_completion, "COMPLETION_S", 0.05)
    monkeypatch.setenv("OCTOPI_SERVER", "ws://127.0.0.1:9")
    assert completions(["consume"], "") == []
    assert completions(["consume", "--server", "no address"], "") == []
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "nonsense")
    assert completions(["consume"], "") == []
    assert capfd.readouterr() == ("", "")
