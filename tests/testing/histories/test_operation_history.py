"""Operations are noted with their outcomes, and written as Jepsen has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import octopi.testing
from octopi.testing import Cluster, Host, MisuseError, OperationHistory, OperationStatus, simulated
from tests.testing.histories.executions import by_hand, done

TOKEN = re.compile(r'[\s,]*(#\{|[\[\]{}]|"(?:\\.|[^"\\])*"|[^\s,\[\]{}"]+)')


def read_edn(text: str) -> Any:  # noqa: ANN401
    """The value of one line of EDN, as far as Jepsen's histories need it; keywords are texts that
    begin with a colon."""
    tokens = TOKEN.findall(text)
    value, end = _value(tokens, 0)
    assert end == len(tokens), text
    return value


def _value(tokens: list[str], at: int) -> tuple[Any, int]:
    token = tokens[at]
    at += 1
    if token in ("[", "{", "#{"):
        items = []
        while tokens[at] not in ("]", "}"):
            item, at = _value(tokens, at)
            items.append(item)
        if token == "{":
            return dict(zip(items[::2], items[1::2], strict=True)), at + 1
        return (items if token == "[" else set(items)), at + 1
    if token.startswith('"'):
        return token[1:-1].encode().decode("unicode_escape"), at
    plain = {"nil": None, "true": True, "false": False}
    if token in plain:
        return plain[token], at
    if token.startswith(":"):
        return token, at
    return (float(token) if "." in token else int(token)), at


def test_an_operation_has_its_times_and_its_outcome() -> None:
    history = by_hand()
    with history.invoke("a", "write", 3):
        pass
    with history.invoke("a", "read") as operation:
        operation.ok(3)
    with history.invoke("b", "write", 4, key="hats") as operation:
        operation.fail("refused")
    open_one = history.invoke("b", "read")
    assert [str(one) for one in history.operations] == [
        "a: write 3",
        "a: read gave 3",
        "b: write of 'hats' 4, fail (refused)",
        "b: read, open",
    ]
    assert [(one.invoked_s, one.ended_s) for one in history.operations[:3]] == [
        (0.0, 1.0),
        (2.0, 3.0),
        (4.0, 5.0),
    ]
    assert open_one.may_have_happened
    assert open_one.completed == float("inf")


def test_an_error_in_the_block_leaves_the_outcome_unknown() -> None:
    history = by_hand()
    with pytest.raises(octopi.OutcomeUnknownError), history.invoke("a", "write", 3):
        raise octopi.OutcomeUnknownError("the connection was lost")
    [operation] = history.operations
    assert operation.status is OperationStatus.INFO
    assert operation.reason == "the connection was lost"
    assert operation.completed == float("inf")


def test_a_failure_that_is_told_in_the_block_counts_more_than_its_error() -> None:
    history = by_hand()
    operation = history.invoke("a", "write", 3)

    def refused() -> None:
        with operation:
            operation.fail("empty")
            raise ValueError("empty")

    with pytest.raises(ValueError, match="empty"):
        refused()
    assert operation.status is OperationStatus.FAIL


def test_a_read_that_nobody_told_the_result_of_is_a_mistake_of_the_test() -> None:
    history = by_hand()
    with (
        pytest.raises(MisuseError, match=r"a: read.*: call ok\(result\)"),
        history.invoke("a", "read"),
    ):
        pass


def test_an_operation_ends_once() -> None:
    operation = done(by_hand(), "a", "write", 3)
    with pytest.raises(MisuseError, match="an operation ends once"):
        operation.info()
    with pytest.raises(MisuseError, match="ok takes one result"):
        by_hand().invoke("a", "read").ok(1, 2)


@simulated()
async def test_a_program_that_is_killed_leaves_the_outcome_unknown_at_that_moment(
    cluster: Cluster,
) -> None:
    history = OperationHistory()

    async def writer(host: Host) -> None:
        async with host.connect() as client, client.producer() as producer:
            with history.invoke(f"{host.name}-{host.life}", "write", 3):
                host.step("about to write")
                await producer.send("stock", b"3")

    async with cluster.client() as client:
        await client.create_topic("stock", 1)
    program = cluster.program("till", writer)
    cluster.at("about to write", lambda host: cluster.kill(host, restart_s=1.0))
    await program.wait()
    killed, written = history.operations
    assert (killed.process, killed.status) == ("till-1", OperationStatus.INFO)
    assert (written.process, written.status) == ("till-2", OperationStatus.OK)
    assert killed.ended < written.invoked
    assert killed.ended_s == killed.invoked_s
    assert written.invoked_s > killed.invoked_s + 0.9
    assert 0 <= cluster.now - written.ended_s < 0.1


async def test_a_block_that_is_cancelled_leaves_a_reason_that_is_the_same_in_each_run() -> None:
    history = by_hand()
    with trio.CancelScope() as scope, history.invoke("a", "write", 3):
        scope.cancel()
        await trio.lowlevel.checkpoint()
    [operation] = history.operations
    assert (operation.status, operation.reason) == (OperationStatus.INFO, "Cancelled")


def test_times_are_those_of_trio_unless_told_otherwise() -> None:
    history = OperationHistory()

    async def main() -> None:
        with history.invoke("a", "write", 3):
            await trio.sleep(2)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    [operation] = history.operations
    assert operation.ended_s - operation.invoked_s == pytest.approx(2)


def written(history: OperationHistory, folder: Path, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    path = folder / "history.edn"
    history.write_jepsen(path, **options)
    return [read_edn(line) for line in path.read_text().splitlines()]


def test_a_history_is_written_in_the_form_of_jepsen(tmp_path: Path) -> None:
    history = by_hand()
    first = history.invoke("a", "write", 3)
    done(history, "b", "cas", (None, 4))
    first.info("no answer")
    done(history, "a", "read", None, 3)
    assert written(history, tmp_path) == [
        {":index": 0, ":time": 0, ":process": 0, ":name": "a", ":type": ":invoke",
         ":f": ":write", ":value": 3},
        {":index": 1, ":time": 10**9, ":process": 1, ":name": "b", ":type": ":invoke",
         ":f": ":cas", ":value": [None, 4]},
        {":index": 2, ":time": 2 * 10**9, ":process": 1, ":name": "b", ":type": ":ok",
         ":f": ":cas", ":value": [None, 4]},
        {":index": 3, ":time": 3 * 10**9, ":process": 0, ":name": "a", ":type": ":info",
         ":f": ":write", ":value": 3, ":error": "no answer"},
        {":index": 4, ":time": 4 * 10**9, ":process": 2, ":name": "a", ":type": ":invoke",
         ":f": ":read", ":value": None},
        {":index": 5, ":time": 5 * 10**9, ":process": 2, ":name": "a", ":type": ":ok",
         ":f": ":read", ":value": 3},
    ]  # fmt: skip


def test_a_process_in_a_file_does_one_thing_at_a_time(tmp_path: Path) -> None:
    history = by_hand()
    one, two = history.invoke("a", "write", 1), history.invoke("a", "write", 2)
    one.ok()
    two.ok()
    history.invoke("a", "write", 3)
    assert [event[":process"] for event in written(history, tmp_path)] == [0, 1, 0, 1, 0]


def test_keys_are_pairs_or_chosen(tmp_path: Path) -> None:
    history = by_hand()
    done(history, "a", "write", 1, key="hats")
    done(history, "b", "write", 2, key="shoes")
    assert [event[":value"] for event in written(history, tmp_path)] == [
        ["hats", 1], ["hats", 1], ["shoes", 2], ["shoes", 2],
    ]  # fmt: skip
    assert [event[":value"] for event in written(history, tmp_path, key="shoes")] == [2, 2]


def test_lists_are_written_as_transactions_of_elle(tmp_path: Path) -> None:
    history = by_hand()
    done(history, "a", "append", 1, key="x")
    done(history, "b", "read", None, [1], key="x")
    steps = [("read", None), ("append", 2)]
    done(history, "b", "txn", steps, [("read", [1]), ("append", 2)], key="x")
    events = written(history, tmp_path, as_transactions=True)
    assert {event[":f"] for event in events} == {":txn"}
    assert [event[":value"] for event in events if event[":type"] == ":ok"] == [
        [[":append", "x", 1]],
        [[":r", "x", [1]]],
        [[":r", "x", [1]], [":append", "x", 2]],
    ]
    done(history, "c", "write", 1, key="x")
    with pytest.raises(MisuseError, match="Elle's list-append has no function 'write'"):
        written(history, tmp_path, as_transactions=True)


def test_values_of_all_kinds_are_written_the_same_way_each_time(tmp_path: Path) -> None:
    history = by_hand()
    value = {"b": {3, 1, 2}, "a": (1.5, True, b"x\xe9", 'say "so"\n')}
    done(history, "a", "note", value)
    path = tmp_path / "history.edn"
    history.write_jepsen(path)
    _, line = path.read_text().splitlines()
    assert ':value {"a" [1.5 true "xé" "say \\"so\\"\\n"], "b" #{1 2 3}}' in line


def test_what_edn_has_no_form_for_is_refused(tmp_path: Path) -> None:
    history = by_hand()
    done(history, "a", "write", object())
    with pytest.raises(MisuseError, match="object has no form in EDN"):
        history.write_jepsen(tmp_path / "history.edn")
    history = by_hand()
    done(history, "a", "write it", 3)
    with pytest.raises(MisuseError, match="'write it' is no keyword of EDN"):
        history.write_jepsen(tmp_path / "history.edn")
