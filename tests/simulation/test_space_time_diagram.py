"""The diagram shows which hosts ran, which led, and how far logs went."""

from __future__ import annotations

from octopi.coordination.journal_entries import EpochAnnounced, PartitionDecided
from octopi.identifiers import is_internal
from octopi.simulation.report.space_time_diagram import (
    Lane,
    LogEndMark,
    Reign,
    Spell,
    UpSpan,
    code,
    diagram,
)
from octopi.tracing import steps
from octopi.wire.messages import PartitionRecord
from tests.simulation.recordings import LOG, Story, aborted_read, lost_write, real_run


def test_lanes_come_in_the_order_of_the_hosts_with_the_world_first_and_strangers_last() -> None:
    story = Story()
    story.event("boot", "stranger")
    story.event("boot", "broker-2")
    story.event("boot", "register")
    story.event("heal")
    story.send("broker-2", "broker-1")
    assert diagram(story.recording()).lanes == (
        Lane("world", "world"),
        Lane("register", "register"),
        Lane("broker-1", "broker"),
        Lane("broker-2", "broker"),
        Lane("stranger", ""),
    )


def test_a_host_is_down_from_its_death_to_the_next_boot() -> None:
    story = Story()
    story.event("boot", "broker-1")
    story.event("lose power", "broker-1")
    story.event("boot", "broker-1", 2)
    story.event("pause", "broker-1", 2)
    story.event("kill", "broker-1", 2)
    drawn = diagram(story.recording())
    assert drawn.lives == (UpSpan(0, 1, 0), UpSpan(0, 2, 2))
    assert drawn.spells == (
        Spell(0, "down", 1, 2),
        Spell(0, "paused", 3, 4),
        Spell(0, "down", 4, None),
    )


def test_a_pause_lasts_until_the_host_goes_on() -> None:
    story = Story()
    story.event("boot", "broker-1")
    story.event("pause", "broker-1")
    story.event("resume", "broker-1")
    assert diagram(story.recording()).spells == (Spell(0, "paused", 1, 2),)


def test_a_client_that_finishes_is_not_shown_as_down() -> None:
    story = Story()
    for host in ("alice", "broker-1"):
        story.event("boot", host)
        story.event("exit", host, error="None")
    recording = story.recording()
    clients = ((*recording.hosts, ("alice", "client")),)
    drawn = diagram(type(recording)("", recording.happenings, *clients))
    spells = {drawn.lanes[one.lane].name: one.what for one in drawn.spells}
    assert spells == {"alice": "ended", "broker-1": "down"}


def test_a_leader_leads_until_it_leaves_its_role_or_dies() -> None:
    story = Story()
    story.event(steps.E11Leading.text, "broker-1", partition=0, epoch=1)
    story.event(steps.E11Leading.text, "broker-1", partition=1, epoch=4)
    story.event(steps.E5Left.text, "broker-1", partition=0, epoch=1, role="LEADER")
    story.event(steps.E5Left.text, "broker-2", partition=1, epoch=4, role="FOLLOWER")
    story.event("kill", "broker-1")
    leads = diagram(story.recording()).leads
    assert [(one.partition, one.epoch, one.begin, one.end) for one in leads] == [
        (0, 1, 0, 2),
        (1, 4, 1, 4),
    ]


def test_leaderships_are_shown_as_the_register_decided_them() -> None:
    story = Story()
    for number in (1, 2):
        story.event(steps.J1Identified.text, f"broker-{number}", cluster="", broker=number)
    entries: list[object] = [EpochAnnounced(0, 2)]
    story.event(steps.R2Appended.text, "register", entries=entries)
    entries = [PartitionDecided(PartitionRecord(0, 2, 0, 2, 1, [1, 2], [2]))]
    story.event(steps.R2Appended.text, "register", entries=entries)
    entries = [PartitionDecided(PartitionRecord(0, 2, 1, 2, 1, [1, 2], [1, 2]))]
    story.event(steps.R2Appended.text, "register", entries=entries)
    story.event(steps.R1Read.text, "register", entries=entries)
    drawn = diagram(story.recording())
    leader = drawn.hosts["broker-2"]
    assert drawn.reigns == (
        Reign(0, 2, 2, None, ()),
        Reign(0, 3, 2, leader, ("broker-2",)),
        Reign(0, 4, 2, leader, ("broker-1", "broker-2")),
    )


def test_marks_follow_a_replica_through_appends_commits_cuts_and_death() -> None:
    story = Story()
    story.event(steps.P3Replicated.text, "broker-1", **LOG, offset=0, end=100)
    story.event(steps.P3Replicated.text, "broker-1", **LOG, offset=100, end=200)
    story.event(steps.P8Followed.text, "broker-1", **LOG, highwater=100, log_end=200)
    story.event(steps.D1Flushed.text, "broker-1", **LOG, log_end=200, flushed_end=200)
    story.event(steps.E13Truncated.text, "broker-1", **LOG, highwater=100, log_end=200, end=100)
    story.event("kill", "broker-1")
    story.event(steps.E14Restarted.text, "broker-1", 2, **LOG, log_end=0, begin=50)
    assert diagram(story.recording()).marks == {
        ("orders", 0, 0): (
            LogEndMark(0, 100, None),
            LogEndMark(1, 200, None),
            LogEndMark(2, 200, 100),
            LogEndMark(4, 100, 100),
            LogEndMark(5, None, None),
            LogEndMark(6, 50, 50),
        )
    }


def test_the_diagram_focuses_the_last_event_in_conflict_or_the_end() -> None:
    drawn = diagram(lost_write())
    assert [str(drawn.moments[one]).split()[2] for one in drawn.conflict] == ["P6b", "E11"]
    assert drawn.focus == drawn.conflict[-1]
    story = Story()
    story.event("boot", "broker-1")
    story.event("kill", "broker-1")
    assert diagram(story.recording()).focus == 1


def test_notes_have_a_lane_and_stand_at_their_time() -> None:
    drawn = diagram(aborted_read())
    assert drawn.lanes[-1] == Lane("notes", "notes")
    assert drawn.conflict == (1, 4)
    assert drawn.lane(drawn.moments[1]) == len(drawn.lanes) - 1


def test_an_empty_recording_has_an_empty_diagram() -> None:
    drawn = diagram(Story().recording())
    assert (drawn.moments, drawn.lanes, drawn.focus) == ((), (), 0)


def test_every_step_has_a_code_and_nothing_else_has() -> None:
    assert {code(step.text) for step in steps.PRODUCING} == {f"P{number}" for number in range(1, 9)}
    assert code(steps.E10Installed.text) == "E10"
    assert all(code(step.text) for step in steps.ALL)
    assert not any(map(code, ("boot", "fault", "end of cut", "E1", "")))


def test_a_real_run_has_leaders_for_its_partitions_and_logs_that_agree_in_the_end() -> None:
    drawn = diagram(real_run())
    assert {one.partition for one in drawn.reigns} == {0, 1}
    assert all(one.end is None or one.end > one.begin for one in drawn.leads)
    ends: dict[tuple[str, int], set[int]] = {}
    for (topic, partition, _), marks in drawn.marks.items():
        alive = [mark for mark in marks if mark.log_end is not None]
        assert alive[-1].log_end == alive[-1].highwater
        ends.setdefault((topic, partition), set()).add(alive[-1].log_end or 0)
    assert len([topic for topic, _ in ends if not is_internal(topic)]) == 2
    assert all(len(known) == 1 for known in ends.values())
