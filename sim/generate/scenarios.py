"""All scenarios: groups of faults that are known to make replicated logs fail.

For instance: a follower is away and then the leader dies; a leader is paused while its successor is
elected; a replica fails again while it recovers.  Each fault happens at a step of the protocol, or
some time after the fault before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from random import Random
from typing import Final

from sim.generate.fault_kinds import (
    ALONE,
    DAMAGE,
    FULL,
    GONE,
    JOURNAL,
    LINKS,
    POWER,
    RENEWED,
    STOPS,
    is_drawn,
)
from sim.generate.scenario import Scenario
from sim.generate.scenarios_of_disks import (
    all_lose_power,
    back_with_less,
    back_with_rot,
    damaged_comes_first,
    damaged_leads,
    dark_in_the_end,
    disk_fails,
    disk_is_lost,
    first_flush_fails,
    flush_fails,
    flush_of_the_only_replica_fails,
    found_after_a_kill,
    full_for_a_moment,
    late_word,
    leads_at_once,
    older_copy,
    power_fails,
    rots_before_its_flush,
    starts_with_a_full_disk,
    torn_writes,
)
from sim.generate.scenarios_of_entrances import ENTRANCE_SCENARIOS
from sim.generate.scenarios_of_groups import GROUP_SCENARIOS
from sim.generate.scenarios_of_last_copies import LAST_COPIES_SCENARIOS
from sim.generate.scenarios_of_leaders import (
    all_alone,
    answers_get_lost,
    candidates_die,
    cut_and_leads_again,
    cut_in_the_dark,
    ends_are_asked_for,
    flushes_while_it_is_cut,
    ghost,
    gone_for_good,
    joiner_dies,
    last_one,
    leaders_die,
    left_alone,
    left_behind,
    one_after_the_other,
    one_dies,
    one_link_breaks,
    one_replica,
    only_one_is_left,
    refused_for_long,
    sleeper,
    stopped,
    told_too_soon,
    too_few,
    unsteady,
)
from sim.generate.scenarios_of_loss import LOSS_SCENARIOS, joins_while_more_comes
from sim.generate.scenarios_of_pipes import PIPE_SCENARIOS
from sim.generate.scenarios_of_queues import QUEUE_SCENARIOS
from sim.generate.scenarios_of_registers import (
    altered,
    altered_and_forgotten,
    deleted_while_it_is_sent,
    forgets_with_a_full_disk,
    joins_with_a_full_disk,
    made_again,
    made_again_and_forgotten,
    made_again_too_soon,
    made_again_unheard,
    memory_is_lost,
    moved_there_and_back,
    register_fails,
    slow_to_remember,
    spent_epoch,
)
from sim.generate.scenarios_of_relays import RELAY_SCENARIOS
from sim.generate.scenarios_of_retention import (
    large_log,
    many_fetches,
    many_large_logs,
    removals_fail,
    restarts_fail,
    retention_strikes,
    retention_waits,
    slow_to_acknowledge,
)
from sim.generate.scenarios_of_rings import RING_SCENARIOS
from sim.generate.scenarios_of_serving import ALWAYS_SERVING, SERVING_SCENARIOS
from sim.generate.scenarios_of_subscriptions import SUBSCRIPTION_SCENARIOS

_ALWAYS_DRAWN: Final[tuple[Callable[[Random], Scenario], ...]] = (
    one_dies,
    one_after_the_other,
    one_after_the_other,
    leaders_die,
    ends_are_asked_for,
    left_alone,
    left_alone,
    all_alone,
    last_one,
    last_one,
    left_behind,
    left_behind,
    back_with_less,
    back_with_rot,
    rots_before_its_flush,
    cut_and_leads_again,
    cut_in_the_dark,
    flushes_while_it_is_cut,
    only_one_is_left,
    found_after_a_kill,
    joins_with_a_full_disk,
    memory_is_lost,
    told_too_soon,
    leads_at_once,
    older_copy,
    too_few,
    refused_for_long,
    candidates_die,
    candidates_die,
    joiner_dies,
    joins_while_more_comes,
    sleeper,
    power_fails,
    one_replica,
    register_fails,
    spent_epoch,
    slow_to_remember,
    slow_to_remember,
    altered,
    altered,
    altered_and_forgotten,
    answers_get_lost,
    answers_get_lost,
    full_for_a_moment,
    full_for_a_moment,
    full_for_a_moment,
    ghost,
    ghost,
    ghost,
    late_word,
    disk_fails,
    flush_fails,
    first_flush_fails,
    torn_writes,
    disk_is_lost,
    unsteady,
    retention_strikes,
    retention_strikes,
    retention_waits,
    retention_waits,
    removals_fail,
    restarts_fail,
    large_log,
    many_large_logs,
    *ALWAYS_SERVING,
    many_fetches,
    slow_to_acknowledge,
    moved_there_and_back,
    *SUBSCRIPTION_SCENARIOS,
    *QUEUE_SCENARIOS,
)
"""Scenarios that are drawn regardless of the switches.  A scenario that is listed twice is drawn
more often."""

SCENARIOS_OF_KIND: Final[Mapping[str, tuple[Callable[[Random], Scenario], ...]]] = {
    DAMAGE: (
        *(damaged_comes_first, damaged_comes_first, damaged_leads, damaged_leads),
        *LOSS_SCENARIOS[DAMAGE],
    ),
    STOPS: (stopped, stopped, *SERVING_SCENARIOS[STOPS]),
    GONE: (gone_for_good,),
    LINKS: (one_link_breaks, one_link_breaks),
    JOURNAL: (forgets_with_a_full_disk, *LOSS_SCENARIOS[JOURNAL]),
    RENEWED: (
        *(made_again, made_again, made_again_and_forgotten),
        *(made_again_too_soon, made_again_unheard, deleted_while_it_is_sent),
    ),
    FULL: (starts_with_a_full_disk, *SERVING_SCENARIOS[FULL]),
    POWER: (
        all_lose_power,
        all_lose_power,
        dark_in_the_end,
        flush_of_the_only_replica_fails,
        *LOSS_SCENARIOS[POWER],
        *SERVING_SCENARIOS[POWER],
    ),
    ALONE: SERVING_SCENARIOS[ALONE],
    **LAST_COPIES_SCENARIOS,
}
"""For each kind of `sim.generate.fault_kinds`: scenarios that are drawn only while it is switched
on."""

SCENARIOS: Final = (
    *_ALWAYS_DRAWN,
    *chain.from_iterable(of_kind for kind, of_kind in SCENARIOS_OF_KIND.items() if is_drawn(kind)),
    *ENTRANCE_SCENARIOS,
)
"""All scenarios that are drawn."""

SCENARIOS_BY_NAME: Final[Mapping[str, Callable[[Random], Scenario]]] = {
    tell.__name__.lstrip("_"): tell
    for tell in (
        *SCENARIOS,
        *GROUP_SCENARIOS,
        *RING_SCENARIOS,
        *RELAY_SCENARIOS,
        *PIPE_SCENARIOS,
    )
}
"""Each of these scenarios once, and those with several registers or none, or with pipes, by the
name of its function without leading underscores."""
