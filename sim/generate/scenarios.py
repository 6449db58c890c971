"""The ways in which replicated logs are known to fail, as faults that belong together.

A follower is away, then the leader dies; a leader sleeps through its successor's election; who
recovers is struck again.  Each fault stands at a step of the protocol, or counts from the fault
before it.
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
    disk_fails,
    disk_is_lost,
    flush_fails,
    full_for_a_moment,
    leads_at_once,
    older_copy,
    power_fails,
    starts_with_a_full_disk,
    torn_writes,
)
from sim.generate.scenarios_of_last_copies import TOLD_OF_LAST_COPIES
from sim.generate.scenarios_of_leaders import (
    all_alone,
    answers_get_lost,
    candidates_die,
    cut_and_leads_again,
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
    refused_for_long,
    sleeper,
    stopped,
    told_too_soon,
    too_few,
    unsteady,
)
from sim.generate.scenarios_of_loss import TOLD_OF_LOSS
from sim.generate.scenarios_of_registers import (
    forgets_with_a_full_disk,
    made_again,
    made_again_and_forgotten,
    memory_is_lost,
    register_fails,
    slow_to_remember,
    spent_epoch,
)
from sim.generate.scenarios_of_retention import (
    large_log,
    many_fetches,
    many_large_logs,
    retention_strikes,
    slow_to_acknowledge,
)
from sim.generate.scenarios_of_serving import ALWAYS_TOLD_OF_SERVING, TOLD_OF_SERVING

_ALWAYS_TOLD: Final[tuple[Callable[[Random], Scenario], ...]] = (
    one_dies,
    one_after_the_other,
    one_after_the_other,
    leaders_die,
    left_alone,
    left_alone,
    all_alone,
    last_one,
    last_one,
    left_behind,
    left_behind,
    back_with_less,
    back_with_rot,
    cut_and_leads_again,
    memory_is_lost,
    told_too_soon,
    leads_at_once,
    older_copy,
    too_few,
    refused_for_long,
    candidates_die,
    candidates_die,
    joiner_dies,
    sleeper,
    power_fails,
    one_replica,
    register_fails,
    spent_epoch,
    slow_to_remember,
    slow_to_remember,
    answers_get_lost,
    answers_get_lost,
    full_for_a_moment,
    full_for_a_moment,
    full_for_a_moment,
    ghost,
    ghost,
    ghost,
    disk_fails,
    flush_fails,
    torn_writes,
    disk_is_lost,
    unsteady,
    retention_strikes,
    retention_strikes,
    large_log,
    many_large_logs,
    *ALWAYS_TOLD_OF_SERVING,
    many_fetches,
    slow_to_acknowledge,
)
"""One that stands here twice is drawn more often."""

TOLD_IF_DRAWN: Final[Mapping[str, tuple[Callable[[Random], Scenario], ...]]] = {
    DAMAGE: (
        *(damaged_comes_first, damaged_comes_first, damaged_leads, damaged_leads),
        *TOLD_OF_LOSS[DAMAGE],
    ),
    STOPS: (stopped, stopped, *TOLD_OF_SERVING[STOPS]),
    GONE: (gone_for_good,),
    LINKS: (one_link_breaks, one_link_breaks),
    JOURNAL: (forgets_with_a_full_disk, *TOLD_OF_LOSS[JOURNAL]),
    RENEWED: (made_again, made_again, made_again_and_forgotten),
    FULL: (starts_with_a_full_disk, *TOLD_OF_SERVING[FULL]),
    POWER: (all_lose_power, all_lose_power, *TOLD_OF_LOSS[POWER], *TOLD_OF_SERVING[POWER]),
    ALONE: TOLD_OF_SERVING[ALONE],
    **TOLD_OF_LAST_COPIES,
}
"""More, by the kind of `sim.generate.fault_kinds` that has to be drawn."""

STORIES: Final = (
    *_ALWAYS_TOLD,
    *chain.from_iterable(told for kind, told in TOLD_IF_DRAWN.items() if is_drawn(kind)),
)
"""All that are told."""
