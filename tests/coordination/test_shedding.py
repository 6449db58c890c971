"""Which leaderships move by load: the rules one by one, and what comes of them in a cluster."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from octopi.coordination.loads import IDLE_LOAD, Loads, load_of
from octopi.coordination.shedding import Move, Shedding, SheddingRules, WeighedPartition
from octopi.identifiers import BrokerId, PartitionId
from octopi.limits import LOAD_UNKNOWN_S, MIB, SHED_LOOKS, SHED_REST_S
from octopi.wire.messages import PartitionLoad
from tests.coordination.shedding_world import CHANGE_S, MINUTE, Kind, World

BROKERS = [BrokerId(one) for one in (1, 2, 3)]


def led(partition: int, leader: int, load: float, *others: int) -> WeighedPartition:
    able = [BrokerId(one) for one in others or (1, 2, 3) if one != leader]
    return WeighedPartition(PartitionId(partition), BrokerId(leader), able, load)


def looks(
    shedding: Shedding, partitions: list[WeighedPartition], count: int, at: float = 0.0
) -> Any:  # noqa: ANN401
    """The last of so many looks, five seconds apart."""
    found = [shedding.look(at + 5.0 * one, partitions, BROKERS) for one in range(count)]
    return found[-1]


UNEVEN = [led(0, 1, 2.0), led(1, 1, 1.0), led(2, 2, 1.5), led(3, 3, 1.5)]
"""Broker 1 has 3.0 where the average is 2.0; each of its partitions could be led by the others."""


# --- loads ---------------------------------------------------------------------------------


def test_a_mebibyte_a_second_is_as_much_work_as_a_thousand_readings() -> None:
    assert load_of(MIB, 0) == load_of(0, 1_000) == 1 + IDLE_LOAD
    assert load_of(0, 0) == IDLE_LOAD


def told(partition: int, mib_per_s: float, topic: str = "") -> PartitionLoad:
    return PartitionLoad(PartitionId(partition), round(mib_per_s * MIB), 0, topic)


def test_the_first_report_counts_in_full_and_later_ones_as_an_average_over_a_minute() -> None:
    loads, leaders = Loads(), {PartitionId(0): BrokerId(1)}
    loads.reported(BrokerId(1), 0.0, [told(0, 10.0)], leaders)
    assert loads.of(PartitionId(0)) == pytest.approx(10.01)
    for second in range(5, 65, 5):
        loads.reported(BrokerId(1), float(second), [told(0, 0.0)], leaders)
    assert loads.of(PartitionId(0)) == pytest.approx(10.0 / 2.71828 + 0.01, abs=0.01)


def test_a_partition_keeps_its_load_when_another_broker_leads_it() -> None:
    loads = Loads()
    loads.reported(BrokerId(1), 0.0, [told(0, 10.0, "orders")], {PartitionId(0): BrokerId(1)})
    leaders = {PartitionId(0): BrokerId(2)}
    assert loads.of_brokers(leaders, BROKERS) == pytest.approx({1: 0.0, 2: 10.01, 3: 0.0})
    loads.reported(BrokerId(2), 5.0, [told(0, 10.0)], leaders)
    assert loads.of(PartitionId(0)) == pytest.approx(10.01)
    assert loads.busiest_topic(PartitionId(0)) == "orders"


def test_what_a_broker_reports_of_a_partition_that_it_does_not_lead_does_not_count() -> None:
    loads = Loads()
    loads.reported(BrokerId(1), 0.0, [told(0, 10.0), told(7, 1.0)], {PartitionId(0): BrokerId(2)})
    assert loads.of(PartitionId(0)) == loads.of(PartitionId(7)) == IDLE_LOAD


def test_loads_are_known_while_every_broker_reports() -> None:
    loads = Loads()
    loads.reported(BrokerId(1), 0.0, [], {})
    loads.reported(BrokerId(2), 3.0, [], {})
    assert loads.are_known([BrokerId(1), BrokerId(2)], LOAD_UNKNOWN_S)
    assert not loads.are_known([BrokerId(1), BrokerId(2)], LOAD_UNKNOWN_S + 0.1)
    assert not loads.are_known(BROKERS, 3.0)


# --- the rules -----------------------------------------------------------------------------


def test_the_partition_moves_after_which_the_greater_of_the_two_loads_is_least() -> None:
    found = looks(Shedding(SheddingRules()), UNEVEN, SHED_LOOKS)
    assert found.move == Move(PartitionId(1), BrokerId(1), BrokerId(2))


def test_nothing_moves_before_the_third_look_in_a_row() -> None:
    shedding = Shedding(SheddingRules())
    even = [attrs.evolve(one, load=1.0) for one in UNEVEN[1:]]
    assert looks(shedding, UNEVEN, 2).move is None
    assert looks(shedding, even, 1, at=10.0).move is None
    assert looks(shedding, UNEVEN, 2, at=15.0).move is None
    assert looks(shedding, UNEVEN, 1, at=25.0).move is not None


def test_nothing_moves_while_no_broker_has_a_fifth_more_than_the_average() -> None:
    nearly = [led(0, 1, 1.19), led(1, 1, 1.2), led(2, 2, 1.8), led(3, 3, 1.8)]
    assert looks(Shedding(SheddingRules()), nearly, 9).move is None


def test_a_partition_that_was_moved_rests() -> None:
    shedding = Shedding(SheddingRules())
    parts = [attrs.evolve(UNEVEN[0], others=[]), *UNEVEN[1:]]
    moved_at = 5.0 * (SHED_LOOKS - 1)
    assert looks(shedding, parts, SHED_LOOKS).move.partition == 1
    assert shedding.look(moved_at + SHED_REST_S - 1, parts, BROKERS).move is None
    assert shedding.look(moved_at + SHED_REST_S + 1, parts, BROKERS).move.partition == 1  # type: ignore[union-attr]


def test_a_move_that_gains_less_than_a_hundredth_of_the_average_is_not_made() -> None:
    def found(load: float) -> Move | None:
        parts = [led(0, 1, load), led(1, 1, 3.0, 1), led(2, 2, 2.0), led(3, 3, 2.0)]
        move: Move | None = looks(Shedding(SheddingRules()), parts, SHED_LOOKS).move
        return move

    assert found(0.02) is None
    assert found(0.03) is not None


def test_a_partition_only_moves_to_a_broker_that_could_lead_it() -> None:
    parts = [attrs.evolve(one, others=[BrokerId(3)]) for one in UNEVEN]
    assert looks(Shedding(SheddingRules()), parts, SHED_LOOKS).move.successor == 3
    parts = [attrs.evolve(one, others=[BrokerId(9)]) for one in UNEVEN]
    assert looks(Shedding(SheddingRules()), parts, SHED_LOOKS).move is None


def test_a_partition_that_alone_is_too_much_is_hot_and_stays_while_others_move_away() -> None:
    shedding = Shedding(SheddingRules())
    parts = [led(0, 1, 5.0), led(1, 1, 1.0), led(2, 2, 1.0), led(3, 3, 1.0)]
    found = looks(shedding, parts, SHED_LOOKS)
    assert found.hot == [0]
    assert found.move == Move(PartitionId(1), BrokerId(1), BrokerId(2))
    again = shedding.look(20.0, parts, BROKERS)
    assert (again.hot, shedding.hot) == ([], {0}), "it is told once"
    cooler = [attrs.evolve(parts[0], load=3.2), *parts[1:]]
    shedding.look(25.0, cooler, BROKERS)
    assert shedding.hot == {0}, "it is still more than 1.1 times the average"
    shedding.look(30.0, [attrs.evolve(parts[0], load=1.5), *parts[1:]], BROKERS)
    assert shedding.hot == set()


def test_loads_count_from_one_mebibyte_a_second_on_and_until_half_of_that() -> None:
    shedding = Shedding(SheddingRules())

    def goes_by_load(load: float) -> bool:
        shedding.look(0.0, [led(0, 1, load)], BROKERS)
        return shedding.goes_by_load

    assert [goes_by_load(one) for one in (0.9, 1.0, 0.6, 0.4, 0.9)] == [
        *(False, True, True),
        *(False, False),
    ]


def test_partitions_too_light_to_be_moved_by_load_count_by_number() -> None:
    shedding = Shedding(SheddingRules())
    assert shedding.is_light(PartitionId(0)), "nothing is known yet"

    def are_light(load: float) -> tuple[bool, bool]:
        shedding.look(0.0, [led(0, 1, load), led(1, 1, 30.0 - load)], BROKERS)
        return shedding.is_light(PartitionId(0)), shedding.is_light(PartitionId(1))

    assert [are_light(one)[0] for one in (0.09, 0.1, 0.08, 0.07, 0.09)] == [
        *(True, False, False),
        *(True, True),
    ]
    assert are_light(0.1) == (False, False)
    shedding.look(5.0, [led(0, 1, 0.01)], BROKERS)
    assert shedding.is_light(PartitionId(1)), "there is next to nothing to do"


def test_a_broker_alone_and_a_cluster_that_is_not_known_move_nothing() -> None:
    shedding = Shedding(SheddingRules())
    assert [shedding.look(at, UNEVEN, BROKERS[:1]).move for at in (0.0, 5.0, 10.0)] == [None] * 3
    looks(shedding, UNEVEN, 2)
    shedding.unknown()
    assert looks(shedding, UNEVEN, 1, at=10.0).move is None
    assert not Shedding(SheddingRules()).look(0.0, [], []).hot


# --- in a cluster ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["zipf", "warm", "joins", "dies", "shifts", "drifts"])
def test_loads_become_even_within_two_minutes_and_stay_so(kind: Kind, seed: int) -> None:
    began = CHANGE_S if kind in {"dies", "shifts"} else 0.0
    world = World(kind, seed).run(began + 900)
    behind = world.minutes()[round(began / 60) + 2 :]
    assert max(behind) <= 1.25, behind
    late = world.moves_after(began + 120)
    assert len(late) <= 2 * len(behind)
    assert all(sum(one.at <= each.at < one.at + 60 for each in late) <= 2 for one in late)
    assert world.returns() == []
    assert world.shedding.hot == set()


@pytest.mark.parametrize(("kind", "least"), [("steep zipf", 1.41), ("hot", 2.01)])
def test_where_a_partition_is_too_much_for_a_broker_it_is_hot_and_has_that_broker_for_itself(
    kind: Kind, least: float
) -> None:
    world = World(kind, 1).run(900)
    assert world.ratios[-1] == pytest.approx(least, abs=0.01), "as even as leaderships can be"
    assert len(world.moves_after(300)) <= 1
    assert world.returns() == []
    (hot,) = world.shedding.hot
    assert world.leaders.count(world.leaders[hot]) == 1
    assert [one.partition for one in world.moves if one.partition == hot] == []
    assert sum(len(look.hot) for look in world.looks) == 1


def test_loads_that_come_and_go_by_the_minute_move_next_to_nothing() -> None:
    world = World("bursts", 1).run(1_200)
    assert len(world.moves_after(300)) <= 4
    assert world.returns() == []
    assert sum(world.ratios[-10 * MINUTE :]) / (10 * MINUTE) <= 1.25


def test_even_loads_move_nothing() -> None:
    assert World("even", 1).run(600).moves == []


# --- without a rule --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"SHED_LOOKS": 1, "SHED_RATIO": 1.0, "SHED_GAIN": 0.0}, "bursts"),
        ({"SHED_RATIO": 1.0, "SHED_GAIN": 0.0}, "drifts"),
    ],
)
def test_without_its_delays_partitions_go_back_and_forth(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, float], kind: Kind
) -> None:
    for name, value in changed.items():
        monkeypatch.setattr(f"octopi.coordination.shedding.{name}", value)
    world = World(kind, 1).run(600)
    assert len(world.moves_after(120)) > 2 * 8, "more than two a minute"


def test_an_average_that_forgets_at_once_moves_leaderships_for_peaks() -> None:
    world = World("bursts", 1)
    world.loads = Loads(average_s=1.0)
    assert world.run(1_200).returns()
