"""Brokers without a register as processes, and what the command line says about them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses
from octopi.cli.failures import ExitCode
from octopi.clients.ring import order_leave
from octopi.wire.ring import LeaveProgress
from tests.cli.conftest import Program
from tests.cli.test_bench_and_events import started
from tests.kit.ring_processes import start_ring

FOUNDERS = 3


def shown(program: Program, node: NodeProcess) -> dict[str, str]:
    """The state of each broker, by address, as *node* knows it."""
    result = program("ring", "show", "--server", node.url, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    states = {found["me"]["address"]: "asked"}
    for one in found["known"]:
        states[one["node"]["address"]] = "silent" if one["is_silent"] else "known"
    return states


def known_at_last(program: Program, node: NodeProcess, others: list[NodeProcess]) -> set[str]:
    """The addresses of the brokers that *node* knows, once it knows all of *others*: it hears of
    them within seconds after it has joined.  What it knows then, if it never does."""
    until = time.monotonic() + 30
    while True:
        known = set(shown(program, node))
        if known >= {one.url for one in others} or time.monotonic() > until:
            return known
        time.sleep(0.1)  # nothing announces it


def everywhere(program: Program, founders: list[NodeProcess]) -> list[dict[str, Any]]:
    """What each of *founders* says of the holder of ``orders``, once they say the same: neighbours
    find each other within seconds after all have joined.  The last answers, if they never do."""
    until = time.monotonic() + 30
    while True:
        found = [
            json.loads(program("ring", "locate", "orders", "--server", one.url, "--json").stdout)
            for one in founders
        ]
        if len({one["holder"]["broker"] for one in found}) == 1 or time.monotonic() > until:
            return found
        time.sleep(0.1)  # nothing announces it


def test_processes_form_a_ring_that_answers_and_survives_a_kill(
    nodes: NodeProcesses, program: Program
) -> None:
    founders = start_ring(nodes, FOUNDERS)
    first, second, third = founders
    assert known_at_last(program, first, founders) == {one.url for one in founders}
    located = everywhere(program, founders)
    assert len({one["partition"] for one in located}) == 1
    assert len({one["holder"]["broker"] for one in located}) == 1

    second.kill9()
    second.start()
    assert known_at_last(program, second, founders) == {one.url for one in founders}
    joiner = nodes.node("ring-4", "broker", "--join", third.url)
    joiner.start()
    table = program("ring", "show", "--server", joiner.url)
    assert table.exit_code == 0, table.stderr
    assert "brokers 1 2 3 agree about it" in table.stdout
    assert joiner.url in table.stdout
    table = program("ring", "locate", "3", "--server", joiner.url)
    assert table.stdout.splitlines()[1].split()[0] == "3"

    refused = program("ring", "locate", "1000", "--server", first.url)
    assert refused.exit_code == ExitCode.REFUSED
    assert "there is no partition 1000" in refused.stderr


def test_topics_are_kept_through_whatever_broker_and_survive_a_kill(
    nodes: NodeProcesses, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, third = start_ring(nodes, FOUNDERS)
    created = program("topics", "create", "orders", "--partitions", "3", "--server", first.url)
    assert created.exit_code == 0, created.stderr
    listed = program("topics", "list", "--server", second.url)
    assert "orders" in listed.stdout
    produced = program("produce", "orders", "a", "b", "c", "--server", second.url)
    assert produced.exit_code == 0, produced.stderr
    tree = json.loads(program("status", "--tree", "--json", "--server", third.url).stdout)
    assert sorted(tree["brokers"]) == ["1", "2", "3"]
    assert len(tree["topics"]["orders"]["partitions"]) == 3
    assert (tree["topics"]["orders"]["subscriptions"], tree["topics"]["orders"]["problem"]) == (
        {},
        None,
    )
    first.kill9()
    capfd.readouterr()
    consumed = program("consume", "orders", "-e", "--server", third.url)
    assert sorted(capfd.readouterr().out.split()) == ["a", "b", "c"], consumed.stderr
    described = program("topics", "describe", "orders", "--server", third.url)
    assert described.exit_code == 0, described.stderr
    deleted = program("topics", "delete", "orders", "--yes", "--server", third.url)
    assert deleted.exit_code == 0, deleted.stderr
    listed = program("topics", "list", "--server", second.url)
    assert "orders" not in listed.stdout
    status = program("status", "--server", second.url)
    assert third.url in status.stdout


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--join", "ws://a:1"), "need one join secret"),
        (("--join", "ws://a:1", "--register", "ws://r:1"), "need one join secret"),
        (("--join", "ws://a:1", "--id", "3"), "--id is not an option"),
        (("--join", "ws://a:1", "--peers", "ws://r:1"), "--peers is not an option"),
        (("--partitions", "3"), "--partitions is not an option of a broker"),
    ],
    ids=lambda one: one[-2] if isinstance(one, tuple) else "",
)
def test_options_that_have_no_effect_on_such_a_broker_are_refused(
    program: Program, tmp_path: Path, flags: tuple[str, ...], why: str
) -> None:
    result = program("serve", "--role", "broker", "--data-dir", str(tmp_path / "data"), *flags)
    assert result.exit_code == ExitCode.USAGE
    assert why in result.stderr


def test_a_register_joins_nobody(program: Program, tmp_path: Path) -> None:
    result = program(
        "serve", "--role", "register", "--data-dir", str(tmp_path), "--join", "ws://a:1"
    )
    assert result.exit_code == ExitCode.USAGE
    assert "--join is not an option of a register" in result.stderr


def test_a_broker_that_is_killed_while_it_leaves_is_gone_when_leave_is_repeated(
    nodes: NodeProcesses, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, third, fourth = founders = start_ring(nodes, FOUNDERS + 1)
    known_at_last(program, first, founders)
    assert program("topics", "create", "orders", "--server", first.url).exit_code == 0
    produced = program("produce", "orders", "a", "b", "c", "--server", second.url)
    assert produced.exit_code == 0, produced.stderr
    own = json.loads(program("ring", "show", "--server", fourth.url, "--json").stdout)
    broker = own["me"]["broker"]

    async def order() -> LeaveProgress:
        async with octopi.connect([first.url]) as client:
            return await order_leave(client, broker)

    assert not trio.run(order).is_gone
    fourth.kill9()
    table = program("brokers", "list", "--server", third.url)
    assert "leaving" in table.stdout, table.stderr
    fourth.start()
    result = program("ring", "leave", str(broker), "--server", f"{fourth.url},{first.url}")
    assert result.exit_code == 0, result.stderr
    assert f"broker {broker} is removed from the cluster" in result.stderr
    assert fourth.wait() == 0
    again = program("ring", "leave", str(broker), "--server", first.url)
    assert again.exit_code == 0, again.stderr
    assert program("brokers", "remove", str(broker), "--server", first.url).exit_code == 0
    assert fourth.url not in program("brokers", "list", "--server", first.url).stdout
    capfd.readouterr()
    consumed = program("consume", "orders", "-e", "--server", third.url)
    assert sorted(capfd.readouterr().out.split()) == ["a", "b", "c"], consumed.stderr

    fourth.launch()
    assert fourth.wait() != 0
    assert "removed from the cluster" in fourth.log()


def test_draining_and_taking_an_order_back_are_shown(
    nodes: NodeProcesses, program: Program
) -> None:
    first, second, _ = founders = start_ring(nodes, FOUNDERS)
    known_at_last(program, first, founders)
    drained = program("brokers", "drain", "2", "--server", first.url)
    assert drained.exit_code == 0, drained.stderr
    assert "drained" in program("brokers", "list", "--server", second.url).stdout
    shown = program("ring", "show", "--server", second.url).stdout
    assert "drained until they are started again: 2" in shown

    async def order() -> None:
        async with octopi.connect([first.url]) as client:
            await order_leave(client, 3)

    trio.run(order)
    shown = program("ring", "show", "--server", first.url).stdout
    assert "leaving for good: 3" in shown
    stays = program("ring", "leave", "3", "--cancel", "--server", second.url)
    assert stays.exit_code == 0, stays.stderr
    assert "broker 3 stays" in stays.stderr
    refused = program("partitions", "move", "3", "--from", "1", "--to", "2", "--server", first.url)
    assert refused.exit_code == ExitCode.REFUSED
    assert "replicas lie where the ring says" in refused.stderr


def test_events_of_all_brokers_are_printed_once_and_outlive_a_broker_when_they_were_collected(
    nodes: NodeProcesses, program: Program
) -> None:
    first, second, third = founders = start_ring(nodes, FOUNDERS)
    known_at_last(program, first, founders)
    for name, node in (("orders", first), ("bills", second), ("mails", third)):
        assert program("topics", "create", name, "--server", node.url).exit_code == 0
    printed = program("events", "-e", "--json", "--server", first.url)
    assert printed.exit_code == 0, printed.stderr
    events = [json.loads(one) for one in printed.stdout.splitlines()]
    created = {one["topic"] for one in events if one["kind"] == "topic_created"}
    assert created >= {"orders", "bills", "mails"}
    assert {one["broker"] for one in events if one["kind"] == "broker_joined"} == {1, 2, 3}
    origins = [one["origin"] for one in events]
    assert len(set(origins)) == len(origins)
    assert program("events", "-e", "--server", second.url).exit_code == 0
    first.kill9()
    # What broker 1 noted was collected before it died.
    lines = program("events", "-e", "--server", f"{first.url},{second.url}")
    assert lines.exit_code == 0, lines.stderr
    assert "topic mails was created" in lines.stdout


def test_events_that_are_followed_go_on_at_another_broker_and_none_is_printed_twice(
    nodes: NodeProcesses, program: Program
) -> None:
    first, second, _ = founders = start_ring(nodes, FOUNDERS)
    known_at_last(program, first, founders)
    servers = f"{first.url},{second.url}"
    following = started("events", "--json", "--server", servers, "--retry", "60")
    printed: list[dict[str, Any]] = []

    def until(*expected: str) -> None:
        assert following.stdout is not None
        awaited = set(expected)
        for line in following.stdout:
            printed.append(json.loads(line))
            awaited -= {printed[-1]["kind"], printed[-1]["topic"]}
            if not awaited:
                return
        pytest.fail("the command has ended")

    try:
        assert program("topics", "create", "before", "--server", second.url).exit_code == 0
        until("before")
        first.kill9()
        created = program("topics", "create", "after", "--server", second.url)
        assert created.exit_code == 0, created.stderr
        until("after", "broker_left")
    finally:
        following.kill()
        following.communicate()
    origins = [one["origin"] for one in printed]
    assert len(set(origins)) == len(origins)
