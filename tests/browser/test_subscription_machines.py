"""octopi.js decides about claims and marks as the Python client does, step by step."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from octopi.clients.subscribing.group_session import (
    AbandonLog,
    BeginLog,
    FinishLog,
    GroupEffect,
    GroupSession,
    JoinRemedy,
    ReportReleased,
    join_remedy,
)
from octopi.clients.subscribing.mark_session import (
    AttachRemedy,
    MarkSession,
    SendMark,
    attach_remedy,
)
from octopi.errors import STATUS_MEANINGS, refused
from octopi.identifiers import Claim, MemberId, Offset, PartitionId
from octopi.model import SubscriptionOptions
from octopi.position import Anchor
from tests.browser.tools import JavaScriptError, NodePeer

PARTITIONS = st.integers(0, 2).map(PartitionId)
CLAIMS = st.tuples(PARTITIONS, st.integers(1, 5).map(Claim)).map(list)
MANY = st.lists(CLAIMS, max_size=3)
GROUP_STEP = st.one_of(
    st.just(["joining"]),
    st.tuples(st.just("assigned"), st.just("it"), MANY, MANY).map(list),
    CLAIMS.map(lambda claim: ["finished", *claim]),
    CLAIMS.map(lambda claim: ["lost", *claim]),
    st.just(["expired"]),
)


def told(effect: GroupEffect) -> dict[str, Any]:
    """The effect as octopi.js has it."""
    match effect:
        case BeginLog(partition, claim):
            return {"do": "begin", "partition": partition, "claim": claim}
        case FinishLog(partition, claim):
            return {"do": "finish", "partition": partition, "claim": claim}
        case AbandonLog(partition, claim):
            return {"do": "abandon", "partition": partition, "claim": claim}
        case ReportReleased(claims):
            return {"do": "report", "claims": [list(one) for one in claims]}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["", "ann"]), st.lists(GROUP_STEP, max_size=15))
def test_claims_are_taken_and_given_back_alike(
    node: NodePeer, member: str, steps: list[list[Any]]
) -> None:
    session = GroupSession(MemberId(member) if member else None)
    expected: list[Any] = []
    for step, *rest in steps:
        effects: list[Any]
        match step:
            case "joining":
                effects = [list(one) for one in session.joining()]
            case "assigned":
                effects = [told(one) for one in session.assigned(*rest)]
            case _:
                effects = [told(one) for one in getattr(session, step)(*rest)]
        expected.append([effects, [list(one) for one in session.held], session.member])
    assert node.ask("groupSession", {"member": member, "steps": steps}) == expected


ANCHORS = st.sampled_from(["", "1-0", "2-30.1-0"])
LOSSES = st.one_of(st.none(), st.sampled_from([[0, 10], [0, 20], [5, 20]]))

# Times are multiples of 7 ms, so no bound is met exactly: seconds as fractions would round.
MARK_STEP = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([7, 35, 105, 231, 525, 1_050])).map(list),
    st.tuples(st.just("mark"), st.integers(0, 50), ANCHORS).map(list),
    st.tuples(st.just("attached"), st.integers(0, 50), ANCHORS).map(list),
    st.tuples(st.just("isSetBack"), st.integers(0, 50), LOSSES).map(list),
    st.tuples(st.just("acknowledged"), st.integers(1, 12)).map(list),
    st.tuples(st.just("want"), st.booleans()).map(list),
    st.sampled_from(
        [["disconnected"], ["flush"], ["commit"], ["tick"], ["attaching"], ["beginAgain"]]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(MARK_STEP, max_size=25))
def test_marks_are_sent_and_believed_alike(node: NodePeer, tail: list[list[Any]]) -> None:
    steps = [["attaching"], *tail]
    marks = MarkSession(1.0)
    now_ms = 100_000
    expected = []
    for step, *rest in steps:
        sent: list[SendMark] = []
        now = now_ms / 1000
        match step:
            case "pass":
                now_ms += rest[0]
            case "want":
                marks.is_wanted = rest[0]
            case "attached" | "mark":
                sent = getattr(marks, step)(Offset(rest[0]), now, Anchor(rest[1]))
            case "isSetBack":
                loss = None if rest[1] is None else (Offset(rest[1][0]), Offset(rest[1][1]))
                if marks.is_set_back(Offset(rest[0]), loss):
                    sent = [SendMark(Offset(-1), None)]
            case "beginAgain":
                marks.begin_again()
            case "acknowledged":
                marks.acknowledged(rest[0])
            case "disconnected":
                marks.disconnected()
            case _:
                sent = getattr(marks, step)(now) or []
        due_at = marks.due_at()
        expected.append(
            [
                [[one.offset, one.acknowledge, one.anchor] for one in sent],
                [
                    marks.is_attached,
                    marks.start,
                    marks.marked,
                    marks.confirmed,
                    marks.is_settled,
                    marks.may_hand_out(now_ms / 1000),
                    None if due_at in {None, float("-inf")} else pytest.approx(due_at * 1000),
                ],
            ]
        )
    assert node.ask("markSession", steps) == expected


def test_what_ends_a_session_has_the_same_remedy(node: NodePeer) -> None:
    found = node.ask("remedies")
    joins = {
        JoinRemedy.JOIN_AGAIN: "again",
        JoinRemedy.START_OVER: "start over",
        JoinRemedy.STOP: "stop",
    }
    attaches = {
        AttachRemedy.ATTACH_AGAIN: "again",
        AttachRemedy.BEGIN_AGAIN: "begin",
        AttachRemedy.LOST: "lost",
        AttachRemedy.STOP: "stop",
    }
    for status, meaning in STATUS_MEANINGS.items():
        if meaning.look_up:
            continue  # a broker's is not_ready for octopi.js, and the register's is final
        error = refused(status, "")
        expected = [joins[join_remedy(error)], attaches[attach_remedy(error)]]
        assert found[status.name.lower()] == expected, status
    for code in ("unreachable", "connection_lost"):
        assert found[code] == ["again", "again"]
    assert found["protocol"] == ["stop", "stop"]


def test_options_have_the_same_defaults(node: NodePeer) -> None:
    found = node.ask("subscriptionOptions", {"name": "billing"})
    assert found == attrs.asdict(SubscriptionOptions())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "~a"}, "name"),
        ({"name": "a\0"}, "name"),
        ({"name": ".."}, "name"),
        ({"name": "ü"}, "name"),
        ({"name": "a" * 201}, "name"),
        ({"name": 7}, "name"),
        ({"name": "a", "member": "b c"}, "member"),
        ({"name": "a", "mode": "many"}, "mode"),
        ({"name": "a", "create": "yes"}, "create"),
        ({"name": "a", "start": "now"}, "start"),
        ({"name": "a", "mark": "never"}, "mark"),
        ({"name": "a", "onGap": "fail"}, "onGap"),
        ({"name": "a", "takeOver": "no"}, "takeOver"),
        ({"name": "a", "sessionTimeout": 1.5}, "sessionTimeout"),
        ({"name": "a", "releaseTimeout": -1}, "releaseTimeout"),
        ({"name": "a", "expires": "never"}, "expires"),
        ({"name": "a", "joinTimeout": None}, "joinTimeout"),
        ({"name": "a", "window": 0}, "window"),
    ],
)
def test_an_option_that_cannot_be_is_named(
    node: NodePeer, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(JavaScriptError, match=f"^invalid_option: {named} is "):
        node.ask("subscriptionOptions", options)
