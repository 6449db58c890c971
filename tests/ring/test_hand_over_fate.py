"""Whether a hand-over took place is decided once, in whatever order brokers ask each other."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from octopi.identifiers import BrokerId, ClusterId, DirectoryId, Incarnation, PartitionId
from octopi.ring.cluster_record import ClusterRecord, Growth, PartitionKind
from octopi.ring.founders import founder_point
from octopi.ring.hand_over_fate import HandOverFate, ToldState, fate, spared_max
from octopi.wire.ring import RingNode

OVER, GIVEN_UP = ToldState(True, False, False), ToldState(False, True, True)
OPEN, BOUND = ToldState(False, False, True), ToldState(False, False, False)


def record(brokers: int, replicas: int = 3) -> ClusterRecord:
    nodes = tuple(
        RingNode(
            BrokerId(number),
            DirectoryId(f"{number:016x}"),
            founder_point(BrokerId(number), brokers),
            "",
            f"ws://b{number}:1",
            Incarnation(1),
        )
        for number in range(1, brokers + 1)
    )
    growth = Growth(PartitionKind.LOG, PartitionId(0), 8, replicas, nodes)
    return ClusterRecord(ClusterId("0" * 16), 8, (growth,), brokers, taken_over=8)


def told(*states: ToldState) -> dict[BrokerId, ToldState]:
    return {BrokerId(number): state for number, state in enumerate(states, 2)}


@pytest.mark.parametrize(
    ("brokers", "replicas", "spared"),
    [(1, 3, 0), (2, 3, 0), (3, 3, 1), (4, 3, 1), (5, 3, 2), (64, 3, 2), (64, 2, 1), (9, 1, 0)],
)
def test_as_many_are_spared_as_are_no_majority_of_any_acceptors(
    brokers: int, replicas: int, spared: int
) -> None:
    one = record(brokers, replicas)
    assert spared_max(one) == spared
    acceptors = one.first_acceptors(PartitionKind.LOG, PartitionId(0))
    assert acceptors is not None
    assert spared < len(acceptors) // 2 + 1


def test_who_hears_of_one_that_took_over_takes_over_as_well() -> None:
    assert fate(record(3), False, told(OVER), is_patient=True) is HandOverFate.TAKE_OVER
    assert (
        fate(record(5), False, told(OPEN, BOUND, OVER), is_patient=True) is HandOverFate.TAKE_OVER
    )


def test_who_has_given_up_takes_over_only_when_giving_up_can_not_succeed_any_more() -> None:
    assert fate(record(3), True, told(OVER), is_patient=False) is HandOverFate.WAIT
    assert fate(record(3), True, told(OVER, OVER), is_patient=False) is HandOverFate.TAKE_OVER
    assert fate(record(3), True, told(OVER, OPEN), is_patient=False) is HandOverFate.GIVE_UP


def test_all_others_are_waited_for_until_patience_ends() -> None:
    assert fate(record(3), False, told(OPEN), is_patient=True) is HandOverFate.WAIT
    assert fate(record(3), False, told(OPEN), is_patient=False) is HandOverFate.GIVE_UP
    assert fate(record(3), False, told(OPEN, OPEN), is_patient=True) is HandOverFate.GIVE_UP
    assert fate(record(3), False, {}, is_patient=False) is HandOverFate.WAIT


def test_it_is_given_up_when_no_majority_of_acceptors_is_left() -> None:
    assert fate(record(3), True, told(GIVEN_UP), is_patient=True) is HandOverFate.GIVEN_UP
    assert fate(record(5), True, told(GIVEN_UP), is_patient=True) is HandOverFate.WAIT
    assert fate(record(5), True, told(GIVEN_UP, GIVEN_UP), is_patient=True) is HandOverFate.GIVEN_UP


def test_who_has_another_register_is_not_counted_on() -> None:
    assert fate(record(3), False, told(BOUND, BOUND), is_patient=False) is HandOverFate.WAIT
    assert fate(record(3), True, told(BOUND, BOUND), is_patient=False) is HandOverFate.WAIT


# --- walks -----------------------------------------------------------------------------------


@attrs.define
class Walker:
    """A broker: what it has stored, and what it has heard in the question that it asks."""

    has_taken_over: bool = False
    has_given_up: bool = False
    is_with_another: bool = False
    """Whether it reports to another register."""
    heard: dict[BrokerId, ToldState] = attrs.field(factory=dict)

    @property
    def told(self) -> ToldState:
        return ToldState(self.has_taken_over, self.has_given_up, not self.has_taken_over)


def walk(count: int, seed: int, *, forgets: bool = False) -> tuple[int, bool]:
    """Have brokers ask each other in a random order, while the register that hands over tells some
    of them; return how many took over, and whether any reports to another register.

    *forgets*: whether promises are not kept (a mistake)."""
    random, one = Random(seed), record(count)
    brokers = {BrokerId(number): Walker() for number in range(1, count + 1)}
    told_max = random.randint(0, count)
    for _ in range(40 * count):
        own = random.choice(list(brokers))
        walker = brokers[own]
        if walker.has_taken_over or walker.is_with_another:
            continue
        match random.randrange(12):
            case 0:  # the register that has handed over
                if told_max > 0 and not walker.has_given_up:
                    told_max -= 1
                    walker.has_taken_over = True
            case 1:  # it asks anew, or was started again
                walker.heard.clear()
            case 2 | 3 | 4:  # what it has heard is enough, or not
                found = fate(one, walker.has_given_up, walker.heard, is_patient=False)
                if found is HandOverFate.TAKE_OVER:
                    walker.has_taken_over = True
                elif found is HandOverFate.GIVE_UP:
                    walker.has_given_up = True
                elif found is HandOverFate.GIVEN_UP:
                    walker.is_with_another = True
            case _:  # another one answers
                other = random.choice([name for name in brokers if name != own])
                if walker.has_given_up and not brokers[other].has_taken_over:
                    brokers[other].has_given_up = True
                walker.heard[other] = brokers[other].told
                if forgets and not brokers[other].is_with_another:
                    brokers[other].has_given_up = False
    over = sum(walker.has_taken_over for walker in brokers.values())
    return over, any(walker.is_with_another for walker in brokers.values())


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7])
def test_no_majority_takes_over_where_any_broker_reports_to_another_register(count: int) -> None:
    ends = [walk(count, seed) for seed in range(1_000)]
    for over, another in ends:
        assert not another or over <= spared_max(record(count))
    assert any(another for _, another in ends)
    assert any(over == count for over, _ in ends)


def test_a_broker_that_forgets_its_promise_is_noticed() -> None:
    ends = [walk(3, seed, forgets=True) for seed in range(1_000)]
    assert any(another and over > spared_max(record(3)) for over, another in ends)
