"""No fault takes the last copy that may be counted on."""

from __future__ import annotations

import attrs

from sim.real.bounds import CopyBounds, in_sync_everywhere


@attrs.frozen
class Place:
    replicas: list[int]
    in_sync: list[int]


def everywhere(*in_sync: int) -> list[Place]:
    return [Place([1, 2, 3], list(in_sync))]


def test_two_of_three_copies_may_be_damaged_one_after_the_other() -> None:
    bounds = CopyBounds()
    assert bounds.spoil(1, everywhere(1, 2, 3))
    assert bounds.spoil(2, everywhere(1, 2, 3))
    assert not bounds.spoil(3, everywhere(1, 2, 3))
    assert bounds.spoilt == {1, 2}


def test_the_only_copy_in_sync_may_not_be_damaged_and_one_out_of_sync_may() -> None:
    bounds = CopyBounds()
    assert not bounds.spoil(1, everywhere(1))
    assert bounds.spoil(2, everywhere(1))


def test_a_copy_can_be_spared_only_where_another_intact_one_is_in_sync_and_live() -> None:
    bounds = CopyBounds()
    assert bounds.can_spare(3, everywhere(2, 3))
    assert not bounds.can_spare(3, everywhere(2, 3), dead={2})
    assert bounds.can_spare(3, everywhere(1, 2, 3), dead={2})
    assert bounds.spoil(1, everywhere(1, 2, 3))
    assert not bounds.can_spare(3, everywhere(1, 2, 3), dead={2})
    assert not bounds.can_spare(3, [*everywhere(1, 2, 3), *everywhere(3)])


def test_no_copy_may_be_damaged_while_none_is_known_to_be_in_sync() -> None:
    assert not CopyBounds().spoil(1, everywhere())


def test_a_damaged_copy_counts_again_when_it_is_in_sync_in_all_its_partitions() -> None:
    bounds = CopyBounds()
    assert bounds.spoil(1, everywhere(1, 2))
    assert not bounds.all_intact
    assert not in_sync_everywhere(1, [Place([1, 2], [1, 2]), Place([1, 3], [3])])
    assert in_sync_everywhere(1, [Place([1, 2], [1, 2]), Place([2, 3], [3])])
    bounds.trust(1)
    assert bounds.all_intact
