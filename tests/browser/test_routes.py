"""octopi.js finds leaders by the same rules as the Python client."""

from __future__ import annotations

from typing import Any

import trio
from hypothesis import given, settings, strategies as st

from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.leader_route import LeaderRoute
from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    NotReadyError,
    OctopiError,
    RedirectLoopError,
    UnreachableError,
)
from octopi.identifiers import BrokerId, PartitionId, TopicName
from octopi.wire import messages as m
from tests.browser.tools import NodePeer
from tests.kit.world import VirtualClock

ADDRESSES = st.sampled_from(["a", "b", "c"])
EPOCHS = st.integers(1, 4)
REGISTER = st.one_of(
    st.just(["register"]),
    st.just(["unready"]),
    st.tuples(ADDRESSES, EPOCHS, st.lists(ADDRESSES, max_size=3, unique=True)).map(
        lambda given: ["register", *given]
    ),
)
FAILURES = st.one_of(
    st.tuples(st.just("not_leader"), ADDRESSES | st.just(""), EPOCHS | st.none()).map(list),
    st.just(["connection_lost", "", None]),
)
ROUNDS = st.tuples(st.booleans(), FAILURES).map(
    lambda given: [["find"], *([["arrived"]] if given[0] else []), ["redirected", *given[1]]]
)
STEPS = st.lists(REGISTER.map(lambda one: [one]) | ROUNDS, max_size=20).map(
    lambda parts: [step for part in parts for step in part]
)


async def run(steps: list[list[Any]]) -> list[object]:
    """What `LeaderRoute` of the Python client says."""
    known: list[Any] = []
    is_unready = False
    results: list[object] = []

    async def describe(name: str, create: bool) -> m.TopicInfo:
        await trio.lowlevel.checkpoint()
        if is_unready:
            raise NotReadyError("a broker can't reach the register")
        if not known:
            raise UnreachableError("no node answers")
        leader, epoch, readers = known
        place = m.PartitionInfo(
            PartitionId(0), epoch, BrokerId(1), leader, [BrokerId(1)], [BrokerId(1)], readers
        )
        return m.TopicInfo(name, "id", [place], m.TopicOptions())

    lookup = LeaderLookup(VirtualClock(), describe)
    route = LeaderRoute(lookup, TopicName("orders"), PartitionId(0))
    for step, *rest in steps:
        match step:
            case "register":
                known[:], is_unready = rest, False
            case "unready":
                is_unready = True
            case "arrived":
                route.arrived()
            case "redirected":
                error: OctopiError = ConnectionLostError("it broke")
                if rest[0] == "not_leader":
                    error = NotLeaderError("", address=rest[1], epoch=rest[2])
                results.append(route.redirected(error))
                told = route.reported(error)
                results.append(list(told.tried) if isinstance(told, RedirectLoopError) else None)
            case "find":
                try:
                    results.append((await route.find()).address)
                except UnreachableError:
                    results.append("unreachable")
                except NotReadyError:
                    results.append("not_ready")
    return results


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_both_clients_follow_redirects_alike(node: NodePeer, steps: list[list[Any]]) -> None:
    assert node.ask("route", steps) == trio.run(run, steps)


def test_pages_follow_a_redirect_while_the_register_is_away(node: NodePeer) -> None:
    steps: list[list[object]] = [
        ["register", "a", 1, ["a", "b", "c"]],
        ["find"],
        ["register"],
        ["redirected", "connection_lost", "", None],
        ["find"],
        ["redirected", "connection_lost", "", None],
        ["find"],
        ["redirected", "not_leader", "c", 2],
        ["find"],
        ["redirected", "not_leader", "c", 2],
    ]
    told = node.ask("route", steps)
    assert told[:-1] == ["a", False, None, "a", False, None, "b", True, None, "c", False]
    assert told[-1] == ["a", "a", "b", "c"], "which name each other"
