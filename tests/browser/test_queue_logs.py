"""One log of a queue in octopi.js, with a leader that the test plays."""

from __future__ import annotations

from typing import Any

import pytest

from octopi.errors import Status
from octopi.identifiers import ProducerEpoch, ProducerId, Sequence
from octopi.record import BatchBuilder
from tests.browser.tools import NodePeer

PRODUCER = ProducerId(b"p" * 16)


def record(number: int) -> bytes:
    batch = BatchBuilder()
    batch.add(b"%d" % number, timestamp_ms=1, key=b"k\xff")
    return batch.encode(PRODUCER, ProducerEpoch(0), Sequence(number))


SIZE = len(record(0))


def deal(*numbers: int, attempt: int = 1) -> list[Any]:
    """The leader deals these messages, of a log in which each is as long as the others."""
    records = b"".join(record(one) for one in numbers)
    return ["deal", [one * SIZE for one in numbers], [attempt] * len(numbers), records.hex()]


def taken(number: int, attempt: int = 1) -> list[Any]:
    """What the page sees of one."""
    return [str(number), number * SIZE, attempt, 3]


def settle(**lists: Any) -> dict[str, Any]:  # noqa: ANN401  # lists of several kinds
    usual: dict[str, Any] = {
        "acknowledged": [],
        "attempts": [],
        "released": [],
        "rejected": [],
        "extended": [],
    }
    return {
        "type": "settle",
        "request": 7,
        **usual,
        "confirm": False,
        "acknowledge": 0,
        **lists,
    }


def play(node: NodePeer, *steps: list[Any], **how: object) -> Any:  # noqa: ANN401
    """What the log made of *steps*; its member has credit for 10 messages."""
    return node.ask("dealtLog", {"steps": steps, **how})


def test_a_member_attaches_with_credit_and_takes_messages_at_any_offsets(node: NodePeer) -> None:
    found = play(node, ["attached"], ["take"], deal(1, 2, 5, 0), *[["take"]] * 5)
    assert found["asked"] == [
        {
            "type": "attach",
            "request": 7,
            "topic": "orders",
            "partition": 3,
            "sid": "0" * 16,
            "member": "w1",
            "claim": 0,
            "credit_messages": 10,
            "credit_bytes": 1_000_000,
        }
    ]
    assert found["seen"][3:] == [*map(taken, (1, 2, 5, 0)), None]
    assert found["seen"][1] is None
    gone = {"type": "detach", "request": 7, "seen": [0, 60, 120, 300], "attempts": [1] * 4}
    assert found["posted"] == [gone]


def test_a_member_that_leaves_names_the_messages_that_the_page_was_given(node: NodePeer) -> None:
    steps = [["attached"], deal(0, 1, 2), ["take"], ["take"], ["answer", 0, "acknowledge"]]
    found = play(node, *steps, ["close"])
    gone = {"type": "detach", "request": 7, "seen": [60], "attempts": [1]}
    assert found["posted"] == [settle(acknowledged=[0], attempts=[1]), gone]


def test_answers_to_messages_have_all_fields_that_the_leader_needs(node: NodePeer) -> None:
    found = play(
        node,
        ["attached"],
        deal(*range(9)),
        *[["take"]] * 5,
        ["answer", 0, "acknowledge"],
        ["posted"],
        ["answer", 1, "release", 1_500],
        ["answer", 2, "reject", "why \ud800not"],
        ["answer", 3, "extend"],
        ["answer", 4, "release", 12 * 3600 * 1000 + 1],
        ["answer", 4, "release", 0.5],
        ["answer", 4, "reject", "é" * 501],
        ["answered", 4],
        ["answered", 3],
        ["answered", 2],
        ["close"],
    )
    assert found["seen"][8] == [settle(acknowledged=[0], attempts=[1])]
    assert found["seen"][12:15] == ["invalid_option"] * 3
    assert found["seen"][15:18] == [False, False, True]
    rejection = {"offset": 2 * SIZE, "attempt": 1, "reason": "why \ufffdnot"}
    assert found["posted"][0] == settle(
        released=[{"offset": SIZE, "attempt": 1, "delay_ms": 1_500}],
        rejected=[rejection],
        extended=[{"offset": 3 * SIZE, "attempt": 1}],
    )


def test_the_next_batch_acknowledges_the_messages_of_the_last_that_have_no_answer_yet(
    node: NodePeer,
) -> None:
    found = play(
        node,
        ["batch"],
        ["attached"],
        deal(0, 1, 2),
        ["batch"],
        deal(3, 4),
        ["batch", 70],
        ["close"],
    )
    assert [found["seen"][place] for place in (0, 3, 5)] == [None, [3, True], [2, True]]
    settles = [one for one in found["posted"] if one["type"] == "settle"]
    assert [one["offset"] for each in settles for one in each["rejected"]] == [0, 3 * SIZE]
    assert [one for each in settles for one in each["acknowledged"]] == [SIZE, 2 * SIZE]
    assert [one for each in settles for one in each["released"]] == [
        {"offset": 4 * SIZE, "attempt": 1, "delay_ms": 70}
    ]


def test_a_commit_waits_for_the_leader(node: NodePeer) -> None:
    steps: list[Any] = [
        ["attached"],
        deal(0),
        ["take"],
        ["answer", 0, "acknowledge"],
        ["commit"],
        ["posted"],
    ]
    answer = {"type": "settled", "acknowledge": 1, "stale": [0]}
    found = play(node, *steps, ["hear", answer], ["stale"])
    assert settle(confirm=True, acknowledge=1) in found["seen"][5]
    assert (found["told"], found["seen"][-1]) == (["committed"], 1)


def test_messages_of_a_key_wait_for_each_other_where_they_are_ordered(node: NodePeer) -> None:
    steps: list[Any] = [
        ["attached"],
        deal(0, 1),
        ["take"],
        ["take"],
        ["answer", 0, "acknowledge"],
        ["take"],
    ]
    found = play(node, *steps, isOrdered=True)
    assert [found["seen"][place] for place in (2, 3, 5)] == [taken(0), None, taken(1)]


def test_a_message_that_arrives_after_a_pause_of_the_program_is_not_handed_out(
    node: NodePeer,
) -> None:
    pause: list[Any] = [["attached"], ["pass", 20_000], deal(0), ["take"], ["again"], ["attached"]]
    found = play(node, *pause, deal(0, attempt=2), ["take"])
    assert (found["seen"][3], found["seen"][-1]) == (None, taken(0, 2))
    assert len(found["asked"]) == 2


@pytest.mark.parametrize("status", [Status.MEMBER_FENCED, Status.NOT_LEADER, Status.LOG_CORRUPT])
def test_a_member_attaches_again_and_its_open_messages_count_no_more(
    node: NodePeer, status: Status
) -> None:
    steps: list[Any] = [
        ["attached"],
        deal(0, 1),
        ["take"],
        ["end", int(status)],
        ["attached"],
        ["take"],
    ]
    later: list[Any] = [["answer", 0, "acknowledge"], ["stale"], deal(0, attempt=2), ["take"]]
    found = play(node, *steps, *later)
    assert found["seen"][5:] == [None, None, 1, None, taken(0, 2)]
    assert found["error"] is None


def test_a_loss_is_reported_once(node: NodePeer) -> None:
    removed = {"mark": 100, "lost_from": 100, "lost_to": 300, "log_start": 300}
    forked = {"mark": 400, "lost_from": 400, "lost_to": 500, "log_start": 300}
    fenced = ["end", int(Status.MEMBER_FENCED)]
    found = play(
        node, ["attached", removed], fenced, ["attached", removed], fenced, ["attached", forked]
    )
    place = {"topic": "orders", "partition": 3}
    assert found["told"] == [
        ["gap", {**place, "wanted": 100, "availableFrom": 300}],
        ["fork", {**place, "offset": 400, "readUntil": 500}],
    ]


def test_a_mark_that_the_log_has_lost_is_restored(node: NodePeer) -> None:
    lost = ["end", int(Status.UNKNOWN_SUBSCRIPTION)]
    found = play(node, ["attached"], lost, ["attached"], deal(0), ["take"])
    assert found["told"][0] == "restored"
    assert found["told"][1][0] == "fork"
    assert found["seen"][-1] == taken(0)
    found = play(node, ["attached"], lost, deleted=True)
    assert found["error"] == "unknown_subscription"


TWICE = (record(0) + record(1)).hex()


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([deal(0)], "protocol"),
        ([["attached"], ["deal", [0, SIZE], [1], TWICE]], "protocol"),
        ([["attached"], ["deal", [0, SIZE, 2 * SIZE], [1] * 3, TWICE]], "protocol"),
        ([["attached"], ["deal", [0], [1], TWICE]], "protocol"),
        ([["attached"], ["deal", [0], [1], TWICE[:-2]]], "protocol"),
        ([["attached"], ["deal", [0], [1], record(0).hex()[:-2] + "ff"]], "record_damaged"),
        ([["attached"], ["hear", {"type": "marked", "acknowledge": 1}]], "protocol"),
    ],
)
def test_a_message_against_the_protocol_ends_the_log(
    node: NodePeer, steps: list[list[Any]], code: str
) -> None:
    first = [] if steps[0][0] == "attached" else [["again", 1]]
    found = play(node, *first, *steps, ["ended"], ["take"])
    assert found["error"] == code
    assert found["seen"][-1] is None
