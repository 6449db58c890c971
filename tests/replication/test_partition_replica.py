"""What a replica makes durable before anyone hears of it, and what it remembers."""

import attrs
import pytest

from octopi.errors import ProtocolError
from octopi.identifiers import SUBSCRIPTIONS_LOG, BrokerId, Epoch, Offset, TopicId
from octopi.record import NO_REQUEST, encode_opaque, scan
from octopi.replication.effects import (
    FlushLog,
    FollowLeader,
    OnLog,
    PartitionEffect,
    PublishHighwater,
    RefuseCut,
    ReplicaState,
    SetAside,
    StoreState,
    SyncLogs,
    ToBroker,
    ToRegister,
    Truncate,
)
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.log_state import LogState
from octopi.replication.partition_replica import PartitionReplica, Role
from octopi.wire.messages import (
    AcceptEpoch,
    Acknowledge,
    AlterInSync,
    AnnounceEpoch,
    EpochStart,
    Follow,
    Followed,
    FollowRefused,
    LogEnd,
    PartitionRecord,
    Replicate,
)

TOPIC = TopicId("orders")
RECORD = PartitionRecord(
    partition=0,
    epoch=3,
    version=0,
    leader=1,
    leader_incarnation=1,
    replicas=[1, 2, 3],
    in_sync=[1, 2, 3],
)


def log(end: int = 100, flushed_end: int = 40) -> LogState:
    return LogState(Offset(end), Offset(0), Offset(flushed_end), epochs=EpochHistory.load([[1, 0]]))


def replica(
    broker: int = 1, state: ReplicaState | None = None, **options: bool
) -> PartitionReplica:
    machine = PartitionReplica(0, broker, 1, state or ReplicaState(), {TOPIC: log()}, **options)
    machine.begin()
    machine.joined()
    return machine


def kinds(effects: list[PartitionEffect]) -> list[type]:
    return [type(effect) for effect in effects]


def stored(effects: list[PartitionEffect]) -> ReplicaState:
    (state,) = [one.state for one in effects if isinstance(one, StoreState)]
    return state


def test_an_epoch_is_accepted_once_logs_and_promise_are_on_the_device() -> None:
    machine = replica()
    machine.installed(RECORD, 0.0)
    effects = machine.announced(AnnounceEpoch(0, 4))
    assert kinds(effects) == [SyncLogs, StoreState, ToRegister]
    assert (stored(effects).promised, stored(effects).sync_flag) == (4, True)
    assert effects[-1] == ToRegister(
        AcceptEpoch(0, 4, 1, 1, last_epoch=1, log_epoch=3, ends=[LogEnd(TOPIC, 100)])
    )
    assert machine.role == Role.IDLE


def test_an_announcement_that_comes_again_is_answered_again_and_an_older_one_is_not() -> None:
    machine = replica()
    first = machine.announced(AnnounceEpoch(0, 4))[-1]
    assert machine.announced(AnnounceEpoch(0, 4))[-1] == first
    assert machine.announced(AnnounceEpoch(0, 3)) == []
    machine.installed(PartitionRecord(0, 4, 0, 2, 1, [1, 2, 3], [1, 2]), 0.0)
    assert machine.announced(AnnounceEpoch(0, 4)) == []


def test_leading_begins_after_the_promise_is_on_the_device() -> None:
    machine = replica()
    effects = machine.installed(RECORD, 0.0)
    assert kinds(effects)[0] == StoreState
    assert stored(effects) == ReplicaState(promised=3, log_epoch=3, record=RECORD)
    assert machine.role == Role.LEADER


def test_a_promised_epoch_survives_a_restart_and_a_record_of_an_older_one_is_ignored() -> None:
    accepting = replica(2).announced(AnnounceEpoch(0, 4))
    machine = replica(2, stored(accepting))
    effects = machine.installed(RECORD, 0.0)
    assert kinds(effects) == [StoreState]
    assert machine.role == Role.IDLE
    assert machine.report.promised == 4


def test_a_partition_record_of_an_earlier_incarnation_lets_no_replica_lead() -> None:
    machine = PartitionReplica(0, 1, 2, ReplicaState(), {TOPIC: log()})
    machine.joined()
    machine.installed(RECORD, 0.0)
    assert machine.role == Role.IDLE


def test_a_follower_is_told_to_come_again_until_its_leader_knows_the_record() -> None:
    machine = replica()
    follow = Follow(0, 3, 2, 1, 1, TOPIC, [], 0)
    (early,) = machine.follow(follow)
    assert isinstance(early, ToBroker)
    assert isinstance(early.message, FollowRefused)
    machine.installed(RECORD, 0.0)
    (answer,) = machine.follow(attrs.evolve(follow, attempt=2))
    assert isinstance(answer, ToBroker)
    assert isinstance(answer.message, Followed)


def test_a_replica_does_nothing_before_its_broker_has_joined() -> None:
    machine = PartitionReplica(0, 1, 1, ReplicaState(), {TOPIC: log()})
    assert machine.installed(RECORD, 0.0) == []
    assert machine.announced(AnnounceEpoch(0, 4)) == []


def test_after_a_power_loss_a_log_is_not_intact_until_the_register_knows() -> None:
    machine = PartitionReplica(0, 2, 1, ReplicaState(), {TOPIC: log()}, lost_power=True)
    assert not stored(machine.begin()).intact
    assert not machine.report.intact
    again = PartitionReplica(0, 2, 2, machine.state, {TOPIC: log()})
    assert not again.report.intact, "it was restarted before it had joined"
    assert again.joined() == []
    doubted = attrs.evolve(RECORD, version=1)
    assert not stored(again.installed(doubted, 0.0)).intact, "it knows the partition no more"
    assert not again.report.intact
    assert stored(again.installed(attrs.evolve(RECORD, version=2, in_sync=[1, 3]), 0.0)).intact
    appointed = attrs.evolve(RECORD, leader=2, leader_incarnation=2, in_sync=[2], replicas=[2])
    sole = PartitionReplica(0, 2, 2, machine.state, {TOPIC: log()})
    assert sole.joined() == []
    assert sole.installed(appointed, 0.0)
    assert sole.report.intact
    other, flushed = TopicId("payments"), LogState.empty(flush_before_ack=True)
    mixed = PartitionReplica(
        0, 2, 1, ReplicaState(), {TOPIC: log(), other: flushed}, lost_power=True
    )
    assert not mixed.report.intact
    assert PartitionReplica(
        0, 2, 1, ReplicaState(), {other: flushed}, lost_power=True
    ).report.intact
    assert PartitionReplica(0, 2, 1, ReplicaState(), {}, lost_power=True).report.intact
    flagged = PartitionReplica(
        0, 2, 1, ReplicaState(sync_flag=True), {TOPIC: log()}, lost_power=True
    )
    assert flagged.report.intact


INTERNAL = TopicId(SUBSCRIPTIONS_LOG)
FLUSHED = TopicId("payments")


def after_power_loss(logs: dict[TopicId, LogState]) -> PartitionReplica:
    return PartitionReplica(0, 2, 1, ReplicaState(), logs, lost_power=True)


def test_an_internal_log_leaves_a_replica_as_intact_as_its_topics_do() -> None:
    assert after_power_loss({INTERNAL: log()}).report.intact, "it has no topics"
    flushed = LogState.empty(flush_before_ack=True)
    assert after_power_loss({INTERNAL: log(), FLUSHED: flushed}).report.intact
    machine = after_power_loss({INTERNAL: log(), FLUSHED: flushed, TOPIC: log()})
    assert not machine.report.intact
    assert machine.logs[INTERNAL].flush_before_ack
    machine = after_power_loss({INTERNAL: log(), TOPIC: log()})
    assert not machine.report.intact
    assert not machine.logs[INTERNAL].flush_before_ack
    unsound = log()
    unsound.sound = False
    assert not after_power_loss({INTERNAL: unsound}).report.intact


def test_an_internal_log_is_flushed_before_it_is_acknowledged_where_a_topic_is() -> None:
    """As long as it isn't, a power loss must not leave the replica intact."""
    for record in (attrs.evolve(RECORD, in_sync=[1, 2]), attrs.evolve(RECORD, leader=2)):
        machine = PartitionReplica(0, 1, 1, ReplicaState(), {TOPIC: log(), INTERNAL: log()})
        machine.joined()
        machine.installed(record, 0.0)
        if record.leader == 2:
            machine.stream_opened()
            machine.followed(Followed(0, 3, 1, 1, INTERNAL, Offset(100), Offset(100)))
        internal = machine.logs[INTERNAL]
        assert not internal.flush_before_ack
        effects = machine.remove_log(TOPIC)
        assert internal.flush_before_ack
        assert OnLog(INTERNAL, FlushLog()) in effects, "what was acknowledged before, too"
        machine.add_log(TOPIC, log())
        assert not internal.flush_before_ack
        machine.add_log(FLUSHED, LogState.empty(flush_before_ack=True))
        assert internal.flush_before_ack
        machine.remove_log(FLUSHED)
        assert not internal.flush_before_ack
        machine.check_invariants()


def test_the_min_insync_of_a_topic_holds_for_the_internal_log() -> None:
    machine = PartitionReplica(0, 1, 1, ReplicaState(), {INTERNAL: log(end=0, flushed_end=0)})
    assert machine.require(INTERNAL, 2, flush=True) == []
    assert machine.logs[INTERNAL].min_insync == 2
    assert machine.require(INTERNAL, 2, flush=True) == []
    assert machine.require(TopicId("~other"), 2, flush=True) == []


def test_a_clean_shutdown_leaves_logs_that_a_power_loss_can_not_harm() -> None:
    machine = replica()
    effects = machine.clean_shutdown()
    assert kinds(effects) == [SyncLogs, StoreState]
    assert PartitionReplica(0, 1, 2, stored(effects), {}, lost_power=True).report.intact


def test_leading_alone_is_proposed_after_flag_and_logs_are_on_the_device() -> None:
    machine = replica()
    machine.installed(PartitionRecord(0, 3, 0, 1, 1, [1, 2], [1, 2]), 0.0)
    assert machine.leader is not None
    effects = machine.propose(machine.leader.leaving(2))
    assert [one for one in kinds(effects) if one != OnLog] == [SyncLogs, StoreState, ToRegister]
    assert stored(effects).sync_flag


def test_a_follower_joins_in_the_moment_in_which_it_holds_all_that_is_committed() -> None:
    machine = replica()
    machine.installed(PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], [1, 2]), 0.0)
    for broker in (2, 3):
        machine.follow(Follow(0, 3, broker, 1, 1, TOPIC, [EpochStart(1, 0)], 0))
    machine.acknowledge(Acknowledge(0, 3, 2, 1, 1, TOPIC, 100))
    assert ToRegister not in kinds(machine.acknowledge(Acknowledge(0, 3, 3, 1, 1, TOPIC, 99)))
    assert ToRegister not in kinds(machine.tick(0.1))
    assert machine.leader is not None
    join = machine.acknowledge(Acknowledge(0, 3, 3, 1, 1, TOPIC, 100))[-1]
    assert join == ToRegister(machine.leader.joining(3))
    again = machine.acknowledge(Acknowledge(0, 3, 3, 1, 1, TOPIC, 100))
    assert ToRegister not in kinds(again), "one change at a time"


def test_a_new_leader_does_not_wait_for_replicas_that_are_away() -> None:
    both = PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], [1, 2, 3])
    early, late = replica(), replica()
    assert early.told_away(frozenset({3}), 0.0) == []
    early.installed(both, 0.0)
    late.installed(both, 0.0)
    for effects in (early.tick(0.1), late.told_away(frozenset({3}), 0.1)):
        (proposal,) = [one.message for one in effects if isinstance(one, ToRegister)]
        assert getattr(proposal, "in_sync", None) == [1, 2]


def proposals(effects: list[PartitionEffect]) -> list[list[BrokerId]]:
    return [
        one.message.in_sync
        for one in effects
        if isinstance(one, ToRegister) and isinstance(one.message, AlterInSync)
    ]


def test_a_replica_that_is_about_to_stop_proposes_nothing() -> None:
    machine = replica()
    machine.installed(PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], [1, 2]), 0.0)
    for broker in (2, 3):
        machine.follow(Follow(0, 3, broker, 1, 1, TOPIC, [EpochStart(1, 0)], 0))
    machine.acknowledge(Acknowledge(0, 3, 2, 1, 1, TOPIC, 100))
    machine.stopping()
    assert proposals(machine.acknowledge(Acknowledge(0, 3, 3, 1, 1, TOPIC, 100))) == []
    machine.stream_closed(2, 1, 1)
    assert proposals(machine.tick(9.0)) == []
    machine.announced(AnnounceEpoch(0, 4))
    machine.installed(PartitionRecord(0, 5, 0, 1, 1, [1, 2, 3], [1, 2, 3]), 9.0)
    assert proposals(machine.told_away(frozenset({2, 3}), 19.0)) == [], "nor in a later epoch"


def test_a_leader_that_is_about_to_stop_does_not_repeat_its_proposal() -> None:
    machine = replica()
    machine.installed(RECORD, 0.0)
    machine.told_away(frozenset({3}), 0.0)
    assert machine.repeated is not None
    assert machine.repeated.in_sync == [1, 2]
    machine.stopping()
    assert machine.repeated is None


def refuse_records(machine: PartitionReplica, *, refuse: bool = True) -> None:
    """The leader's disk refuses records, or no longer does."""
    assert machine.leader is not None
    machine.leader.takes_records = not refuse


def test_a_leader_whose_disk_refuses_records_takes_nobody_out_of_the_in_sync_set() -> None:
    machine = replica()
    machine.installed(PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], [1, 2]), 0.0)
    for broker in (2, 3):
        machine.follow(Follow(0, 3, broker, 1, 1, TOPIC, [EpochStart(1, 0)], 0))
    machine.acknowledge(Acknowledge(0, 3, 2, 1, 1, TOPIC, 100))
    refuse_records(machine)
    joins = proposals(machine.acknowledge(Acknowledge(0, 3, 3, 1, 1, TOPIC, 100)))
    assert joins == [[1, 2, 3]], "one more may lead"
    machine.installed(PartitionRecord(0, 3, 1, 1, 1, [1, 2, 3], [1, 2, 3]), 0.1)
    machine.stream_closed(2, 1, 1)  # it accepts the next epoch, and the leader has yet to hear
    assert proposals(machine.tick(9.0)) == []
    refuse_records(machine, refuse=False)
    assert proposals(machine.tick(9.1)) == [[1, 3]]


def test_a_proposal_is_not_sent_or_repeated_while_the_disk_refuses_records() -> None:
    machine = replica()
    machine.installed(RECORD, 0.0)
    machine.told_away(frozenset({3}), 0.0)
    assert machine.repeated is not None
    change = machine.repeated
    assert change.in_sync == [1, 2]
    refuse_records(machine)
    assert machine.repeated is None
    assert not machine.may_propose(change)
    assert machine.may_propose(attrs.evolve(change, in_sync=[1, 2, 3, 4]))
    refuse_records(machine, refuse=False)
    assert machine.repeated == change


def test_a_follower_that_is_about_to_stop_leaves_while_it_follows_and_does_not_come_back() -> None:
    machine = replica()
    machine.installed(RECORD, 0.0)
    for broker in (2, 3):
        machine.follow(Follow(0, 3, broker, 1, 1, TOPIC, [EpochStart(1, 0)], 0))
        machine.acknowledge(Acknowledge(0, 3, broker, 1, 1, TOPIC, 100))
    assert proposals(machine.tick(0.1)) == []
    assert proposals(machine.told_stopping(frozenset({3}), 0.2)) == [[1, 2]]
    machine.installed(attrs.evolve(RECORD, version=1, in_sync=[1, 2]), 0.3)
    assert proposals(machine.tick(0.4)) == []
    assert proposals(machine.told_stopping(frozenset(), 0.5)) == [[1, 2, 3]], "it stays after all"


def test_a_new_leader_knows_which_replicas_are_about_to_stop() -> None:
    machine = replica()
    assert machine.told_stopping(frozenset({2}), 0.0) == []
    machine.installed(RECORD, 0.0)
    assert proposals(machine.tick(0.0)) == [[1, 3]]


def test_a_leader_that_finds_itself_alone_commits_what_is_on_the_device() -> None:
    machine = replica()
    effects = machine.installed(PartitionRecord(0, 3, 2, 1, 1, [1, 2], [1]), 0.0)
    assert [one.state.sync_flag for one in effects if isinstance(one, StoreState)] == [False, True]
    assert PublishHighwater(Offset(40)) in [one.effect for one in effects if isinstance(one, OnLog)]
    flushed = machine.flushed(TOPIC, Offset(100))
    assert OnLog(TOPIC, PublishHighwater(Offset(100))) in flushed


def test_a_leader_that_is_left_alone_commits_nothing_that_is_only_in_its_page_cache() -> None:
    machine = replica()
    both = PartitionRecord(0, 3, 0, 1, 1, [1, 2], [1, 2])
    machine.installed(both, 0.0)
    alone = attrs.evolve(both, version=1, in_sync=[1])
    marks = [
        one.effect
        for one in machine.installed(alone, 0.0)
        if isinstance(one, OnLog) and isinstance(one.effect, PublishHighwater)
    ]
    assert marks == [PublishHighwater(Offset(40))]


def test_a_leader_with_sync_flag_counts_its_own_log_as_far_as_the_device_has_it() -> None:
    machine = replica(state=ReplicaState(sync_flag=True))
    machine.installed(PartitionRecord(0, 3, 0, 1, 1, [1, 2], [1, 2]), 0.0)
    machine.follow(Follow(0, 3, 2, 1, 1, TOPIC, [EpochStart(1, 0)], 100))
    effects = machine.acknowledge(Acknowledge(0, 3, 2, 1, 1, TOPIC, 100))
    assert effects == [OnLog(TOPIC, PublishHighwater(Offset(40)))]


def test_a_sole_replica_commits_at_once_what_it_holds() -> None:
    machine = replica(state=ReplicaState(sync_flag=True))
    effects = machine.installed(PartitionRecord(0, 3, 0, 1, 1, [1], [1]), 0.0)
    assert not stored(effects).sync_flag
    assert OnLog(TOPIC, PublishHighwater(Offset(100))) in effects


def test_the_sync_flag_is_dropped_durably_before_page_caches_count() -> None:
    machine = replica(state=ReplicaState(sync_flag=True))
    machine.installed(RECORD, 0.0)
    effects = machine.tick(0.0)
    assert kinds(effects)[0] == StoreState
    assert not stored(effects).sync_flag


def test_a_follower_stores_that_its_log_agrees_after_the_cut_and_before_acknowledging() -> None:
    machine = replica(2)
    assert kinds(machine.installed(RECORD, 0.0)) == [StoreState, FollowLeader]
    (ask,) = machine.stream_opened()
    assert isinstance(ask, ToBroker)
    assert isinstance(ask.message, Follow)
    effects = machine.followed(Followed(0, 3, 1, 1, TOPIC, 60, 60))
    assert kinds(effects) == [OnLog, StoreState, ToBroker]
    assert stored(effects).log_epoch == 3


def test_a_follower_with_sync_flag_acknowledges_what_is_on_the_device() -> None:
    machine = replica(2, ReplicaState(sync_flag=True))
    machine.installed(RECORD, 0.0)
    machine.stream_opened()
    effects = machine.followed(Followed(0, 3, 1, 1, TOPIC, 100, 100))
    ends = [getattr(one.message, "end", None) for one in effects if isinstance(one, ToBroker)]
    assert ends == [40]
    (acknowledgement,) = machine.flushed(TOPIC, Offset(100))
    assert isinstance(acknowledgement, ToBroker)
    assert getattr(acknowledgement.message, "end", None) == 100


def test_an_answer_of_an_earlier_session_changes_nothing() -> None:
    machine = replica(2)
    machine.installed(RECORD, 0.0)
    machine.stream_opened()
    machine.stream_opened()
    assert machine.followed(Followed(0, 3, 1, 1, TOPIC, 0, 0)) == []
    assert machine.logs[TOPIC].end == 100


def test_a_leader_has_no_records_of_an_epoch_that_has_not_begun() -> None:
    """Stored, such an epoch would be told to every later leader, which refuses it."""
    machine = replica(2)
    machine.installed(RECORD, 0.0)
    machine.stream_opened()
    machine.followed(Followed(0, 3, 1, 1, TOPIC, 100, 100))
    records = encode_opaque(NO_REQUEST, b"a record")
    with pytest.raises(ProtocolError, match="of epoch 4, and leads in epoch 3"):
        machine.receive(Replicate(0, 3, 1, 1, TOPIC, 100, 4, records, 0), scan(records))
    assert machine.logs[TOPIC].epochs.latest == 1
    begun = [EpochStart(1, 0), EpochStart(4, 50)]
    machine = replica(2)
    machine.installed(RECORD, 0.0)
    machine.stream_opened()
    with pytest.raises(ProtocolError, match="of epoch 4, and leads in epoch 3"):
        machine.followed(Followed(0, 3, 1, 1, TOPIC, 100, 100, epochs=begun))


def test_a_log_that_is_made_later_is_led_or_followed_like_the_others() -> None:
    later = TopicId("clicks")
    leader, follower = replica(1), replica(2)
    for machine in (leader, follower):
        machine.installed(RECORD, 0.0)
        machine.stream_opened()
    leader.add_log(later, LogState.empty())
    assert leader.log_leader(later).log.end == 0
    (ask,) = follower.add_log(later, LogState.empty())
    assert isinstance(ask, ToBroker)
    leader.remove_log(later)
    follower.remove_log(later)
    for machine in (leader, follower):
        machine.check_invariants()


def test_epochs_whose_records_are_missing_are_forgotten_on_disk_too() -> None:
    damaged = log()
    damaged.epochs.begin(Epoch(2), Offset(100))
    machine = PartitionReplica(0, 1, 1, ReplicaState(), {TOPIC: damaged})
    assert kinds(machine.begin()) == [StoreState, OnLog]
    assert damaged.epochs.dump() == [[1, 0]]


# --- damaged logs --------------------------------------------------------------------------


def damaged(broker: int = 2) -> PartitionReplica:
    """A replica whose log lost what it had on the device."""
    state = log()
    state.sound = False
    machine = PartitionReplica(0, broker, 1, ReplicaState(), {TOPIC: state})
    machine.begin()
    assert not machine.report.intact
    machine.joined()
    return machine


def test_a_damaged_log_is_set_aside_before_its_replica_follows_and_only_out_of_sync() -> None:
    machine = damaged()
    machine.installed(RECORD, 0.0)
    assert machine.stream_opened() == [], "its files may be all there is"
    machine.check_invariants()
    without = attrs.evolve(RECORD, version=1, in_sync=[1, 3])
    effects = machine.installed(without, 0.0)
    assert OnLog(TOPIC, SetAside(refill=True)) in effects
    machine.logs[TOPIC].damage_set_aside(Offset(0), Offset(60))
    (follow,) = machine.set_aside(TOPIC)
    assert isinstance(follow, ToBroker)
    assert isinstance(follow.message, Follow)
    assert follow.message.log_end == 60
    machine.check_invariants()


def test_a_replica_is_not_sound_before_its_damaged_records_are_copied_again() -> None:
    machine = damaged()
    machine.installed(attrs.evolve(RECORD, version=1, in_sync=[1, 3]), 0.0)
    machine.logs[TOPIC].damage_set_aside(Offset(0), Offset(60))

    def says_sound(restarted: PartitionReplica, epoch: int) -> bool:
        restarted.joined()
        (accept,) = [
            one.message
            for one in restarted.announced(AnnounceEpoch(0, epoch))
            if isinstance(one, ToRegister) and isinstance(one.message, AcceptEpoch)
        ]
        return all(one.sound for one in accept.ends)

    assert machine.state.intact, "the register knows that it isn't in sync"
    restarted = PartitionReplica(0, 2, 2, machine.state, machine.logs)
    assert not says_sound(restarted, 8), "it lacks what was on its device"
    machine.installed(attrs.evolve(RECORD, version=2), 0.0)
    assert says_sound(PartitionReplica(0, 2, 3, machine.state, machine.logs), 9)


def test_setting_a_log_aside_has_no_effect_if_its_replica_no_longer_follows() -> None:
    machine = damaged()
    assert machine.set_aside(TOPIC) == []
    assert machine.set_aside(TopicId("unknown")) == []


def test_a_damaged_log_is_cut_and_led_once_its_loss_was_accepted() -> None:
    machine = damaged(1)
    accepted = attrs.evolve(RECORD, recovered_epoch=3)
    effects = machine.installed(accepted, 0.0)
    assert OnLog(TOPIC, SetAside(refill=False)) in effects
    assert machine.role == Role.LEADER


def test_a_follower_may_cut_committed_records_whose_loss_was_accepted_since() -> None:
    state = log()
    state.highwater = Offset(80)
    for log_epoch, refuses in ((2, False), (3, True)):
        state = log()
        state.highwater = Offset(80)
        machine = PartitionReplica(0, 2, 1, ReplicaState(log_epoch=log_epoch), {TOPIC: state})
        machine.begin()
        machine.joined()
        machine.installed(attrs.evolve(RECORD, recovered_epoch=3), 0.0)
        machine.stream_opened()
        effects = machine.followed(Followed(0, 3, 1, 1, TOPIC, 60, 60, [], []))
        assert (OnLog(TOPIC, RefuseCut(Offset(60))) in effects) == refuses
        assert (OnLog(TOPIC, Truncate(Offset(60), keeps=True)) in effects) != refuses
        machine.check_invariants()
