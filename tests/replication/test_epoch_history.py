"""Which epoch wrote which stretch of a log."""

from hypothesis import given, settings, strategies as st

from octopi.identifiers import Epoch, Offset
from octopi.position import BegunEpoch, epochs_of
from octopi.replication.epoch_history import EpochHistory, divergence


def test_an_epoch_without_records_is_left_out_of_the_history() -> None:
    history = EpochHistory()
    history.begin(Epoch(1), Offset(0))
    history.begin(Epoch(2), Offset(100))
    history.begin(Epoch(5), Offset(100))
    assert history.dump() == [[1, 0], [5, 100]]
    assert history.epoch_at(Offset(99)) == 1
    assert history.epoch_at(Offset(100)) == 5


def fork(
    entries: list[tuple[int, int]], offset: int, read: list[tuple[int, int]], end: int
) -> int | None:
    """What a leader says whose log ends at *end*; *read*: the epochs of a reader, as its anchor
    names them."""
    return EpochHistory.load(entries).fork(Offset(offset), named(read), Offset(end), is_leader=True)


def named(read: list[tuple[int, int]]) -> list[BegunEpoch]:
    return [(Epoch(epoch), Offset(start)) for epoch, start in read]


def test_a_position_is_in_the_log_if_the_record_before_it_is_of_the_same_epoch() -> None:
    entries = [(1, 0), (3, 100), (4, 150)]
    assert fork(entries, 100, [(1, 0)], 200) is None
    assert fork(entries, 101, [(3, 100), (1, 0)], 200) is None
    assert fork(entries, 150, [(3, 100), (1, 0)], 200) is None
    assert fork(entries, 200, [(4, 150), (3, 100), (1, 0)], 200) is None


def test_a_log_forks_where_the_records_of_the_epoch_end() -> None:
    entries = [(1, 0), (3, 100), (4, 150)]
    assert fork(entries, 101, [(1, 0)], 200) == 100
    assert fork(entries, 500, [(1, 0)], 200) == 100
    assert fork(entries, 500, [(3, 100), (1, 0)], 200) == 150
    assert fork(entries, 500, [(4, 150), (3, 100), (1, 0)], 200) == 200


def test_a_reader_of_an_epoch_that_the_log_never_had_goes_back_to_where_that_began() -> None:
    """The log has more of the epoch before than the reader's log had when the other one began."""
    assert fork([(1, 0), (3, 110), (4, 160)], 120, [(2, 50), (1, 0)], 200) == 50
    assert fork([(1, 0)], 120, [(2, 50), (1, 0)], 200) == 50


def test_a_reader_of_several_lost_epochs_goes_back_to_where_the_first_of_them_began() -> None:
    entries = [(1, 0), (5, 110)]
    assert fork(entries, 120, [(3, 90), (2, 50), (1, 0)], 200) == 50
    assert fork(entries, 190, [(4, 100), (3, 90), (2, 50), (1, 0)], 200) == 0


def test_a_log_that_ends_before_a_lost_epoch_began_forks_where_its_own_records_end() -> None:
    assert fork([(1, 0), (3, 40)], 120, [(2, 50), (1, 0)], 200) == 40
    assert fork([(1, 0)], 120, [(2, 50), (1, 0)], 40) == 40


def test_a_log_with_none_of_the_epochs_that_were_read_forks_at_its_beginning() -> None:
    assert fork([(3, 0)], 150, [(2, 0)], 200) == 0
    assert fork([], 150, [(2, 0)], 0) == 0
    assert fork([(1, 0), (3, 100)], 150, [(2, 0)], 200) == 0


def test_a_reader_goes_back_to_where_an_epoch_began_if_its_anchor_leaves_out_others() -> None:
    """Of epoch 4 the reader may have had one record; of epochs 1 to 3, all up to there."""
    read = [(8, 80), (7, 70), (6, 60), (4, 40), (1, 0)]
    assert fork([(1, 0), (2, 10), (3, 20), (4, 40)], 85, read, 200) == 40
    assert fork([(1, 0), (2, 10)], 85, read, 200) == 0


def test_an_anchor_that_contradicts_the_log_sends_its_reader_to_the_beginning() -> None:
    """No broker gave it: a record of epoch 4 can't end before the first of that epoch begins."""
    assert fork([(1, 0), (4, 100)], 80, [(4, 50)], 200) == 0


def test_offsets_before_the_known_history_are_not_checked() -> None:
    assert fork([(5, 300)], 200, [(2, 100)], 400) is None
    assert fork([(5, 300)], 300, [(2, 100)], 400) is None
    assert fork([(5, 300)], 301, [(2, 100)], 400) == 0
    assert fork([], 100, [(2, 50)], 400) is None


def test_a_follower_tells_a_fork_only_where_it_is_sure() -> None:
    """What it lacks at its end may be on its way."""
    known = EpochHistory.load([(1, 0), (3, 100)])

    def says(offset: int, *read: tuple[int, int]) -> Offset | None:
        return known.fork(Offset(offset), named(list(read)), Offset(200), is_leader=False)

    assert says(250, (3, 100), (1, 0)) is None
    assert says(250, (4, 210), (3, 100), (1, 0)) is None
    assert says(150, (1, 0)) == 100
    assert says(250, (1, 0)) == 100
    assert says(250, (2, 50), (1, 0)) == 50


def test_the_anchor_of_a_place_begins_with_the_epoch_of_the_record_that_ends_there() -> None:
    known = EpochHistory.load([(1, 0), (3, 100)])
    at = {at: known.anchor_before(Offset(at)) for at in (0, 1, 100, 101)}
    assert at == {0: "", 1: "1-0", 100: "1-0", 101: "3-100.1-0"}
    assert [known.anchor_behind(Offset(at)) for at in (0, 99, 100)] == ["1-0", "1-0", "3-100.1-0"]


def test_an_anchor_names_a_few_epochs() -> None:
    known = EpochHistory.load([(epoch, 10 * epoch) for epoch in range(1, 31)])
    names = ".".join(f"{epoch}-{10 * epoch}" for epoch in (30, 29, 28, 26, 22, 14))
    assert known.anchor_before(Offset(500)) == names


def test_an_anchor_is_made_anew_when_epochs_change() -> None:
    known = EpochHistory.load([(1, 0), (2, 50)])
    assert known.anchor_before(Offset(60)) == "2-50.1-0"
    known.truncate(Offset(50))
    known.begin(Epoch(3), Offset(50))
    assert known.anchor_before(Offset(60)) == "3-50.1-0"
    known.begin(Epoch(4), Offset(50))
    assert known.anchor_before(Offset(60)) == "4-50.1-0"


@st.composite
def logs_of_one_partition(draw: st.DrawFn) -> list[list[int]]:
    """Logs as epochs of records of one byte.  Each epoch has one leader; it held any beginning of
    any log before it, and wrote some records."""
    logs: list[list[int]] = [[]]
    for epoch in range(1, draw(st.integers(2, 25)) + 1):
        base = draw(st.sampled_from(logs[-4:]))
        kept = draw(st.integers(max(0, len(base) - 6), len(base)))
        logs.append(base[:kept] + [epoch] * draw(st.integers(1, 4)))
    return logs


@st.composite
def logs_that_part_in_an_epoch(draw: st.DrawFn) -> list[list[int]]:
    """Two logs of many epochs that have the same ones up to one epoch, and of that one perhaps not
    as many records."""
    lengths = st.integers(1, 2)
    trunk = [epoch for epoch in range(1, draw(st.integers(1, 9))) for _ in range(draw(lengths))]
    last = [max(trunk, default=0) + 1]
    logs = [trunk + last * draw(st.integers(1, 4)) for _ in range(2)]
    for epoch in range(last[0] + 1, last[0] + draw(st.integers(1, 12))):
        logs[draw(st.integers(0, 1))] += [epoch] * draw(lengths)
    return logs


def common(one: list[int], other: list[int]) -> int:
    """How many of their first records are the same: those of one epoch at one offset are."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@settings(max_examples=300)
@given(logs_of_one_partition() | logs_that_part_in_an_epoch(), st.data())
def test_a_reader_never_goes_on_behind_a_record_that_it_was_not_given(
    logs: list[list[int]], data: st.DataObject
) -> None:
    """Whatever was lost: a position made on one log, and resumed on another one."""
    read = data.draw(st.sampled_from([log for log in logs if log]))
    now = data.draw(st.sampled_from(logs))
    now = now[: data.draw(st.integers(0, len(now)))]
    offset = data.draw(st.integers(1, len(read)))
    read = read[:offset]
    epochs = epochs_of(history(read).anchor_before(Offset(offset)))
    known = history(now)
    found = known.fork(Offset(offset), epochs, Offset(len(now)), is_leader=True)
    truth = common(read, now)
    if found is None:
        assert truth == offset
        return
    assert found <= truth < offset, "a record of the log would be skipped"
    first_three = {epoch for epoch, _ in epochs[:3]}
    if first_three & set(now) or not set(read) & set(now):
        assert found == truth, "what both have would be read again"
    elif {epoch for epoch, _ in epochs} & set(now):
        assert found == max(start for epoch, start in epochs if epoch in now)
    else:
        assert found == 0


@given(logs_of_one_partition(), st.data())
def test_a_lagging_follower_names_the_same_fork_as_its_leader_or_none(
    logs: list[list[int]], data: st.DataObject
) -> None:
    """Or nothing: then the reader asks the leader."""
    read, now = data.draw(st.sampled_from(logs[1:])), data.draw(st.sampled_from(logs))
    offset = data.draw(st.integers(1, len(read)))
    epochs = epochs_of(history(read).anchor_before(Offset(offset)))
    end = data.draw(st.integers(0, len(now)))
    said = [
        history(log).fork(Offset(offset), epochs, Offset(len(log)), is_leader=log is now)
        for log in (now[:end], now)
    ]
    assert said[0] == said[1] or (said[0] is None and offset > end)


def test_beginning_an_epoch_twice_changes_nothing() -> None:
    history = EpochHistory()
    history.begin(Epoch(3), Offset(10))
    history.begin(Epoch(3), Offset(50))
    assert history.dump() == [[3, 10]]
    assert history.epoch_at(Offset(9)) == 0


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=8), st.integers(0, 30))
def test_truncation_forgets_exactly_the_epochs_behind_the_new_end(
    steps: list[tuple[int, int]], cut: int
) -> None:
    history = EpochHistory()
    truth: list[int] = []
    epoch = 0
    for grow, length in steps:
        epoch += grow
        history.begin(Epoch(epoch), Offset(len(truth)))
        truth += [epoch] * length
    cut = min(cut, len(truth))
    history.truncate(Offset(cut))
    history.check_invariants()
    assert [history.epoch_at(Offset(at)) for at in range(cut)] == truth[:cut]
    assert history.latest == (truth[cut - 1] if cut else 0)
    assert EpochHistory.load(history.dump()) == history


def history(truth: list[int]) -> EpochHistory:
    made = EpochHistory()
    for at, epoch in enumerate(truth):
        made.begin(Epoch(epoch), Offset(at))
    return made


@given(
    st.lists(st.integers(1, 3), max_size=6),
    st.lists(st.integers(4, 6), max_size=5),
    st.lists(st.integers(7, 9), max_size=5),
    st.integers(0, 3),
)
def test_logs_diverge_where_their_epochs_diverge(
    common: list[int], mine: list[int], theirs: list[int], unwritten: int
) -> None:
    common.sort()
    one, other = common + sorted(mine), common + sorted(theirs)
    left, right = history(one), history(other)
    if unwritten:
        left.begin(Epoch(10 + unwritten), Offset(len(one)))
    ends = left.ends(Offset(len(one))), right.ends(Offset(len(other)))
    assert divergence(*ends) == divergence(*ends[::-1]) == len(common)


def test_two_logs_share_the_shorter_stretch_of_an_epoch_that_both_have() -> None:
    left, right = history([1, 1, 2, 2, 2]), history([1, 1, 2, 3, 3])
    assert divergence(left.ends(Offset(5)), right.ends(Offset(5))) == 3
    assert divergence(left.ends(Offset(5)), history([4]).ends(Offset(1))) == 0
