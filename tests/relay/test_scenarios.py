"""Scenarios of relays, each by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.relay import founding_scenarios, scenarios
from tests.relay.scenarios import SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_relays(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize(
    "scenario", founding_scenarios.SCENARIOS.values(), ids=founding_scenarios.SCENARIOS
)
def test_relays_that_lose_much(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize("of_sequencer", [False, True])
def test_a_flipped_bit_is_noticed_and_repaired(of_sequencer: bool) -> None:
    scenarios.a_flipped_bit_is_noticed_and_repaired(of_sequencer=of_sequencer)


@pytest.mark.parametrize("heals_after", [9.0, 12.5])
def test_the_third_is_isolated_while_two_restart(heals_after: float) -> None:
    scenarios.the_third_is_isolated_while_two_restart(heals_after)


def test_a_cut_link_to_the_sequencer_of_five_changes_nothing() -> None:
    scenarios.one_cut_link_to_the_sequencer_changes_nothing(5)


def test_a_member_with_another_digest_than_the_quorum_repairs() -> None:
    scenarios.a_member_with_another_digest_than_the_quorum_repairs()


def test_three_different_digests_end_in_one() -> None:
    scenarios.three_different_digests_end_in_one()


def test_a_slow_quorum_fills_the_buffer_and_overwrites_nothing() -> None:
    scenarios.a_slow_quorum_fills_the_buffer_and_overwrites_nothing()


def test_a_receiver_outside_the_set_gets_receipts_also_over_a_change_of_the_sequencer() -> None:
    scenarios.a_receiver_outside_the_set_gets_receipts_also_over_a_change()
