"""A member of octopi.js makes good what all replicas lost of its subscription."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.tools import NodePeer


def definition(**changes: object) -> dict[str, object]:
    """What the coordinator knows of the subscription."""
    return {
        "sid": "s1",
        "topic": "orders",
        "topic_id": "0" * 16,
        "name": "billing",
        "mode": "failover",
        "partitions": [0, 1],
        "options": {},
        "start": "latest",
        "state": "creating",
        **changes,
    }


def joined(node: NodePeer, answers: list[str | None], **found: object) -> list[str]:
    """What a member does whose attempts to join are answered so."""
    seen: dict[str, Any] = node.ask(
        "membership", {"answers": answers, "found": definition(**found)}
    )
    assert seen["why"] == "forbidden"
    done: list[str] = seen["done"]
    return done


FINISHES = [
    "describe_subscription 0",
    "open_marks 0 earliest",
    "open_marks 1 earliest",
    "finish_subscription 0",
]


def test_a_member_finishes_a_creation_whose_end_the_coordinator_has_lost(node: NodePeer) -> None:
    done = joined(node, [None, "not_ready"])
    assert done == ["join_group", *FINISHES, "join_group", *FINISHES, "join_group"]


def test_a_member_of_a_queue_has_the_topic_for_dead_letters_made_again(node: NodePeer) -> None:
    made = ["create_topic orders.billing.dead"]
    done = joined(node, [None], mode="shared")
    assert done == ["join_group", *FINISHES[:3], *made, FINISHES[3], "join_group"]


def test_a_program_that_is_no_member_yet_finishes_no_creation_of_others(node: NodePeer) -> None:
    assert joined(node, ["not_ready", "not_ready"]) == ["join_group"] * 3


@pytest.mark.parametrize("found", [{"state": "ready"}, {"sid": "s2"}])
def test_a_member_opens_no_marks_where_nothing_is_to_be_finished(
    node: NodePeer, found: dict[str, str]
) -> None:
    assert joined(node, [None], **found) == ["join_group", FINISHES[0], "join_group"]


def test_a_lost_mark_is_restored_and_the_log_is_read_from_there(node: NodePeer) -> None:
    seen = node.ask("lost mark", {"deleted": False})
    assert seen["error"] is None
    assert seen["told"] == ["attach", "restored", "attach", ["fork", 0, 0], ["subscribe", 0]]


def test_the_mark_of_a_subscription_that_was_deleted_is_not_restored(node: NodePeer) -> None:
    seen = node.ask("lost mark", {"deleted": True})
    assert seen == {"told": ["attach"], "error": "unknown_subscription"}
