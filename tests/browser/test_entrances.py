"""octopi.js may be given any nodes of a cluster, and stays with them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings, strategies as st

import octopi
from harness.processes import NodeProcess, NodeProcesses, node_processes
from octopi.clients.entrances import Entrances
from octopi.errors import Status
from tests.browser.pages import open_client_page
from tests.browser.tools import CLIENTS, STATIC, NodePeer, node_command

if TYPE_CHECKING:
    from playwright.sync_api import Page

ADDRESSES = st.sampled_from(["ws://a:1", "ws://b:1", "ws://c:1", "ws://d:1"])
STEPS = st.lists(
    st.one_of(
        st.just(["answered"]),
        st.tuples(st.just("failed"), ADDRESSES, st.booleans()).map(list),
        st.lists(
            st.one_of(ADDRESSES, st.just(""), st.integers(0, 30).map("ws://x{}:1".format))
        ).map(lambda one: ["learn", one]),
    ),
    max_size=30,
)
REGISTER, BROKER, OTHER = "ws://register:1", "ws://broker:1", "ws://other:1"
NOBODY = "ws://127.0.0.1:1"
"""An address at which no process listens."""


def walk(given_nodes: list[str], steps: list[list[Any]]) -> list[list[Any]]:
    """What `Entrances` of the Python client says."""
    entrances, seen = Entrances(given_nodes), []
    for step, *rest in steps:
        if step == "failed":
            entrances.failed(rest[0], was_silent=rest[1])
        else:
            getattr(entrances, step)(*rest)
        patience = entrances.patience_s
        seen.append([entrances.current, None if patience is None else 1000 * patience])
    return seen


@settings(max_examples=200, deadline=None)
@given(st.lists(ADDRESSES, min_size=1, max_size=3, unique=True), STEPS)
def test_both_clients_ask_the_same_node_next(
    node: NodePeer, given_nodes: list[str], steps: list[list[Any]]
) -> None:
    asked = {"given": given_nodes, "steps": steps}
    assert node.ask("entrances", asked) == walk(given_nodes, steps)


# --- questions to nodes that are played ------------------------------------------------

Nodes = dict[str, dict[str, Any]]


def ask(node: NodePeer, nodes: Nodes, *given_nodes: str, **options: Any) -> Any:  # noqa: ANN401
    """The results of one question, or of those of *options*, and which nodes were asked."""
    question = {"nodes": nodes, "given": given_nodes, "ask": [{"type": "list_topics"}], **options}
    return node.ask("questions", question)


LOOKUP = [{"type": "list_topics", "isLookup": True}]


def test_of_several_nodes_the_next_one_is_asked_when_one_is_away(node: NodePeer) -> None:
    seen = ask(node, {BROKER: {"role": "broker"}}, OTHER, BROKER)
    assert seen["results"] == [[BROKER]]


@pytest.mark.parametrize("status", [Status.NOT_READY, Status.ANSWER_LOST, Status.TOO_MANY])
def test_a_broker_that_can_not_have_it_answered_is_followed_by_the_next_node(
    node: NodePeer, status: Status
) -> None:
    nodes: Nodes = {
        BROKER: {"role": "broker", "does": [status]},
        REGISTER: {"role": "register"},
    }
    assert ask(node, nodes, BROKER, REGISTER)["results"] == [[REGISTER]]


def test_a_register_that_is_not_ready_is_asked_again(node: NodePeer) -> None:
    nodes: Nodes = {
        REGISTER: {"role": "register", "does": [Status.NOT_READY]},
        BROKER: {"role": "broker"},
    }
    assert ask(node, nodes, REGISTER, BROKER)["results"] == [[REGISTER]]


def test_a_lookup_is_made_at_the_next_node_when_one_is_silent(node: NodePeer) -> None:
    nodes: Nodes = {
        BROKER: {"role": "broker", "does": ["silent"]},
        OTHER: {"role": "broker"},
    }
    seen = ask(node, nodes, BROKER, OTHER, ask=LOOKUP)
    assert seen["results"] == [[OTHER]]
    assert seen["asked"][:2] == [BROKER, OTHER]


@pytest.mark.parametrize(("role", "is_kept"), [("broker", True), ("register", False)])
def test_a_slow_register_costs_no_connection_to_the_broker(
    node: NodePeer, role: str, is_kept: bool
) -> None:
    nodes: Nodes = {BROKER: {"role": role, "does": ["silent"]}}
    seen = ask(node, nodes, BROKER, requestTimeout=400)
    assert seen["results"] == [[BROKER]]
    assert (f"closed {BROKER}" in seen["asked"][:2]) is not is_kept


def test_nodes_of_two_clusters_are_not_mixed(node: NodePeer) -> None:
    nodes: Nodes = {
        BROKER: {"role": "broker", "does": [None, *[Status.NOT_READY] * 100]},
        OTHER: {"role": "broker", "cluster": "c2"},
    }
    options = {"requestTimeout": 200, "ask": [{"type": "list_topics"}] * 2}
    seen = ask(node, nodes, BROKER, OTHER, **options)
    found, why = seen["results"]
    assert found == [BROKER]
    assert why["code"] in {"unreachable", "not_ready"}
    assert f"closed {OTHER}" in seen["asked"]
    assert OTHER not in seen["asked"]


@pytest.mark.parametrize(
    ("nodes", "code", "why"),
    [
        ({}, "unreachable", f"nobody welcomed us at {BROKER}"),
        (
            {BROKER: {"role": "broker", "does": [Status.NOT_READY] * 10_000}},
            "not_ready",
            "no",
        ),
        ({BROKER: {"role": "broker", "hangs": True}}, "unreachable", "did not welcome us"),
        ({BROKER: {"role": "broker", "does": ["silent"] * 9}}, "connection_lost", "gave no answer"),
    ],
    ids=["nobody there", "not ready", "hanging", "silent"],
)
def test_a_request_is_given_up_when_its_time_is_over(
    node: NodePeer, nodes: Nodes, code: str, why: str
) -> None:
    (error,) = ask(node, nodes, BROKER, requestTimeout=150)["results"]
    assert error["code"] == code
    given_up, last = error["message"].split("; last: ")
    assert given_up.startswith("given up after 150 ms and ")
    assert why in last


def test_a_topic_is_created_although_another_one_only_looks_for_it(node: NodePeer) -> None:
    assert node.ask("topic twice") == ["unknown_topic", "fulfilled", [False, True]]


# --- a cluster of processes ------------------------------------------------------------

Ask = Callable[[str], Any]


@contextmanager
def program(*nodes: str) -> Iterator[Ask]:
    """A program of Node that is given these nodes, and is asked a line at a time."""
    script = Path(__file__).with_name("given_nodes.mjs")
    command = [*node_command(), str(script), STATIC.as_uri(), *nodes]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def asks(line: str) -> Any:  # noqa: ANN401  # JSON is any of many types
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        try:
            yield asks
        finally:
            process.kill()


def host(node: NodeProcess) -> str:
    """Host and port."""
    return node.url.removeprefix("ws://")


def started(nodes: NodeProcesses, count: int) -> tuple[NodeProcess, list[NodeProcess]]:
    """A register, and brokers."""
    register = nodes.register()
    return register, [nodes.broker(register, f"broker-{number + 1}") for number in range(count)]


@pytest.mark.process
def test_a_program_that_is_given_a_broker_needs_no_way_to_the_register(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        _, (broker,) = started(nodes, 1)
        with program(broker.url) as asks:
            assert asks("publish before") == 0
            assert asks("topics") == ["orders"]
            assert asks("read 1") == ["before"]
            assert asks("member 1") == ["before"]
            assert asks("topics") == ["orders", "orders.billing.dead"]
            assert asks("opened") == [host(broker)]


@pytest.mark.process
@pytest.mark.parametrize("client", CLIENTS)
def test_a_page_of_a_broker_connects_to_that_broker_alone(
    tmp_path: Path, page: Page, client: str
) -> None:
    opened: list[str] = []
    page.on("websocket", lambda socket: opened.append(socket.url))
    with node_processes(tmp_path) as nodes:
        _, (broker,) = started(nodes, 1)
        open_client_page(page, broker.url, client=client)
        read = page.evaluate(
            """async () => {
                const octopi = await Octopi.connect();
                await octopi.publish("orders", "a parasol");
                await octopi.topics();
                await octopi.describeCluster();
                const { value } = await octopi.subscribe("orders", { from: "earliest" }).next();
                await octopi.close();
                return value.text();
            }"""
        )
        assert read == "a parasol"
        assert set(opened) == {f"{broker.url}/v1/client"}


@pytest.mark.process
def test_a_program_uses_the_node_that_answers_and_later_another_one(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register, (broker,) = started(nodes, 1)
        with program(NOBODY, broker.url, register.url) as asks:
            assert asks("topics") == []
            assert host(register) not in asks("opened")
            broker.kill9()
            assert asks("topics") == []
            assert host(register) in asks("opened")


async def _on_all(url: str) -> None:
    async with octopi.connect(url) as client:
        await client.create_topic("orders", 3)


@pytest.mark.process
def test_a_program_asks_brokers_that_it_has_learnt_of_when_its_own_is_away(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = started(nodes, 2)
        trio.run(_on_all, register.url)
        with program(brokers[0].url) as asks:
            asks("publish first")  # its partition's brokers are learnt
            brokers[0].kill9()
            assert asks("topics") == ["orders"]
            assert sorted(asks("opened")) == sorted(map(host, brokers))


def test_pages_refuse_a_topic_that_got_other_partitions(node: NodePeer) -> None:
    refused = node.ask("topic that grew")
    assert (refused["code"], refused["retryable"]) == ("unsupported_version", False)
    assert "can't keep the order" in refused["message"]
