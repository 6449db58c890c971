"""The checker of members finds each kind of fault, and none in a history without any."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chaos.subscriptions.history import Confirmation, Delivery, Failure, History, Settlement


def delivery(
    offset: int, at: float, pid: int = 1, *, done_after: float | None = 0.001, key: str = "k"
) -> Delivery:
    done_at = None if done_after is None else at + done_after
    return Delivery(0, offset, f"m{offset}", key, pid, at, done_at)


def judge(
    *deliveries: Delivery,
    confirmed: tuple[Confirmation, ...] = (),
    failed: tuple[Failure, ...] = (),
) -> list[str]:
    history = History("failover", list(deliveries), list(confirmed))
    return history.judge(["m0", "m10"], list(failed))


def test_messages_that_are_each_processed_once_are_no_fault() -> None:
    assert judge(delivery(0, 1.0), delivery(10, 1.1)) == []


def test_a_message_that_no_member_processed_is_reported_as_passed_over() -> None:
    [fault] = judge(delivery(0, 1.0), delivery(10, 1.1, done_after=None))
    assert "1 messages passed over: m10" in fault


def test_a_message_that_comes_again_after_it_was_confirmed_is_a_fault() -> None:
    killed = Failure("member killed", 1.05, 1.05, pid=1)
    faults = judge(
        delivery(0, 1.0),
        delivery(0, 1.2, pid=2),
        delivery(10, 1.3, pid=2),
        confirmed=(Confirmation(0, 10, 1.1),),
        failed=(killed,),
    )
    assert len(faults) == 1
    assert "although all below 10 was confirmed" in faults[0]


def test_a_message_that_comes_again_after_its_acknowledgement_was_confirmed_is_a_fault() -> None:
    deliveries = [delivery(0, 1.0), delivery(10, 1.2), delivery(0, 1.3, pid=2)]
    killed = Failure("member killed", 1.25, 1.25, pid=1)
    history = History("shared", deliveries, [], settlements=[Settlement(1, 1.1)])
    [fault] = history.judge(["m0", "m10"], [killed])
    assert fault == "shared: m0 at 0/0 was handed out although its acknowledgement was confirmed"


def test_a_later_confirmation_says_nothing_of_an_acknowledgement_that_may_not_count() -> None:
    deliveries = [delivery(0, 1.0), delivery(10, 1.2), delivery(0, 1.5, pid=2)]
    killed = Failure("broker killed", 1.0, 1.4)
    asked = [Settlement(1, 1.1, is_certain=False), Settlement(1, 1.3)]
    history = History("shared", deliveries, [], settlements=asked)
    assert history.judge(["m0", "m10"], [killed]) == []


def test_a_message_that_overtakes_an_earlier_one_of_its_key_is_a_fault() -> None:
    early = delivery(10, 1.0), delivery(0, 1.1)
    [fault] = judge(*early)
    assert fault == (
        "failover: m10 at 0/10 was handed out before the one at 0 of its key was processed"
    )
    assert History("shared", list(early), []).judge(["m0", "m10"], []) == []
    assert judge(delivery(10, 1.0), delivery(0, 1.1, key="other")) == []


def test_a_message_may_come_again_when_its_member_was_killed_just_after_it() -> None:
    again = delivery(0, 1.0), delivery(0, 9.0, pid=2), delivery(10, 9.1, pid=2)
    assert judge(*again, failed=(Failure("member killed", 1.5, 1.5, pid=1),)) == []


def test_a_message_may_not_come_again_when_another_member_was_killed() -> None:
    again = delivery(0, 1.0), delivery(0, 9.0, pid=2), delivery(10, 9.1, pid=2)
    [fault] = judge(*again, failed=(Failure("member killed", 1.5, 1.5, pid=3),))
    assert "no failure explains it" in fault


def test_a_message_may_not_come_again_long_after_it_was_marked() -> None:
    again = delivery(0, 1.0), delivery(0, 9.0, pid=2), delivery(10, 9.1, pid=2)
    [fault] = judge(*again, failed=(Failure("broker killed", 8.0, 9.0),))
    assert "no failure explains it" in fault


def test_a_message_may_come_again_when_its_member_was_fenced_for_a_pause() -> None:
    deliveries = [delivery(0, 1.0), delivery(0, 1.2, pid=2), delivery(10, 1.3, pid=2)]
    fence = Failure("member fenced", 1.1, 1.1, pid=1)
    paused = Failure("member paused", 0.0, 0.9, pid=1)
    history = History("failover", deliveries, [], [fence])
    assert history.judge(["m0", "m10"], [paused]) == []
    [fault] = history.judge(["m0", "m10"], [])
    assert fault == "failover: the member 1 was fenced, and no failure explains it"


def test_a_history_is_read_from_what_members_wrote(tmp_path: Path) -> None:
    place = {"partition": 0, "offset": 0, "value": "m0", "key": "k", "pid": 7}
    lines = [
        {"do": "handed", "at": 1.0, **place},
        {"do": "done", "at": 1.1, **place},
        {"do": "confirmed", "at": 1.2, "partition": 0, "offset": 10, "pid": 7},
        {"do": "handed", "at": 1.3, **place, "offset": 10, "value": "m10"},
        {"do": "fenced", "at": 1.4, "why": "another member has it", "pid": 7},
        {"do": "unsettled", "at": 1.5, "pid": 7},
        {"do": "settled", "at": 1.6, "pid": 7},
        {"do": "error", "at": 1.7, "why": "ConnectionLostError()", "passes": True, "pid": 7},
    ]
    file = tmp_path / "member"
    file.write_text("".join(json.dumps(one) + "\n" for one in lines))
    history = History.read("failover", [file])
    assert history.deliveries == [
        Delivery(0, 0, "m0", "k", 7, 1.0, 1.1),
        Delivery(0, 10, "m10", "k", 7, 1.3, None),
    ]
    assert history.confirmations == [Confirmation(0, 10, 1.2)]
    assert history.fences == [Failure("member fenced", 1.4, 1.4, 7)]
    certain = [one.is_certain for one in history.settlements]
    assert certain == [False, True, False]
