"""A coordinator whose partition lost its newest decisions at all replicas."""

from __future__ import annotations

import pytest

from octopi.identifiers import Claim, PartitionId
from octopi.limits import CLAIM_STEP_MAX, TOLD_MAX
from octopi.subscriptions import effects as e
from tests.subscriptions.leader import RecordingLeader

LOG = PartitionId(0)


def revoked(leader: RecordingLeader, session: int) -> list[tuple[tuple[PartitionId, Claim], ...]]:
    return [one.logs for one in leader.told[session] if isinstance(one, e.TellRevoked)]


def test_a_member_that_holds_a_log_with_a_newer_claim_gets_it_again_with_one_newer_still() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    member = leader.join(sid, "worker", static=True, held=((0, 3),))
    assert revoked(leader, member) == [((LOG, Claim(3)),)]
    assert leader.logs(member) == [(0, 4)]


def test_a_member_that_gave_back_a_newer_claim_gets_the_log_with_one_newer_still() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    member = leader.join(sid, "worker", static=True)
    assert leader.logs(member) == [(0, 1)]
    leader.perform(leader.machine.holding(member, [(LOG, Claim(3))], leader.now))
    assert leader.logs(member) == [(0, 1), (0, 4)]


def test_the_member_that_got_the_log_meanwhile_is_told_to_release_it() -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    second = leader.join(sid, "second", static=True)
    first = leader.join(sid, "first", static=True, held=((0, 7),))
    assert revoked(leader, second) == [((LOG, Claim(1)),)]
    assert [*leader.logs(first), *leader.logs(second)] in ([(0, 8), (0, 1)], [(0, 1), (0, 8)])


@pytest.mark.parametrize("claim", [TOLD_MAX + 1, 3 + CLAIM_STEP_MAX, 1, 0])
def test_an_impossible_or_older_claim_of_a_member_changes_nothing(claim: int) -> None:
    leader = RecordingLeader()
    sid = leader.ready()
    member = leader.join(sid, "worker", static=True)
    leader.perform(leader.machine.leave_group(1001, member, leader.now))
    again = leader.join(sid, "worker", static=True, held=((0, claim),))
    assert all(newest <= 2 for _, newest in leader.logs(again))
