"""What the leader of a partition decides about durable subscriptions, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import attrs
import pytest

from octopi.errors import Status
from octopi.identifiers import (
    Claim,
    MemberId,
    Offset,
    PartitionId,
    SubscriptionId,
    SubscriptionName,
)
from octopi.limits import (
    CLAIM_STEP_MAX,
    COUNTED_MAX,
    MARK_BYTES_PER_S,
    MARKS_COUNT,
    MEMBERS_PER_SUBSCRIPTION_MAX,
    RESET_WAIT_S,
    SKIPPED_RANGES_MAX,
    SUBSCRIPTIONS_PER_PARTITION_MAX,
)
from octopi.model import SubscriptionMode, SubscriptionOptions, SubscriptionStart
from octopi.subscriptions import coordinated, definition_fault, effects as e, log_marks
from octopi.subscriptions.entries import LostSpan, StoredSubscriptions
from octopi.subscriptions.partition_subscriptions import PartitionSubscriptions
from tests.subscriptions.group_world import NAME, TOPIC_ID, SteadyLog
from tests.subscriptions.leader import RecordingLeader

OTHER = SubscriptionId("5f0c2a1b5f0c2a1b")

# --- life --------------------------------------------------------------------------------


def test_a_subscription_is_created_finished_described_and_listed() -> None:
    leader = RecordingLeader()
    created = leader.create()
    definition = leader.last(created, e.TellDescription).definition
    assert (definition.state, definition.name) == ("creating", NAME)
    assert leader.refusal(leader.join(definition.sid)) is Status.NOT_READY
    leader.perform(leader.machine.finish_subscription(1001, definition.sid))
    leader.perform(leader.machine.describe_subscription(1002, TOPIC_ID, NAME))
    assert leader.last(1002, e.TellDescription).definition.state == "ready"
    leader.create("accounting")
    leader.perform(leader.machine.list_subscriptions(1003, TOPIC_ID, "", 10))
    leader.perform(leader.machine.list_subscriptions(1004, TOPIC_ID, "accounting", 10))
    assert [one.name for one in leader.last(1003, e.TellSubscriptions).definitions] == [
        "accounting",
        "billing",
    ]
    assert [one.name for one in leader.last(1004, e.TellSubscriptions).definitions] == ["billing"]


def test_an_answer_waits_until_the_decision_that_it_tells_is_committed() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    effects = leader.machine.attach(1001, sid, MemberId("m"), Claim(1), leader.now)
    leader.perform(effects, commit=False)
    assert 1001 not in leader.told
    leader.perform([])
    assert leader.last(1001, e.TellAttached).mark == 0


@pytest.mark.parametrize(
    ("create", "options", "mode", "status"),
    [
        ("create", SubscriptionOptions(), "failover", Status.SUBSCRIPTION_EXISTS),
        ("create", SubscriptionOptions(), "exclusive", Status.SUBSCRIPTION_EXISTS),
        ("attach", SubscriptionOptions(), "exclusive", Status.WRONG_MODE),
        (
            "create_or_attach",
            SubscriptionOptions(expires_ms=None),
            "failover",
            Status.SUBSCRIPTION_EXISTS,
        ),
    ],
)
def test_creating_a_subscription_with_other_options_is_refused(
    create: str, options: SubscriptionOptions, mode: str, status: Status
) -> None:
    leader = RecordingLeader()
    leader.ready()
    refused = leader.create(create=create, options=options, mode=mode)
    assert leader.refusal(refused) is status


def test_a_refused_creation_names_the_option_that_differs() -> None:
    leader = RecordingLeader()
    leader.ready()
    other = SubscriptionOptions(mark_interval_ms=1000)
    refused = leader.create(create="create_or_attach", options=other)
    assert "mark_interval_ms 250, not 1000" in leader.last(refused, e.TellRefused).reason


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"name": "a/b"}, Status.INVALID_OPTION),
        ({"mode": "shared", "partitions": tuple(range(65))}, Status.INVALID_OPTION),
        ({"options": SubscriptionOptions(window=5)}, Status.INVALID_OPTION),
        ({"mode": "any"}, Status.INVALID_OPTION),
        ({"partitions": ()}, Status.INVALID_OPTION),
        ({"partitions": (0, 0)}, Status.INVALID_OPTION),
        ({"partitions": (1, 0)}, Status.UNKNOWN_PARTITION),
        ({"options": SubscriptionOptions(session_timeout_ms=1)}, Status.INVALID_OPTION),
        ({"create": "make"}, Status.INVALID_OPTION),
        ({"create": "attach"}, Status.UNKNOWN_SUBSCRIPTION),
    ],
)
def test_an_invalid_subscription_can_not_be_created(
    changes: dict[str, object], status: Status
) -> None:
    leader = RecordingLeader()
    refused = leader.create(**changes)  # type: ignore[arg-type]
    assert leader.refusal(refused) is status
    assert leader.committed == {}


def test_creating_again_finds_the_subscription_that_was_begun() -> None:
    leader = RecordingLeader()
    first = leader.last(leader.create(), e.TellDescription).definition.sid
    leader.change()
    for create in ("create", "attach", "create_or_attach"):
        again = leader.last(leader.create(create=create), e.TellDescription)
        assert (again.definition.sid, again.definition.state) == (first, "creating")


def test_a_deleted_subscription_ends_its_members_and_leaves_no_entries() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    joined, attached = leader.join(sid), leader.attach(sid, 1)
    leader.perform(leader.machine.delete_subscription(1001, sid, "begin"))
    assert leader.is_done(1001)
    assert leader.refusal(joined) is Status.UNKNOWN_SUBSCRIPTION
    assert leader.refusal(leader.create(create="create_or_attach")) is Status.SUBSCRIPTION_BUSY
    leader.change()  # it goes on from where it was
    attached = leader.attach(sid, 1)
    leader.perform(leader.machine.delete_marks(1002, sid))
    assert leader.refusal(attached) is Status.UNKNOWN_SUBSCRIPTION
    leader.perform(leader.machine.delete_subscription(1003, sid, "end"))
    leader.perform(leader.machine.delete_subscription(1004, sid, "end"))
    assert all(leader.is_done(one) for one in (1002, 1003, 1004))
    assert leader.committed == {}
    assert leader.last(leader.create(), e.TellDescription).definition.sid != sid


def test_a_mark_that_is_opened_behind_the_deletion_of_its_subscription_is_refused() -> None:
    """As when a member restores a mark that was lost, and the deletion overtakes it."""
    leader = RecordingLeader()
    sid = leader.ready()
    leader.perform(leader.machine.delete_subscription(1001, sid, "begin"))
    leader.perform(leader.machine.delete_marks(1002, sid))
    assert leader.refusal(leader.open_marks(sid)) is Status.UNKNOWN_SUBSCRIPTION
    leader.perform(leader.machine.delete_subscription(1003, sid, "end"))
    assert leader.refusal(leader.open_marks(sid)) is Status.UNKNOWN_SUBSCRIPTION
    assert leader.committed == {}


def test_the_deletion_of_a_mark_that_was_lost_is_remembered_too() -> None:
    leader = RecordingLeader()
    leader.perform(leader.machine.delete_marks(1001, OTHER))
    assert leader.is_done(1001)
    assert leader.refusal(leader.open_marks(OTHER)) is Status.UNKNOWN_SUBSCRIPTION


def test_a_leader_remembers_the_newest_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_marks, "DELETIONS_COUNT", 2)
    leader = RecordingLeader()
    sids = [SubscriptionId(f"{number:016x}") for number in range(3)]
    for sid in (sids[1], sids[0], sids[1], sids[2]):
        leader.perform(leader.machine.delete_marks(leader.session(), sid))
    assert leader.is_done(leader.open_marks(sids[0]))
    for sid in sids[1:]:
        assert leader.refusal(leader.open_marks(sid)) is Status.UNKNOWN_SUBSCRIPTION


def test_an_interrupted_deletion_removes_all_entries_at_its_end() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    leader.join(sid)
    leader.perform(leader.machine.delete_subscription(1001, sid, "begin"), commit=False)
    leader.commit_one()  # the members and assignments are still there
    leader.change()
    leader.perform(leader.machine.delete_marks(1002, sid))
    leader.perform(leader.machine.delete_subscription(1003, sid, "end"))
    assert leader.committed == {}


def test_the_two_steps_of_a_deletion_are_accepted_in_their_order_only() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    leader.perform(leader.machine.delete_subscription(1001, sid, "end"))
    leader.perform(leader.machine.delete_subscription(1002, sid, "now"))
    assert leader.refusal(1001) is leader.refusal(1002) is Status.INVALID_OPTION


def test_a_member_that_attaches_while_its_mark_is_deleted_is_told_the_end_last() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    attached = leader.attach(sid, 1, commit=False)
    leader.perform(leader.machine.delete_marks(1001, sid), commit=False)
    leader.perform([])
    assert [type(one) for one in leader.told[attached]] == [e.TellAttached, e.TellDetached]


def test_a_topic_that_is_removed_takes_its_subscriptions_along() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    joined, attached = leader.join(sid), leader.attach(sid, 1)
    assert leader.machine.topic_ids == {TOPIC_ID}
    leader.perform(leader.machine.topic_removed(TOPIC_ID))
    assert leader.refusal(joined) is leader.refusal(attached) is Status.UNKNOWN_TOPIC
    assert leader.committed == {}
    assert leader.machine.topic_ids == set()


def test_requests_about_a_removed_log_are_refused() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    leader.log = None
    refused = leader.attach(sid, 1)
    assert leader.refusal(refused) is Status.UNKNOWN_TOPIC
    assert leader.refusal(leader.open_marks(OTHER)) is Status.UNKNOWN_TOPIC


def test_an_unused_subscription_expires_and_its_mark_later() -> None:
    leader = RecordingLeader()
    options = SubscriptionOptions(expires_ms=7200_000)
    leader.ready(options=options)
    leader.pass_time(7201)
    assert [key[0] for key in leader.committed] == ["k"]
    leader.pass_time(7200)
    assert leader.committed == {}


def test_a_subscription_with_a_member_never_expires() -> None:
    leader = RecordingLeader()
    sid = leader.ready(options=SubscriptionOptions(expires_ms=60_000))
    joined, attached = leader.join(sid), leader.attach(sid, 1)
    for _ in range(100):
        leader.pass_time(5)
        leader.perform(leader.machine.holding(joined, [], leader.now))
    leader.change()
    leader.pass_time(5)
    assert [key[0] for key in leader.committed] == ["s", "k", "m", "a"]
    assert not any(isinstance(one, e.TellDetached) for one in leader.told[attached])


def test_a_subscription_without_an_expiry_is_kept() -> None:
    leader = RecordingLeader()
    leader.ready(options=SubscriptionOptions(expires_ms=None))
    leader.pass_time(1e9)
    assert [key[0] for key in leader.committed] == ["s", "k"]


def test_a_partition_has_a_bounded_number_of_subscriptions_and_marks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert SUBSCRIPTIONS_PER_PARTITION_MAX == 10_000
    for module in (definition_fault, log_marks):
        monkeypatch.setattr(module, "SUBSCRIPTIONS_PER_PARTITION_MAX", 1)
    leader = RecordingLeader()
    leader.ready()
    assert leader.refusal(leader.create("another")) is Status.TOO_MANY
    assert leader.refusal(leader.open_marks(OTHER)) is Status.TOO_MANY


# --- members -----------------------------------------------------------------------------


def test_logs_are_spread_over_the_members_as_they_come_and_go() -> None:
    leader = RecordingLeader()
    sid = leader.ready(partitions=(0, 1, 2, 3))
    first = leader.join(sid)
    assert leader.logs(first) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    second = leader.join(sid)
    assert leader.logs(second) == []
    revoked = [one.logs for one in leader.told[first] if isinstance(one, e.TellRevoked)]
    assert revoked == [((PartitionId(2), Claim(1)),), ((PartitionId(3), Claim(1)),)]
    released = [(PartitionId(2), Claim(1)), (PartitionId(3), Claim(1))]
    leader.perform(leader.machine.holding(first, released, leader.now))
    assert leader.logs(second) == [(2, 2), (3, 2)]
    leader.perform(leader.machine.leave_group(1001, second, leader.now))
    assert leader.is_done(1001)
    assert leader.logs(first)[4:] == [(2, 3), (3, 3)]


def test_a_log_that_is_not_released_in_time_is_taken() -> None:
    leader = RecordingLeader()
    sid = leader.ready(partitions=(0, 1))
    first, second = leader.join(sid), leader.join(sid)
    for _ in range(4):
        leader.pass_time(3)
        leader.perform(leader.machine.holding(first, [], leader.now))
        leader.perform(leader.machine.holding(second, [], leader.now))
    assert leader.logs(second) == [(1, 2)]


def test_a_silent_member_is_removed() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    first, second = leader.join(sid), leader.join(sid)
    leader.pass_time(5)
    leader.perform(leader.machine.holding(second, [], leader.now))
    leader.pass_time(6)
    assert leader.refusal(first) is Status.UNKNOWN_MEMBER
    assert leader.logs(second) == [(0, 2)]


def test_a_member_that_joins_again_keeps_the_logs_that_it_holds() -> None:
    leader = RecordingLeader()
    sid = leader.ready(partitions=(0, 1))
    first = leader.join(sid)
    member = leader.last(first, e.TellAssigned).member
    leader.change()
    again = leader.join(sid, member, held=((0, 1), (7, 1)))
    assert leader.logs(again) == [(1, 2)]  # it did not hold this one, so it gets a new claim
    revoked = [one.logs for one in leader.told[again] if isinstance(one, e.TellRevoked)]
    assert revoked == [((PartitionId(7), Claim(1)),)]
    leader.change()
    leader.pass_time(11)
    assert leader.refusal(leader.join(sid, member)) is Status.UNKNOWN_MEMBER


def test_a_member_that_joins_elsewhere_ends_its_older_join() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    first = leader.join(sid, "worker", static=True)
    second = leader.join(sid, "worker", static=True)
    assert leader.refusal(first) is Status.MEMBER_FENCED
    assert leader.logs(second) == [(0, 2)]


def test_static_members_restart_without_moving_a_log() -> None:
    leader = RecordingLeader()
    sid = leader.ready(partitions=(0, 1, 2, 3))
    sessions = {name: leader.join(sid, name, static=True) for name in ("one", "two")}
    for told in leader.told[sessions["one"]]:
        if isinstance(told, e.TellRevoked):
            leader.perform(leader.machine.holding(sessions["one"], told.logs, leader.now))
    for name, logs in (("one", {0, 1}), ("two", {2, 3})):
        leader.perform(leader.machine.leave_group(1001, sessions[name], leader.now))
        leader.pass_time(3)
        again = leader.join(sid, name, static=True)
        assert {log for log, _ in leader.logs(again)} == logs
        assert not any(isinstance(one, e.TellRevoked) for one in leader.told[again])


def test_an_exclusive_subscription_has_one_member_until_another_takes_over() -> None:
    leader = RecordingLeader()
    sid = leader.ready(mode=SubscriptionMode.EXCLUSIVE)
    first = leader.join(sid)
    assert leader.refusal(leader.join(sid)) is Status.SUBSCRIPTION_BUSY
    second = leader.join(sid, take_over=True)
    assert leader.refusal(first) is Status.MEMBER_FENCED
    assert leader.logs(second) == [(0, 2)]


@pytest.mark.parametrize(
    ("member", "static", "status"),
    [
        ("", True, Status.INVALID_OPTION),
        ("a/b", True, Status.INVALID_OPTION),
        ("gone", False, Status.UNKNOWN_MEMBER),
    ],
)
def test_an_invalid_or_unknown_member_is_refused(member: str, static: bool, status: Status) -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    assert leader.refusal(leader.join(sid, member, static=static)) is status
    assert leader.refusal(leader.join(OTHER)) is Status.UNKNOWN_SUBSCRIPTION


def test_a_subscription_has_a_bounded_number_of_members() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    for _ in range(MEMBERS_PER_SUBSCRIPTION_MAX):
        leader.join(sid)
    assert leader.refusal(leader.join(sid)) is Status.TOO_MANY


# --- marks -------------------------------------------------------------------------------


def test_a_mark_begins_at_the_start_or_end_of_the_log_and_stays() -> None:
    leader = RecordingLeader(log=SteadyLog(100, start=Offset(50)))
    first, second = SubscriptionId("1" * 16), SubscriptionId("2" * 16)
    leader.open_marks(first)
    leader.open_marks(second, SubscriptionStart.LATEST)
    leader.open_marks(first, SubscriptionStart.LATEST)
    assert (leader.marked(first).mark, leader.marked(second).mark) == (50, 1000)
    assert leader.marked(first).lag_bytes == 950
    assert leader.committed_mark == 50
    other = leader.open_marks(first, name=SubscriptionName("other"))
    assert leader.refusal(other) is Status.SUBSCRIPTION_EXISTS


def test_a_mark_is_stored_after_its_interval() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    session = leader.attach(sid, 1)
    leader.mark(session, 50)
    assert leader.committed_mark == 0
    leader.pass_time(0.25)
    assert leader.committed_mark == 50


def test_a_mark_is_stored_after_a_number_of_messages() -> None:
    leader = RecordingLeader(log=SteadyLog(10_000))
    sid = leader.ready()
    session = leader.attach(sid, 1)
    before = leader.append_count
    for n in range(1, MARKS_COUNT + 1):
        leader.mark(session, n * 10)
    assert leader.append_count == before + 1
    assert leader.committed_mark == MARKS_COUNT * 10


def test_marks_take_a_bounded_part_of_the_log() -> None:
    leader = RecordingLeader(log=SteadyLog(10_000_000))
    sid = leader.ready(options=SubscriptionOptions(mark_interval_ms=10))
    session = leader.attach(sid, 1)
    before, seconds = leader.append_count, 20
    for n in range(1, 100 * seconds + 1):
        for k in range(5):
            leader.mark(session, (5 * n + k) * 10)
        leader.pass_time(0.01)
    stored = leader.append_count - before
    assert 100 * seconds / 4 < stored <= MARK_BYTES_PER_S * (seconds + 1) / 200
    last = leader.append_count
    for n in range(10):
        leader.mark(session, 1_000_000 + n * 10, confirm=n)
    assert leader.append_count == last + 10  # confirmations are not held back


def test_a_confirmation_waits_for_the_commit() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    session = leader.attach(sid, 1)
    leader.mark(session, 50, confirm=7, commit=False)
    leader.mark(session, 50, confirm=8, commit=False)
    assert not any(isinstance(one, e.TellMarked) for one in leader.told[session])
    assert len(leader.appended) == 1
    leader.perform([])
    told = [one.acknowledge for one in leader.told[session] if isinstance(one, e.TellMarked)]
    assert told == [7, 8]
    leader.mark(session, 20, confirm=9)  # lower: it changes nothing
    assert leader.last(session, e.TellMarked).acknowledge == 9
    assert leader.marked(sid).mark == 50


@pytest.mark.parametrize(
    ("offset", "status"),
    [(1010, Status.OFFSET_OUT_OF_RANGE), (55, Status.OFFSET_INSIDE_RECORD)],
)
def test_a_mark_inside_a_record_or_out_of_range_ends_the_attach(
    offset: int, status: Status
) -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    session = leader.attach(sid, 1)
    leader.mark(session, 50)
    leader.mark(session, offset)
    assert leader.refusal(session) is status
    leader.mark(session, 60)
    assert leader.marked(sid).mark == 50
    assert leader.committed_mark == 50


def test_marks_are_stored_when_a_member_goes_or_the_leader_stops() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    session = leader.attach(sid, 1)
    leader.mark(session, 50)
    leader.perform(leader.machine.detach(1001, session, leader.now))
    assert leader.is_done(1001)
    assert leader.committed_mark == 50
    session = leader.attach(sid, 1)
    leader.mark(session, 60)
    leader.perform(leader.machine.session_ended(session, leader.now))
    assert leader.committed_mark == 60
    session = leader.attach(sid, 1)
    leader.mark(session, 70)
    leader.perform(leader.machine.store_all(leader.now))
    assert leader.committed_mark == 70


def test_a_replaced_member_is_told_and_marks_no_more_after_a_change_of_the_leader() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    old = leader.attach(sid, 1)
    new = leader.attach(sid, 2)
    assert leader.refusal(old) is Status.MEMBER_FENCED
    assert leader.last(new, e.TellAttached).claim == 2
    leader.change()
    assert leader.refusal(leader.attach(sid, 1)) is Status.MEMBER_FENCED


def test_no_attach_is_told_a_mark_that_a_change_of_the_leader_takes_back() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    session = leader.attach(sid, 1)
    leader.mark(session, 50)
    second = leader.attach(sid, 2, commit=False)
    told = [one.mark for one in leader.told.get(second, [])]
    leader.change()
    third = leader.attach(sid, 2)
    told.append(leader.last(third, e.TellAttached).mark)
    assert all(a <= b for a, b in pairwise(told))


@pytest.mark.parametrize("claim", [0, -1, 1 << 50])
def test_a_claim_out_of_range_is_refused(claim: int) -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    assert leader.refusal(leader.attach(sid, claim)) is Status.INVALID_OPTION
    leader.perform(leader.machine.set_mark(1001, sid, Claim(claim), Offset(0), 0.0))
    assert leader.refusal(1001) is Status.INVALID_OPTION


def test_requests_for_unknown_marks_are_refused() -> None:
    leader = RecordingLeader()
    assert leader.refusal(leader.attach(OTHER, 1)) is Status.UNKNOWN_SUBSCRIPTION
    leader.perform(leader.machine.set_mark(1001, OTHER, Claim(1), Offset(0), 0.0))
    leader.perform(leader.machine.describe_marks(1002, OTHER))
    leader.perform(leader.machine.finish_subscription(1003, OTHER))
    leader.perform(leader.machine.finish_reset(1004, OTHER, PartitionId(0), Claim(1), 0.0))
    for session in (1001, 1002, 1003, 1004):
        assert leader.refusal(session) is Status.UNKNOWN_SUBSCRIPTION
    leader.perform(leader.machine.delete_marks(1005, OTHER))
    leader.perform(leader.machine.detach(1006, 999, 0.0))
    leader.perform(leader.machine.leave_group(1007, 999, 0.0))
    for session in (1005, 1006, 1007):
        assert leader.is_done(session)
    leader.mark(999, 10)
    assert 999 not in leader.told


def test_a_subscription_id_belongs_to_one_topic_and_name() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    identity = leader.machine.identity_of(sid)
    assert identity is not None
    assert (identity.topic_id, identity.name) == (TOPIC_ID, NAME)
    leader.open_marks(OTHER)
    identity = leader.machine.identity_of(OTHER)
    assert identity is not None
    assert identity.name == NAME
    assert leader.machine.identity_of(SubscriptionId("0" * 16)) is None


# --- resets ------------------------------------------------------------------------------


def test_a_reset_fences_the_member_and_takes_effect_once() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    joined, session = leader.join(sid), leader.attach(sid, 1)
    leader.mark(session, 50, confirm=1)
    reset = leader.machine.reset_subscription
    leader.perform(reset(1001, sid, PartitionId(0), Offset(10), leader.now))
    assert leader.refusal(1001) is Status.SUBSCRIPTION_BUSY
    leader.perform(reset(1002, sid, PartitionId(0), Offset(10), leader.now, force=True))
    claim = leader.last(1002, e.TellResetBegun).claim
    assert leader.last(joined, e.TellRevoked).logs == ((PartitionId(0), Claim(1)),)
    leader.perform(leader.machine.set_mark(1003, sid, claim, Offset(10), leader.now))
    assert leader.is_done(1003)
    assert leader.refusal(session) is Status.MEMBER_FENCED
    leader.mark(session, 60)
    assert leader.marked(sid).mark == 10
    leader.perform(leader.machine.finish_reset(1004, sid, PartitionId(0), claim, leader.now))
    assert leader.logs(joined)[-1] == (0, claim + 1)
    again = leader.attach(sid, claim + 1)
    leader.mark(again, 30, confirm=2)
    leader.perform(leader.machine.set_mark(1005, sid, claim, Offset(10), leader.now))
    assert leader.refusal(1005) is Status.MEMBER_FENCED
    assert leader.marked(sid).mark == 30


def test_an_unfinished_reset_is_given_up() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    leader.perform(
        leader.machine.reset_subscription(1001, sid, PartitionId(0), Offset(10), leader.now)
    )
    leader.change()
    leader.pass_time(RESET_WAIT_S - 1)
    joined = leader.join(sid)
    assert leader.logs(joined) == []
    leader.pass_time(2)
    assert leader.logs(joined) == [(0, 2)]


def test_a_claim_far_ahead_of_all_that_were_given_is_refused() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    first = leader.attach(sid, 5)
    for claim in (6 + CLAIM_STEP_MAX, COUNTED_MAX):
        assert leader.refusal(leader.attach(sid, claim)) is Status.INVALID_OPTION
    leader.mark(first, 50, confirm=1)
    assert leader.last(first, e.TellMarked).acknowledge == 1
    assert leader.last(leader.attach(sid, 5 + CLAIM_STEP_MAX), e.TellAttached).mark == 50


def test_a_reset_counts_on_from_a_claim_that_was_not_given() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    joined, made_up = leader.join(sid), Claim(CLAIM_STEP_MAX)
    leader.attach(sid, made_up)
    assert leader.refusal(leader.attach(sid, 1)) is Status.MEMBER_FENCED
    reset = partial(leader.machine.reset_subscription, force=True)
    leader.perform(reset(1001, sid, PartitionId(0), Offset(10), leader.now))
    claim = leader.last(1001, e.TellResetBegun).claim
    leader.perform(leader.machine.set_mark(1002, sid, claim, Offset(10), leader.now))
    assert leader.refusal(1002) is Status.MEMBER_FENCED
    newest = leader.marked(sid).claim
    leader.perform(reset(1003, sid, PartitionId(0), Offset(10), leader.now, newest=newest))
    claim = leader.last(1003, e.TellResetBegun).claim
    assert claim == made_up + 1
    leader.perform(leader.machine.set_mark(1004, sid, claim, Offset(10), leader.now))
    leader.perform(leader.machine.finish_reset(1005, sid, PartitionId(0), claim, leader.now))
    assert leader.logs(joined)[-1] == (0, claim + 1)
    assert leader.last(leader.attach(sid, claim + 1), e.TellAttached).mark == 10


def test_a_reset_does_not_count_on_from_a_claim_near_the_end_of_all_numbers() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    reset = leader.machine.reset_subscription
    newest = Claim(COUNTED_MAX - CLAIM_STEP_MAX + 1)
    leader.perform(reset(1001, sid, PartitionId(0), Offset(10), leader.now, newest=newest))
    assert leader.refusal(1001) is Status.INVALID_OPTION
    newest = Claim(newest - 1)
    leader.perform(reset(1002, sid, PartitionId(0), Offset(10), leader.now, newest=newest))
    assert leader.last(1002, e.TellResetBegun).claim == newest + 1


@pytest.mark.parametrize(
    ("offset", "status"),
    [
        (5, Status.OFFSET_OUT_OF_RANGE),
        (1010, Status.OFFSET_OUT_OF_RANGE),
        (55, Status.OFFSET_INSIDE_RECORD),
    ],
)
def test_a_reset_to_where_no_record_begins_is_refused(offset: int, status: Status) -> None:
    leader = RecordingLeader(log=SteadyLog(100, start=Offset(50)))
    sid = leader.ready()
    leader.perform(leader.machine.set_mark(1001, sid, Claim(1), Offset(offset), leader.now))
    assert leader.refusal(1001) is status
    assert leader.marked(sid).mark == 50


def test_a_reset_of_an_unknown_subscription_or_log_is_refused() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    reset = leader.machine.reset_subscription
    leader.perform(reset(1001, OTHER, PartitionId(0), Offset(0), 0.0))
    leader.perform(reset(1002, sid, PartitionId(9), Offset(0), 0.0))
    leader.perform(reset(1003, sid, PartitionId(0), Offset(1 << 62), 0.0))
    assert leader.refusal(1001) is Status.UNKNOWN_SUBSCRIPTION
    assert leader.refusal(1002) is Status.UNKNOWN_PARTITION
    assert leader.refusal(1003) is Status.OFFSET_OUT_OF_RANGE


# --- history that is lost ----------------------------------------------------------------


def test_a_range_removed_by_retention_is_told_and_noted_when_the_mark_passes_it() -> None:
    log = SteadyLog(100)
    leader = RecordingLeader(log=log)
    sid = leader.ready()
    log.start = Offset(50)
    for _ in range(2):  # told again until a member has gone on
        told = leader.last(session := leader.attach(sid, 1), e.TellAttached)
        assert (told.mark, told.log_start, told.lost) == (0, 50, LostSpan(Offset(0), Offset(50)))
    leader.mark(session, 50, confirm=1)
    found = leader.marked(sid)
    assert (found.lost, found.skipped) == (None, (LostSpan(Offset(0), Offset(50)),))
    leader.change()
    assert leader.last(leader.attach(sid, 1), e.TellAttached).lost is None
    assert leader.marked(sid).skipped == (LostSpan(Offset(0), Offset(50)),)


def test_messages_that_a_member_had_before_retention_removed_them_are_not_lost() -> None:
    log = SteadyLog(100)
    leader = RecordingLeader(log=log)
    sid = leader.ready()
    session = leader.attach(sid, 1)
    log.start = Offset(50)
    leader.mark(session, 35)  # below the start of the log nothing is known of records
    leader.mark(session, 80, confirm=1)
    assert leader.marked(sid).skipped == ()


def test_a_mark_in_another_history_goes_back_to_the_last_common_offset() -> None:
    log = SteadyLog(100)
    leader = RecordingLeader(log=log)
    sid = leader.ready()
    leader.mark(leader.attach(sid, 1), 500, confirm=1)
    log.forked_at = Offset(300)
    session = leader.attach(sid, 2)
    told = leader.last(session, e.TellAttached)
    assert (told.mark, told.lost) == (300, LostSpan(Offset(300), Offset(500)))
    log.forked_at = None
    leader.change()
    session = leader.attach(sid, 2)
    assert leader.last(session, e.TellAttached).lost == LostSpan(Offset(300), Offset(500))
    leader.mark(session, 310, confirm=1)
    assert leader.marked(sid).skipped == (LostSpan(Offset(300), Offset(500)),)


def test_a_mark_that_was_read_in_another_history_is_not_taken() -> None:
    log = SteadyLog(100)
    leader = RecordingLeader(log=log)
    sid = leader.ready()
    session = leader.attach(sid, 1)
    leader.mark(session, 200, anchor="1-0")
    log.forked_at = Offset(300)
    leader.mark(session, 300, anchor="1-0")
    leader.mark(session, 500, confirm=1, anchor="1-0")
    told = leader.last(session, e.TellDetached)
    assert told.status is Status.HISTORY_FORKED
    assert "only up to offset 300" in told.reason
    assert not any(isinstance(one, e.TellMarked) for one in leader.told[session])
    assert leader.committed_mark == 300  # what came before is stored
    leader.mark(session, 310)  # it has ended
    told_again = leader.last(leader.attach(sid, 1), e.TellAttached)
    assert (told_again.mark, told_again.lost) == (300, None)


def test_a_mark_that_was_read_beyond_the_end_of_the_log_is_of_another_history() -> None:
    leader = RecordingLeader(log=SteadyLog(40))
    sid = leader.ready()
    session = leader.attach(sid, 1)
    leader.mark(session, 500, anchor="1-0")
    told = leader.last(session, e.TellDetached)
    assert told.status is Status.HISTORY_FORKED
    assert "only up to offset 400" in told.reason


def test_a_mark_beyond_the_end_goes_back_to_it() -> None:
    log = SteadyLog(100)
    leader = RecordingLeader(log=log)
    sid = leader.ready()
    leader.mark(leader.attach(sid, 1), 1000, confirm=1)
    log.count = 40
    told = leader.last(leader.attach(sid, 2), e.TellAttached)
    assert (told.mark, told.lost) == (400, LostSpan(Offset(400), Offset(1000)))


def test_the_newest_lost_ranges_are_remembered() -> None:
    log = SteadyLog(1000)
    leader = RecordingLeader(log=log)
    sid = leader.ready()
    for n in range(1, SKIPPED_RANGES_MAX + 5):
        log.start = Offset(n * 100)
        leader.mark(leader.attach(sid, n), n * 100, confirm=n)
    skipped = leader.marked(sid).skipped
    assert len(skipped) == SKIPPED_RANGES_MAX
    assert skipped[-1].end == log.start
    leader.change()
    assert leader.marked(sid).skipped == skipped


# --- bounds of work ----------------------------------------------------------------------


def test_a_tick_does_a_bounded_part_of_what_is_due() -> None:
    leader = RecordingLeader()
    for n in range(log_marks.TURN_COUNT * 2):
        leader.open_marks(SubscriptionId(f"{n:016x}"))
        leader.mark(leader.attach(SubscriptionId(f"{n:016x}"), 1), 50)
    leader.now = 1.0
    effects = leader.machine.tick(leader.now)
    assert len(effects) <= log_marks.TURN_COUNT
    assert leader.machine.due_at is not None
    assert leader.machine.due_at <= leader.now
    leader.perform(effects)
    leader.pass_time(0)
    assert leader.committed_mark == 50


def test_a_tick_of_large_groups_does_a_bounded_part_of_what_is_due() -> None:
    leader = RecordingLeader()
    logs = tuple(range(100))
    count = 3 * coordinated.TURN_SIZE // len(logs)
    for n in range(count):
        created = leader.create(f"s{n}", partitions=logs)
        sid = leader.last(created, e.TellDescription).definition.sid
        leader.perform(leader.machine.finish_subscription(leader.session(), sid))
        leader.join(sid)
    leader.now = 11.0
    turns = []
    while (due_at := leader.machine.due_at) is not None and due_at <= leader.now:
        turns.append(leader.machine.tick(leader.now))
        leader.perform(turns[-1])
    assert len(turns) >= 3
    assert sum(isinstance(one, e.TellDetached) for turn in turns for one in turn) == count


def many_subscriptions(count: int) -> RecordingLeader:
    """A leader with so many subscriptions, each with a member and its mark."""
    leader = RecordingLeader()
    for n in range(count):
        created = leader.create(f"s{n}")
        sid = leader.last(created, e.TellDescription).definition.sid
        leader.open_marks(sid)
        leader.perform(leader.machine.finish_subscription(leader.session(), sid))
        leader.join(sid)
    return leader


def all_turns(leader: RecordingLeader, turn: list[e.Effect]) -> list[int]:
    """How many effects *turn* has, and each one after it that is due at once."""
    turns = []
    while True:
        turns.append(len(turn))
        leader.perform(turn)
        due_at = leader.machine.due_at
        if due_at is None or due_at > leader.now:
            return turns
        turn = leader.machine.tick(leader.now)


def test_the_subscriptions_of_a_deleted_topic_are_removed_a_part_at_a_time() -> None:
    count = 5 * log_marks.TURN_COUNT
    leader = many_subscriptions(count)
    keys = len(leader.committed)
    leader.log = None
    turns = all_turns(leader, leader.machine.topic_removed(TOPIC_ID))
    assert leader.committed == {}
    assert sum(turns) >= keys
    assert max(turns) <= 2 * (log_marks.TURN_COUNT + 2)
    told = [one for some in leader.told.values() for one in some if isinstance(one, e.TellDetached)]
    assert len(told) == count
    assert {one.status for one in told} == {Status.UNKNOWN_TOPIC}


def test_another_leader_goes_on_with_the_removal_of_a_deleted_topic() -> None:
    leader = many_subscriptions(3 * log_marks.TURN_COUNT)
    leader.log = None
    leader.perform(leader.machine.topic_removed(TOPIC_ID))
    assert leader.committed
    leader.change()
    assert leader.machine.topic_ids == {TOPIC_ID}
    all_turns(leader, leader.machine.topic_removed(TOPIC_ID))
    assert leader.committed == {}
    assert leader.machine.topic_ids == set()


def test_what_is_deleted_amid_the_removal_of_its_topic_is_removed_once() -> None:
    leader = many_subscriptions(3 * log_marks.TURN_COUNT)
    leader.log = None
    leader.perform(leader.machine.topic_removed(TOPIC_ID))
    for mark in leader.machine.all_marks():
        leader.perform(leader.machine.delete_marks(leader.session(), mark.sid))
        session = leader.session()
        for step in ("begin", "end"):
            leader.perform(leader.machine.delete_subscription(session, mark.sid, step))
    all_turns(leader, leader.machine.topic_removed(TOPIC_ID))
    assert leader.committed == {}


def machine_of(leader: RecordingLeader) -> Iterator[PartitionSubscriptions]:
    """A machine that begins with what a leader has stored: again after each part of that."""
    stored = StoredSubscriptions()
    for key, value in leader.committed.items():
        stored.add(key, value)
    machine = PartitionSubscriptions(
        PartitionId(0),
        {},
        log_of=lambda _: leader.log,
        new_id=lambda: "0" * 16,
        now=0.0,
        wall_ms=0,
    )
    for _ in machine.restore(stored, 0.0):
        yield machine
    yield machine


def test_a_leader_begins_with_a_bounded_part_of_many_marks_at_a_time() -> None:
    leader = RecordingLeader()
    count = 3 * log_marks.TURN_COUNT
    for n in range(count):
        leader.open_marks(SubscriptionId(f"{n:016x}"))
    known = [len(machine.all_marks()) for machine in machine_of(leader)]
    assert known[-1] == count
    assert all(later - one <= log_marks.TURN_COUNT for one, later in pairwise([0, *known]))


def test_a_leader_begins_with_a_bounded_part_of_many_groups_at_a_time() -> None:
    leader = RecordingLeader()
    logs = tuple(range(100))
    for n in range(3 * coordinated.TURN_SIZE // len(logs)):
        leader.create(f"s{n}", partitions=logs)
    known = [len(machine.member_counts()) for machine in machine_of(leader)]
    assert known[-1] == 3 * coordinated.TURN_SIZE // len(logs)
    most = coordinated.TURN_SIZE // len(logs)
    assert all(later - one <= most for one, later in pairwise([0, *known]))


def test_a_leader_that_loads_in_parts_knows_as_much_as_one_that_loads_at_once() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    *_, machine = machine_of(leader)
    leader.machine = machine
    assert machine.topic_ids == {TOPIC_ID}
    assert leader.marked(sid).mark == 0
    assert leader.logs(leader.join(sid)) == [(0, 1)]


def test_a_definition_is_stored_as_it_was_decided() -> None:
    leader = RecordingLeader()
    options = SubscriptionOptions(expires_ms=None, session_timeout_ms=20_000)
    sid = leader.ready(options=options, partitions=(0, 5))
    leader.perform(leader.machine.describe_subscription(1001, TOPIC_ID, NAME))
    before = leader.last(1001, e.TellDescription).definition
    leader.change()
    leader.perform(leader.machine.describe_subscription(1002, TOPIC_ID, NAME))
    after = leader.last(1002, e.TellDescription).definition
    assert attrs.asdict(after) == attrs.asdict(before)
    assert (after.sid, after.options, after.partitions) == (sid, options, [0, 5])
