"""octopi.js decides about claims, marks and queues as the Python client does, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st

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
from octopi.clients.subscribing.queue_answers import (
    QueueEffect,
    QueueRemedy,
    SendSettle,
    queue_remedy,
)
from octopi.clients.subscribing.queue_session import QueueSession
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
def test_both_clients_take_and_release_claims_alike(
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
def test_both_clients_send_and_confirm_marks_alike(node: NodePeer, tail: list[list[Any]]) -> None:
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


# --- queues ------------------------------------------------------------------------------

KEYS = st.sampled_from([None, "a", "b"])
PLACES = st.integers(0, 20)
SOME_PLACES = st.lists(PLACES, max_size=3)


def deal_step(messages: Iterable[tuple[int, int, int, str | None]]) -> list[Any]:
    """Messages that the leader deals: offset, attempt, size in bytes and key of each."""
    by_offset = {offset: (offset, *others) for offset, *others in messages}
    return ["dealt", *([list(column) for column in zip(*by_offset.values(), strict=True)])]


DEAL_STEP = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 4), st.sampled_from([10, 100, 400]), KEYS),
    min_size=1,
    max_size=6,
).map(deal_step)
SINGLE_STEP = st.one_of(
    DEAL_STEP,
    DEAL_STEP,
    st.sampled_from([["take"], ["take"], ["take"], ["takeAll"], ["tick"], ["tick"], ["confirm"]]),
    st.sampled_from([["take"], ["flush"], ["attach"], ["disconnected"], ["attaching"]]),
    st.tuples(st.just("acknowledge"), SOME_PLACES).map(list),
    st.tuples(st.just("release"), SOME_PLACES, st.sampled_from([0, 500])).map(list),
    st.tuples(st.just("reject"), PLACES, st.sampled_from(["", "no such order"])).map(list),
    st.tuples(st.just("extend"), PLACES).map(list),
    st.tuples(st.just("settled"), st.integers(0, 4), st.lists(st.integers(0, 12), max_size=3)).map(
        list
    ),
    st.tuples(st.just("pass"), st.sampled_from([7, 35, 105, 175, 350, 700, 1_050])).map(list),
)
IDLE = [["pass", 350], ["tick"]] * 4
"""The page does nothing for an ack timeout, though its timers run."""
FROZEN = [["pass", 1_050], ["take"]]
"""Nothing runs for an ack timeout."""
QUEUE_STEPS = st.lists(
    st.one_of(
        *([SINGLE_STEP.map(lambda step: [step])] * 10), st.sampled_from([IDLE, FROZEN, IDLE[:4]])
    ),
    min_size=10,
    max_size=40,
).map(lambda groups: [step for group in groups for step in group])
FIRST_DEAL = deal_step([(place, 1, 100, "ab"[place % 2]) for place in range(6)])
DEALT_AGAIN = deal_step([(2, 2, 100, "a")])
MANY_DEALT = deal_step([(place, 1, 1, None) for place in range(2_500)])


def told_to_leader(effect: QueueEffect) -> dict[str, Any]:
    """The effect as octopi.js has it."""
    if not isinstance(effect, SendSettle):
        return {"do": "credit", "messages": effect.messages, "bytes": effect.size_bytes}
    lists = {
        name: [list(one) for one in getattr(effect, name)]
        for name in ("acknowledged", "released", "rejected", "extended")
    }
    return {"do": "settle", **lists, "confirm": effect.confirm}


def queue_walk(prefetch: int, *, is_ordered: bool, steps: list[list[Any]]) -> list[Any]:
    """What the Python session decides at each step."""
    session = QueueSession(1.0, prefetch, 1_000, is_ordered=is_ordered)
    hands: list[Any] = []
    now_ms = 100_000
    seen: list[Any] = []
    for step, *rest in steps:
        now = now_ms / 1000
        number: list[int] = []
        sent: list[QueueEffect] = []
        match step:
            case "pass":
                now_ms += rest[0]
            case "attaching":
                sent = [session.attaching()]
            case "attach":
                sent = [session.attaching()]
                session.attached()
            case "disconnected":
                session.disconnected()
            case "dealt":
                if session.is_attached:
                    keys = [None if one is None else one.encode() for one in rest[3]]
                    offsets, attempts, sizes, _ = rest
                    session.dealt(offsets, attempts, sizes, now, keys)
            case "take":
                hands += [one for one in [session.take(now)] if one is not None]
            case "takeAll":
                hands += session.take_all(now)
            case "acknowledge" | "release":
                chosen = [hands[one % len(hands)] for one in rest[0]] if hands else []
                sent = getattr(session, step)(chosen, *rest[1:], now)
            case "reject" | "extend":
                if hands:
                    chosen = hands[rest[0] % len(hands)]
                    sent = getattr(session, step)(chosen, *rest[1:], now)
            case "confirm":
                asked, sent = session.confirm(now)
                number = [asked]
            case "settled":
                sent = session.settled(rest[0], rest[1], now)
            case _:
                sent = getattr(session, step)(now)
        session.check_invariants()
        due_at = session.due_at()
        seen.append(
            [
                [*number, *map(told_to_leader, sent)],
                [
                    session.is_attached,
                    session.open_count,
                    session.is_resuming,
                    session.stale_count,
                    session.is_confirmed(1),
                    session.is_confirmed(3),
                    None if due_at in {None, float("-inf")} else pytest.approx(due_at * 1000),
                ],
                [
                    [
                        one.offset,
                        one.attempt,
                        one.is_void,
                        one.is_answered,
                        pytest.approx(session.deadline(one) * 1000),
                    ]
                    for one in hands
                ],
                [list(one) for one in session.seen],
            ]
        )
    return seen


@settings(max_examples=500, deadline=None)
@example(100, True, [*[["take"]] * 3, ["acknowledge", [0]], DEALT_AGAIN, ["take"], ["take"]])
@given(st.sampled_from([1, 2, 5, 100]), st.booleans(), QUEUE_STEPS)
def test_both_clients_take_and_answer_messages_of_queues_alike(
    node: NodePeer, prefetch: int, is_ordered: bool, tail: list[list[Any]]
) -> None:
    steps = [["attach"], FIRST_DEAL, *tail]
    expected = queue_walk(prefetch, is_ordered=is_ordered, steps=steps)
    asked = {"prefetch": prefetch, "isOrdered": is_ordered, "steps": steps}
    assert node.ask("queueSession", asked) == expected


def test_both_clients_split_many_answers_alike(node: NodePeer) -> None:
    places = list(range(2_500))
    steps = [
        ["attach"],
        MANY_DEALT,
        ["takeAll"],
        ["acknowledge", places[:3]],
        ["reject", 3, "no"],
        ["release", places[4:2_200], 0],
        ["extend", 2_300],
        ["confirm"],
        ["acknowledge", places],
        ["flush"],
        ["disconnected"],
    ]
    expected = queue_walk(5_000, is_ordered=False, steps=steps)
    assert [len(effects) for effects, *_ in expected].count(0) < 8, "it was split somewhere"
    asked = {"prefetch": 5_000, "isOrdered": False, "steps": steps}
    assert node.ask("queueSession", asked) == expected


def test_both_clients_react_alike_to_each_status_that_ends_a_session(node: NodePeer) -> None:
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
    queues = {QueueRemedy.ATTACH_AGAIN: "again", QueueRemedy.STOP: "stop"}
    for status, meaning in STATUS_MEANINGS.items():
        if meaning.look_up:
            continue  # a broker's is not_ready for octopi.js, and the register's is final
        error = refused(status, "")
        expected = [
            joins[join_remedy(error)],
            attaches[attach_remedy(error)],
            queues[queue_remedy(error)],
        ]
        assert found[status.name.lower()] == expected, status
    for code in ("unreachable", "connection_lost"):
        assert found[code] == ["again"] * 3
    assert found["protocol"] == ["stop"] * 3


def test_options_have_the_same_defaults_in_both_clients(node: NodePeer) -> None:
    found = node.ask("subscriptionOptions", {"name": "billing"})
    assert found == attrs.asdict(SubscriptionOptions())
    queue = {"name": "billing", "mode": "shared", "attempts": None, "ackTimeout": 1_000}
    found = node.ask("subscriptionOptions", {**queue, "windowMessages": 7})
    assert found == attrs.asdict(SubscriptionOptions(attempts=None, ack_timeout_ms=1_000, window=7))


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
        ({"name": "a", "mode": "shared", "attempts": 0}, "attempts"),
        ({"name": "a", "mode": "shared", "ackTimeout": "30s"}, "ackTimeout"),
        ({"name": "a", "mode": "shared", "prefetch": 0}, "prefetch"),
        ({"name": "a", "mode": "shared", "prefetch": 10_001}, "prefetch"),
        ({"name": "a", "mode": "shared", "windowMessages": 1.5}, "windowMessages"),
        ({"name": "a", "mode": "shared", "takeOver": False}, "takeOver"),
        ({"name": "a", "mode": "key_shared", "mark": "auto"}, "mark"),
        ({"name": "a", "mode": "shared", "onGap": "skip"}, "onGap"),
        ({"name": "a", "mode": "shared", "releaseTimeout": 1_000}, "releaseTimeout"),
        ({"name": "a", "mode": "shared", "window": 1_000}, "window"),
        ({"name": "a", "attempts": 5}, "attempts"),
        ({"name": "a", "mode": "failover", "ackTimeout": 5_000}, "ackTimeout"),
        ({"name": "a", "prefetch": 5}, "prefetch"),
        ({"name": "a", "windowMessages": 5}, "windowMessages"),
    ],
)
def test_an_invalid_option_is_named(node: NodePeer, options: dict[str, Any], named: str) -> None:
    with pytest.raises(JavaScriptError, match=f"^invalid_option: {named} is "):
        node.ask("subscriptionOptions", options)
