"""Which logs a consumer may read when a topic got other partitions."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from zlib import crc32

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from octopi import generation_gates
from octopi.generation_gates import GenerationGates, LogStretch, gates_of
from octopi.identifiers import Offset, PartitionId


@attrs.frozen
class List:
    """A generation."""

    number: int
    partitions: list[int]
    sealed: list[int] = attrs.field(factory=list)


def places(**offsets: int) -> dict[PartitionId, Offset]:
    return {PartitionId(int(one[1:])): Offset(at) for one, at in offsets.items()}


def ranges(gates: GenerationGates) -> dict[int, int | None]:
    """What may be read from now on: partition -> its end."""
    found = gates.begin()
    gates.check_invariants()
    return {one.partition: one.end for one in found}


ONE = [List(1, [0, 1])]
DOUBLED = [List(1, [0, 1], [10, 20]), List(2, [0, 1, 2, 3])]
MOVED = [*DOUBLED[:1], List(2, [0, 1, 2, 3], [30, 40, 50, 60]), List(3, [4, 1, 2, 3])]


def test_a_topic_of_one_generation_is_read_at_once_and_without_end() -> None:
    gates = GenerationGates(ONE, places(p0=5))
    assert ranges(gates) == {0: None, 1: None}
    assert ranges(gates) == {}, "they are read already"
    assert not gates.is_finished


def test_after_doubling_a_log_waits_for_the_one_at_its_place_only() -> None:
    gates = GenerationGates(DOUBLED, {})
    assert ranges(gates) == {0: 10, 1: 20}
    gates.ended(PartitionId(1), Offset(20))
    assert ranges(gates) == {1: None, 3: None}
    gates.ended(PartitionId(0), Offset(10))
    assert ranges(gates) == {0: None, 2: None}


def test_a_log_that_is_not_read_to_its_sealed_end_opens_no_gate() -> None:
    gates = GenerationGates(DOUBLED, {})
    ranges(gates)
    gates.ended(PartitionId(0), Offset(9))
    assert ranges(gates) == {0: 10}


def test_a_list_with_another_number_of_partitions_waits_for_all_logs_that_share_keys() -> None:
    assert gates_of(1, 3, 2) == [0, 1]
    assert gates_of(5, 6, 4) == [1, 3]
    assert gates_of(3, 4, 2) == [1]
    assert gates_of(2, 4, 4) == [2]
    assert gates_of(1, 2, 4) == [1, 3]


@given(st.binary(), st.integers(1, 12), st.integers(1, 12))
def test_each_key_had_its_messages_in_a_log_that_is_waited_for(
    key: bytes, count: int, before: int
) -> None:
    number = crc32(key)
    assert number % before in gates_of(number % count, count, before)


def test_a_partition_that_moved_is_read_when_the_old_log_was() -> None:
    gates = GenerationGates(MOVED, places(p0=10, p1=20))
    assert ranges(gates) == {0: 30, 1: 40, 2: 50, 3: 60}
    gates.ended(PartitionId(0), Offset(30))
    assert ranges(gates) == {4: None}
    gates.ended(PartitionId(2), Offset(50))
    assert ranges(gates) == {2: None}


def test_an_empty_log_is_passed_when_those_before_it_were_read() -> None:
    twice = [List(1, [0], [10]), List(2, [1], [0]), List(3, [2])]
    gates = GenerationGates(twice, {})
    assert ranges(gates) == {0: 10}
    gates.ended(PartitionId(0), Offset(10))
    assert ranges(gates) == {2: None}


def test_a_consumer_that_begins_at_the_end_reads_the_newest_logs_alone() -> None:
    gates = GenerationGates(MOVED, places(p0=30, p1=70, p2=80, p3=90, p4=7))
    assert ranges(gates) == {1: None, 2: None, 3: None, 4: None}


def test_a_log_that_retention_emptied_counts_as_read() -> None:
    gates = GenerationGates(DOUBLED, places(p0=10, p1=25))
    assert ranges(gates) == {0: None, 1: None, 2: None, 3: None}


def test_a_topic_that_grows_while_it_is_read_goes_on_in_the_new_logs() -> None:
    gates = GenerationGates(ONE, {})
    ranges(gates)
    gates.ended(PartitionId(0), Offset(10))  # the broker ended the reading there
    gates.grew(DOUBLED)
    assert ranges(gates) == {0: None, 2: None}, "1 is read still"
    gates.ended(PartitionId(1), Offset(20))
    assert ranges(gates) == {1: None, 3: None}


def test_a_consumer_that_stops_at_the_end_reads_no_logs_that_are_new_by_then() -> None:
    gates = GenerationGates(ONE, {}, ends=places(p0=12, p1=15))
    assert ranges(gates) == {0: 12, 1: 15}
    gates.ended(PartitionId(1), Offset(15))
    gates.ended(PartitionId(0), Offset(10))
    assert not gates.is_finished
    gates.grew(DOUBLED)
    assert ranges(gates) == {0: 12}
    gates.ended(PartitionId(0), Offset(12))
    assert gates.is_finished


def test_an_end_before_the_sealed_one_keeps_no_other_log_waiting() -> None:
    gates = GenerationGates(DOUBLED, {}, ends=places(p0=4, p1=20, p2=3))
    assert ranges(gates) == {0: 4, 1: 20}
    gates.ended(PartitionId(0), Offset(4))
    assert ranges(gates) == {2: 3}
    gates.ended(PartitionId(1), Offset(20))
    gates.ended(PartitionId(2), Offset(3))
    assert ranges(gates) == {}
    assert gates.is_finished


def test_a_consumer_with_nothing_to_read_still_has_a_broker_check_its_place() -> None:
    gates = GenerationGates(ONE, places(p0=12, p1=15), ends=places(p0=12, p1=15))
    assert ranges(gates) == {0: 12, 1: 15}
    assert not gates.is_finished


def test_chosen_partitions_wait_for_each_other_only() -> None:
    gates = GenerationGates(DOUBLED, {}, partitions=[PartitionId(2), PartitionId(1)])
    assert ranges(gates) == {1: 20, 2: None}
    assert gates.partitions == [1, 2]


def test_a_chosen_log_that_is_sealed_for_good_has_an_end() -> None:
    gates = GenerationGates(MOVED, {}, partitions=[PartitionId(0)])
    assert ranges(gates) == {0: 10}
    gates.ended(PartitionId(0), Offset(10))
    assert ranges(gates) == {0: 30}
    assert gates.waiting_bytes(PartitionId(0)) == 20
    gates.ended(PartitionId(0), Offset(30))
    assert gates.is_finished


# --- any generations, any order of events ----------------------------------------------------

KEYS = [b"key-%d" % one for one in range(12)]


@attrs.define
class Topic:
    """A topic as producers fill it: messages of one byte, which are a key and its number."""

    lists: list[List]
    logs: dict[int, list[tuple[bytes, int]]] = attrs.field(factory=dict)
    counts: dict[bytes, int] = attrs.field(factory=dict)

    def write(self, keys: Sequence[bytes]) -> None:
        newest = self.lists[-1].partitions
        for key in keys:
            number = self.counts[key] = self.counts.get(key, -1) + 1
            self.logs.setdefault(newest[crc32(key) % len(newest)], []).append((key, number))

    def get(self, partitions: list[int]) -> None:
        newest = self.lists[-1]
        sealed = [len(self.logs.get(one, ())) for one in newest.partitions]
        self.lists[-1] = attrs.evolve(newest, sealed=sealed)
        self.lists.append(List(newest.number + 1, partitions))


class World:
    """A consumer of a topic that grows and moves; *random* chooses what happens next."""

    def __init__(self, count: int, random: Random) -> None:
        self.random = random
        self.topic = Topic([List(1, list(range(count)))])
        self.unused = count
        self.gates = GenerationGates(self.topic.lists, {})
        self.open: dict[int, tuple[int | None, int]] = {}
        """Partition -> the end of its reading, and the generation that it knew."""
        self.at: dict[int, int] = {}
        self.read: list[tuple[bytes, int]] = []

    def begin(self) -> None:
        for one in self.gates.begin():
            self.open[one.partition] = (one.end, self.gates.newest)
        self.gates.check_invariants()

    def bound(self, partition: int) -> int:
        """How far the broker sends."""
        _, known = self.open[partition]
        for one in self.topic.lists:
            if one.number >= known and one.sealed and partition in one.partitions:
                return one.sealed[one.partitions.index(partition)]
        return len(self.topic.logs.get(partition, ()))

    def step(self, partition: int, count: int) -> None:
        """Hand out the next *count* messages of a log, as far as they are there."""
        end, known = self.open[partition]
        log, at = self.topic.logs.get(partition, []), self.at.get(partition, 0)
        bound = self.bound(partition) if end is None else min(end, self.bound(partition))
        until = min(bound, at + count)
        self.read += log[at:until]
        self.at[partition] = until
        is_sealed = any(
            one.number >= known and one.sealed and partition in one.partitions
            for one in self.topic.lists
        )
        if until == bound and (end is not None or is_sealed):
            del self.open[partition]
            self.gates.ended(PartitionId(partition), Offset(until))
            if end is None and known >= self.gates.newest:
                self.gates.grew(self.topic.lists)
            self.begin()

    def change(self) -> None:
        """Grow, shrink or move."""
        now, random = self.topic.lists[-1].partitions, self.random
        if random.random() < 0.6:
            count = random.randint(1, 2 * len(now))
            kept = now[:count]
            new = list(range(self.unused, self.unused + max(0, count - len(kept))))
            partitions = kept + new
        else:
            new, place = [self.unused], random.randrange(len(now))
            partitions = [*now[:place], *new, *now[place + 1 :]]
        if partitions != now:
            self.unused += len(new)
            self.topic.get(partitions)

    def run(self) -> None:
        random = self.random
        self.begin()
        for _ in range(random.randint(1, 5)):
            self.topic.write(random.choices(KEYS, k=random.randint(0, 12)))
            for _ in range(random.randint(0, 4)):
                if self.open:
                    self.step(random.choice(sorted(self.open)), random.randint(0, 3))
            self.change()
        self.topic.write(KEYS)
        for _ in range(200):
            for partition in sorted(self.open, key=lambda one: random.random()):
                if partition in self.open:
                    self.step(partition, 5)

    def check(self) -> None:
        for key, count in self.topic.counts.items():
            got = [number for one, number in self.read if one == key]
            assert got == list(range(count + 1)), f"{key!r} is handed out as {got}"


SEEDS = st.integers(0, 2**32)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 4), SEEDS)
def test_whatever_a_topic_becomes_each_key_is_handed_out_in_order_and_whole(
    count: int, seed: int
) -> None:
    world = World(count, Random(seed))
    world.run()
    world.check()


@pytest.mark.parametrize("rule", ["no_gate", "own_place_only", "before_the_end", "empty_ones_pass"])
def test_without_a_rule_some_key_is_handed_out_in_another_order(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules are those of the model of growing topics: `no_gate` is the one of consumers."""
    if rule == "no_gate":
        monkeypatch.setattr(generation_gates, "gates_of", lambda index, count, before: [])
    elif rule == "own_place_only":
        monkeypatch.setattr(
            generation_gates, "gates_of", lambda index, count, before: [index % before]
        )
    elif rule == "empty_ones_pass":
        monkeypatch.setattr(GenerationGates, "_is_passed", GenerationGates._is_handed_out)
    else:
        original = GenerationGates._is_handed_out

        def early(gates: GenerationGates, one: LogStretch) -> bool:
            end = None if one.end is None else Offset(max(0, one.end - 1))
            return original(gates, attrs.evolve(one, end=end))

        monkeypatch.setattr(GenerationGates, "_is_handed_out", early)

    def search() -> None:
        for seed in range(2000):
            world = World(1 + seed % 4, Random(seed))
            world.run()
            world.check()

    with pytest.raises(AssertionError, match="is handed out as"):
        search()
