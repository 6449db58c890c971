"""The follower of one log."""

import pytest

from octopi.errors import ProtocolError
from octopi.identifiers import Epoch, Offset
from octopi.record import BatchBuilder, scan
from octopi.replication.effects import (
    AcknowledgeEnd,
    AppendReplicated,
    FlushLog,
    PublishHighwater,
    RefuseCut,
    Restart,
    StoreEpochs,
    Truncate,
)
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.log_follower import LogFollower
from octopi.replication.log_state import LogState
from octopi.replication.prior_state import PriorState


def follower(*, durable: bool = False) -> LogFollower:
    log = LogState(
        Offset(100), Offset(20), Offset(100), epochs=EpochHistory.load([[1, 0], [2, 50]])
    )
    return LogFollower(Epoch(3), log, durable=durable)


def batch() -> bytes:
    builder = BatchBuilder()
    builder.add(b"value")
    return builder.encode(b"p" * 16, 0, 0)


def test_the_log_is_cut_and_then_acknowledged_once() -> None:
    machine = follower()
    assert machine.followed(Offset(50), Offset(50)) == [
        Truncate(Offset(50)),
        StoreEpochs(),
        AcknowledgeEnd(Offset(50)),
    ]
    assert machine.followed(Offset(30), Offset(30)) == [], "an answer that comes twice"
    machine.check_invariants()


def test_a_log_is_not_cut_below_its_highwater_mark_and_says_what_to_do() -> None:
    machine = follower()
    assert machine.followed(Offset(19), Offset(19)) == [RefuseCut(Offset(19))]
    assert (machine.agrees, machine.log.end, machine.log.highwater) == (False, 100, 20)
    assert "up to offset 20 are committed" in machine.log.refusal
    assert "only those before 19" in machine.log.refusal
    assert "`octopi-node partitions recover`" in machine.log.refusal
    assert "with an empty data directory" in machine.log.refusal
    data = batch()
    assert machine.receive(Offset(100), Epoch(3), data, scan(data), Offset(100)) == []
    machine.check_invariants()


def test_flushed_records_that_are_not_committed_may_be_cut() -> None:
    machine = follower()
    machine.log.flushed(Offset(100))
    assert machine.followed(Offset(20), Offset(20))[0] == Truncate(Offset(20))


def test_a_log_is_cut_below_its_highwater_mark_once_the_loss_was_accepted_and_keeps_the_bytes() -> (
    None
):
    machine = follower()
    machine.followed(Offset(19), Offset(19))
    assert machine.followed(Offset(19), Offset(19), loss_accepted=True) == [
        Truncate(Offset(19), keeps=True),
        StoreEpochs(),
        AcknowledgeEnd(Offset(19)),
    ]
    assert (machine.log.end, machine.log.highwater, machine.log.refusal) == (19, 19, "")
    machine.check_invariants()


@pytest.mark.parametrize(("keep", "begin"), [(101, 101), (50, 49)])
def test_an_answer_of_a_leader_that_does_not_fit_the_log_is_refused(keep: int, begin: int) -> None:
    machine = follower()
    with pytest.raises(ProtocolError):
        machine.followed(Offset(keep), Offset(begin))
    machine.check_invariants()
    assert machine.log.end == 100


def test_a_log_that_ends_before_the_leaders_start_begins_anew_there() -> None:
    machine = follower()
    assert machine.followed(Offset(100), Offset(500)) == [
        Restart(Offset(500)),
        StoreEpochs(),
        AcknowledgeEnd(Offset(500)),
    ]
    assert (machine.log.start, machine.log.highwater, machine.log.end) == (500, 500, 500)


def test_a_follower_takes_over_epochs_and_sequences_of_records_that_it_will_not_get() -> None:
    machine, past = follower(), PriorState(EpochHistory.load([[1, 0], [2, 300]]))
    machine.followed(Offset(100), Offset(500), past)
    assert (machine.log.epochs, machine.log.sequences) == (past.epochs, past.sequences)
    assert machine.log.epochs.epoch_at(Offset(400)) == 2


def test_nothing_is_taken_before_the_logs_agree() -> None:
    machine, data = follower(), batch()
    assert machine.receive(Offset(100), Epoch(3), data, scan(data), Offset(100)) == []
    assert machine.log.highwater == 20


def test_records_are_appended_in_order_and_the_highwater_mark_follows() -> None:
    machine, data = follower(), batch()
    machine.followed(Offset(100), Offset(100))
    found, end = scan(data), Offset(100 + len(data))
    effects = machine.receive(Offset(100), Epoch(3), data, found, end)
    assert effects == [StoreEpochs(), AppendReplicated(data, found)]
    assert machine.replicated(found) == [AcknowledgeEnd(end), PublishHighwater(end)]
    again = machine.receive(Offset(100), Epoch(3), data, found, end)
    assert again == [], "the same records again"
    assert machine.receive(Offset(900), Epoch(3), data, found, end) == [], "some are missing"
    machine.check_invariants()


def test_a_highwater_mark_beyond_the_log_is_published_as_its_end() -> None:
    machine = follower()
    machine.followed(Offset(100), Offset(100))
    nothing = scan(b"")
    effects = machine.receive(Offset(700), Epoch(3), b"", nothing, Offset(700))
    assert effects == [PublishHighwater(Offset(100))]


def test_a_follower_that_has_to_flush_acknowledges_after_the_flush() -> None:
    machine, data = follower(durable=True), batch()
    machine.followed(Offset(100), Offset(100))
    found = scan(data)
    machine.receive(Offset(100), Epoch(3), data, found, Offset(0))
    assert machine.replicated(found) == [FlushLog()]
    assert machine.flushed(machine.log.end) == [AcknowledgeEnd(machine.log.end)]


def test_a_log_that_dropped_its_records_agrees_with_any_answer_of_its_leader() -> None:
    """There may be no epoch that both know."""

    def dropped() -> LogFollower:
        log = LogState(Offset(100), Offset(100), Offset(100), start=Offset(100))
        return LogFollower(Epoch(3), log, durable=False)

    assert dropped().followed(Offset(0), Offset(100)) == [AcknowledgeEnd(Offset(100))]
    for begin in (Offset(150), Offset(40)):
        machine = dropped()
        assert machine.followed(Offset(0), begin) == [
            Restart(begin),
            StoreEpochs(),
            AcknowledgeEnd(begin),
        ]
        machine.check_invariants()


def test_records_of_an_older_epoch_behind_newer_ones_are_refused_with_the_reason() -> None:
    machine = follower()
    machine.followed(Offset(100), Offset(100))
    data = batch()
    with pytest.raises(ProtocolError, match="epoch 1 behind those of epoch 2"):
        machine.receive(Offset(100), Epoch(1), data, scan(data), Offset(0))
    assert machine.receive(Offset(100), Epoch(3), data, scan(data), Offset(0))


def test_an_empty_log_takes_over_the_history_of_a_leader_that_begins_at_the_same_offset() -> None:
    """Retention left nothing on either side, and they had parted before."""
    log = LogState(*(Offset(100),) * 3, epochs=EpochHistory.load([[1, 0], [2, 50]]))
    log.start = Offset(100)
    machine, past = LogFollower(Epoch(4), log, durable=False), EpochHistory.load([[1, 0], [3, 40]])
    assert machine.followed(Offset(40), Offset(100), PriorState(past)) == [
        Restart(Offset(100)),
        StoreEpochs(),
        AcknowledgeEnd(Offset(100)),
    ]
    assert log.epochs.dump() == [[1, 0], [3, 40]]
    machine.check_invariants()
