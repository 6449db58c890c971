"""Which epoch wrote which stretch of a log."""

from hypothesis import given, strategies as st

from octopi.identifiers import Epoch, Offset
from octopi.replication.epoch_history import EpochHistory, divergence


def test_an_epoch_that_wrote_nothing_leaves_no_trace() -> None:
    history = EpochHistory()
    history.begin(Epoch(1), Offset(0))
    history.begin(Epoch(2), Offset(100))
    history.begin(Epoch(5), Offset(100))
    assert history.dump() == [[1, 0], [5, 100]]
    assert history.epoch_at(Offset(99)) == 1
    assert history.epoch_at(Offset(100)) == 5


def fork(entries: list[tuple[int, int]], offset: int, epoch: int, end: int) -> int | None:
    """What a leader says whose log ends at *end*."""
    known = EpochHistory.load(entries)
    return known.fork(Offset(offset), Epoch(epoch), Offset(end), is_leader=True)


def test_a_place_is_in_the_log_if_the_record_that_ends_there_is_of_its_epoch() -> None:
    entries = [(1, 0), (3, 100), (4, 150)]
    assert fork(entries, 0, 3, 200) is None
    assert fork(entries, 100, 1, 200) is None
    assert fork(entries, 101, 3, 200) is None
    assert fork(entries, 150, 3, 200) is None
    assert fork(entries, 200, 4, 200) is None


def test_a_log_forks_where_the_records_of_the_epoch_end() -> None:
    entries = [(1, 0), (3, 100), (4, 150)]
    assert fork(entries, 101, 1, 200) == 100
    assert fork(entries, 500, 1, 200) == 100
    assert fork(entries, 500, 3, 200) == 150
    assert fork(entries, 500, 4, 200) == 200


def test_a_log_without_records_of_the_epoch_forks_where_older_ones_end() -> None:
    assert fork([(1, 0), (3, 100)], 150, 2, 200) == 100
    assert fork([(3, 0)], 150, 2, 200) == 0
    assert fork([], 150, 2, 0) == 0


def test_a_log_with_older_records_in_the_place_forks_where_these_begin() -> None:
    assert fork([(1, 0), (2, 40), (4, 100)], 80, 3, 200) == 40
    assert fork([(1, 0), (2, 40)], 80, 3, 200) == 40


def test_what_a_history_does_not_know_is_not_checked() -> None:
    assert fork([(5, 300)], 200, 2, 400) is None
    assert fork([(5, 300)], 300, 2, 400) is None
    assert fork([(5, 300)], 301, 2, 400) == 300
    assert fork([], 100, 2, 400) is None


def test_a_follower_tells_a_fork_only_where_it_is_sure() -> None:
    """What it lacks at its end may be on its way."""
    known = EpochHistory.load([(1, 0), (3, 100)])

    def says(offset: int, epoch: int) -> Offset | None:
        return known.fork(Offset(offset), Epoch(epoch), Offset(200), is_leader=False)

    assert says(250, 3) is None
    assert says(250, 4) is None
    assert says(150, 1) == 100
    assert says(250, 1) == 100


def test_the_epoch_before_an_offset_is_that_of_the_record_which_ends_there() -> None:
    known = EpochHistory.load([(1, 0), (3, 100)])
    assert [known.epoch_before(Offset(at)) for at in (0, 1, 100, 101)] == [0, 1, 1, 3]


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
def test_logs_part_where_their_epochs_do(
    common: list[int], mine: list[int], theirs: list[int], unwritten: int
) -> None:
    common.sort()
    one, other = common + sorted(mine), common + sorted(theirs)
    left, right = history(one), history(other)
    if unwritten:
        left.begin(Epoch(10 + unwritten), Offset(len(one)))
    ends = left.ends(Offset(len(one))), right.ends(Offset(len(other)))
    assert divergence(*ends) == divergence(*ends[::-1]) == len(common)


def test_of_an_epoch_that_both_know_the_shorter_stretch_is_common() -> None:
    left, right = history([1, 1, 2, 2, 2]), history([1, 1, 2, 3, 3])
    assert divergence(left.ends(Offset(5)), right.ends(Offset(5))) == 3
    assert divergence(left.ends(Offset(5)), history([4]).ends(Offset(1))) == 0
