"""A consumer beside logs that lose what it read: anchors alone tell it how far they agree.

The logs are replicas of each other by the rules of the protocol, with one exception, which is
what this is about: any of them may lose any of its records and lead all the same.
"""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octopi.clients.consuming.trail import Trail
from octopi.identifiers import Epoch, Offset
from octopi.position import Anchor, Place, epochs_of
from octopi.replication.epoch_history import EpochHistory

REPLICAS = 2
Record = tuple[int, int]
"""The epoch that wrote it, and a number of its own.  A record is one byte long."""


def history(log: list[Record]) -> EpochHistory:
    made = EpochHistory()
    for at, (epoch, _) in enumerate(log):
        made.begin(Epoch(epoch), Offset(at))
    return made


def common(log: list[Record], other: list[Record]) -> int:
    """How many leading records are the same."""
    pairs = zip(log, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(log), len(other)))


class Forks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.logs: list[list[Record]] = [[] for _ in range(REPLICAS)]
        self.agree = {0}
        """Those whose logs are prefixes of the leader's; the leader is one of them."""
        self.leader: int | None = 0
        self.epoch = 1
        self.count = 0
        self.read: list[Record] = []
        self.trail = Trail(Place(Offset(0)))
        self.token = Place(Offset(0))

    @precondition(lambda self: self.leader is not None)
    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        assert self.leader is not None
        for _ in range(count):
            self.count += 1
            self.logs[self.leader].append((self.epoch, self.count))

    @precondition(lambda self: self.leader is not None)
    @rule(replica=st.integers(0, REPLICAS - 1), lag=st.integers(0, 5))
    def replicate(self, replica: int, lag: int) -> None:
        assert self.leader is not None
        if replica != self.leader:
            leaders = self.logs[self.leader]
            same = common(leaders, self.logs[replica])
            self.logs[replica] = leaders[: max(same, len(leaders) - lag)]
            self.agree.add(replica)

    @rule(replica=st.integers(0, REPLICAS - 1), count=st.integers(1, 8))
    def lose(self, replica: int, count: int) -> None:
        """As a failure of power does: then it has to be told anew who leads."""
        del self.logs[replica][-count:]
        self.agree.discard(replica)
        if replica == self.leader:
            self.leader = None
            self.agree.clear()

    @rule(replica=st.integers(0, REPLICAS - 1))
    def elect(self, replica: int) -> None:
        self.epoch += 1
        self.leader = replica
        self.agree = {replica}

    @precondition(lambda self: self.agree)
    @rule(data=st.data(), count=st.integers(0, 9))
    def consume(self, data: st.DataObject, count: int) -> None:
        """At any replica that serves: ask until it agrees, and read on in stretches of epochs."""
        replica = data.draw(st.sampled_from(sorted(self.agree)))
        log = self.logs[replica]
        knows = history(log)
        is_leader = replica == self.leader
        truth = common(log, self.read)
        refused = False
        while True:
            place = self.trail.place
            if not place.anchor:
                break
            found = knows.fork(
                place.offset, epochs_of(place.anchor), Offset(len(log)), is_leader=is_leader
            )
            if found is None:
                break
            refused = True
            self.trail.fall_back(found)
        if not refused and self.trail.offset > len(log):
            assert not is_leader
            return  # it may only lag
        # What a lagging follower refuses is refused by the leader as well, and to the same
        # place, unless the log that they agree on goes on behind the follower's.
        assert self.trail.offset == truth
        assert refused == (truth < len(self.read))
        del self.read[truth:]
        while count and len(self.read) < len(log):
            at = Offset(len(self.read))
            end = min(at + count, knows.end_of_epoch_at(at, Offset(len(log))))
            self.read += log[at:end]
            self.trail.read(Offset(end), knows.anchor_behind(at))
            count -= end - at

    @precondition(lambda self: self.leader is not None)
    @rule()
    def a_stored_place_is_accepted_only_where_all_before_it_is_the_same(self) -> None:
        assert self.leader is not None
        log = self.logs[self.leader]
        place = self.trail.place
        if not place.anchor:
            return
        truth, epochs = common(log, self.read), epochs_of(place.anchor)
        found = history(log).fork(place.offset, epochs, Offset(len(log)), is_leader=True)
        if found is None:
            assert truth == len(self.read)
        else:
            assert found <= truth < len(self.read) == place.offset
            if {epoch for epoch, _ in epochs[:3]} & {epoch for epoch, _ in log}:
                assert found == truth  # one leader wrote all records of an epoch

    @invariant()
    def the_trail_is_one(self) -> None:
        self.trail.check_invariants()
        assert self.trail.offset == len(self.read)
        if self.read:
            assert epochs_of(self.trail.place.anchor)[0][0] == self.read[-1][0]


Forks.TestCase.settings = settings(max_examples=400, stateful_step_count=20)
TestTheTrailAgainstLogsThatLoseRecords = Forks.TestCase


def test_without_a_trail_a_consumer_falls_back_to_the_offset_that_its_broker_names() -> None:
    trail = Trail(Place(Offset(500), Anchor("5-400")))
    trail.fall_back(Offset(350))
    assert trail.place == Place(Offset(350))


def test_a_consumer_falls_back_epoch_by_epoch() -> None:
    first, second = Anchor("1-0"), Anchor("2-60.1-0")
    trail = Trail(Place(Offset(30), first))
    trail.read(Offset(60), first)
    trail.read(Offset(150), second)
    trail.fall_back(Offset(100))
    assert trail.place == Place(Offset(100), second)
    trail.fall_back(Offset(0))
    assert trail.place == Place(Offset(60), first)
    trail.fall_back(Offset(40))
    assert trail.place == Place(Offset(40), first)
    trail.fall_back(Offset(20))
    assert trail.place == Place(Offset(20))


def test_a_trail_knows_the_anchor_of_each_offset_that_was_passed() -> None:
    first, second = Anchor("1-0"), Anchor("2-60.1-0")
    trail = Trail(Place(Offset(30), first))
    trail.read(Offset(60), first)
    trail.read(Offset(150), second)
    passed = {30: first, 31: first, 60: first, 61: second, 150: second}
    assert {one: trail.anchor_at(Offset(one)) for one in passed} == passed
    assert [trail.anchor_at(Offset(one)) for one in (29, 151)] == ["", ""]
    assert Trail(Place(Offset(0))).anchor_at(Offset(0)) == ""


def test_a_trail_remembers_a_bounded_number_of_epochs() -> None:
    trail = Trail(Place(Offset(0)))
    for epoch in range(1, 300):
        trail.read(Offset(10 * epoch), Anchor(f"{epoch}-{10 * epoch - 10}"))
    for _ in range(99):
        trail.fall_back(Offset(0))
    assert trail.place == Place(Offset(2000), Anchor("200-1990"))
    trail.fall_back(Offset(0))
    assert trail.place == Place(Offset(0))
