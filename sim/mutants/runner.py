"""Runs plans against one mutant until runs notice it: a process of its own for each mutant.

Two searches share the runs.  The white-box search uses everything: the oracle, the nodes' own
assertions and error messages, and the checker of the clients' history.  The black-box search uses
only the history, and whether the cluster comes to rest in the end.  It decides alone, but the
oracle tells it where to look: if brokers die when the oracle sees a broken rule, clients may notice
it, too (`sim.mutants.follow_up`).  A run counts only if its plan breaks no rule in the unchanged
code (`sim.mutants.baseline`).  The first plan that is found is reduced to the faults and options
that it needs (`sim.search.shrink`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from sim.mutants.baseline import Control
from sim.mutants.catalogue import MUTANTS
from sim.mutants.mutant import plant

if TYPE_CHECKING:
    from octopi.simulation.faults.actions import AtStep
    from octopi.simulation.kernel.world import Violation
    from sim.run.plan import Plan


_AFTERMATHS_COUNT: Final = 12
"""How many plans in which the oracle saw a broken rule are tried with further faults."""
_AFTERMATHS_OF_A_PLAN: Final = 20
"""How many of these faults are tried with one of them, at most: another plan may be better."""
_OF_SUBSCRIPTIONS: Final = ("octopi.subscriptions.", "broker.subscriptions.", "subscribing.")
"""Parts of the names of modules that only subscriptions use."""
_OF_GROUPS: Final = (".agreement.journal.", ".register.group.")
"""The same of those that only several registers use."""
_OF_RINGS: Final = (
    *(".broker.ring.", "octopi.ring.", ".acceptor_journal", ".partition_changes"),
    *(".agreement.proposer", ".agreement.proposals", ".agreement.lease", ".agreement.heard"),
)
"""The same of those that only clusters without a register use."""
_OF_RELAYS: Final = ("octopi.relay.", ".broker.relay.")
"""The same of those that only topics in memory use."""
_SCENARIOS_PER_SWARM: Final = 7
"""A swarm plan takes as long as three scenarios, so one follows every seven."""


@attrs.frozen
class MutantKill:
    """The first run in which a search noticed a mutant."""

    rule: str
    """The rule that it broke."""
    text: str
    token: str
    """The plan that shows it, as a token."""
    runs: int
    """The number of runs so far, this one included."""
    seconds: float
    """The processor time of the process so far."""
    least: str = ""
    """The smallest plan that shows it, as a token; empty: none was looked for."""
    faults_count: int = -1
    """How many faults that plan has; -1: none was looked for."""


@attrs.frozen
class Hunt:
    """The result of hunting one mutant."""

    name: str
    white: MutantKill | None
    black: MutantKill | None
    runs: int
    seconds: float
    """The processor time of the hunt."""
    unsound: tuple[str, ...] = ()
    """Plans, as tokens, that break a rule in the unchanged code."""
    code: str = ""
    """The commit at which it was hunted, as ``git describe --always --dirty`` has it; empty: it is
    not known."""


@attrs.frozen
class Seen:
    """What was noticed in a run."""

    inside: Violation | None
    """The broken rule that the white-box search noticed; None: no rule."""
    outside: Violation | None
    """The broken rule that the black-box search noticed; None: no rule."""
    place: AtStep | None
    """The step at which the oracle saw a broken rule."""
    acknowledgements: dict[str, AtStep]
    """Where followers had last acknowledged something then."""


@attrs.frozen
class Budget:
    """How long to search, in seconds of processor time since the beginning of the hunt."""

    white_s: float = 180.0
    black_s: float = 180.0
    shrink_s: float = 20.0
    """How long to shrink a plan."""


class _Hunter:
    def __init__(self, name: str, is_sound: Callable[[Plan], bool], budget: Budget) -> None:
        self._name = name
        self._is_sound = is_sound
        self._budget = budget
        self._began = time.process_time()
        self._runs = 0
        self._white: MutantKill | None = None
        self._black: MutantKill | None = None
        self._unsound: list[str] = []
        self._aftermaths_left = _AFTERMATHS_COUNT

    def hunt(self, plans: Iterable[Plan]) -> Hunt:
        for plan in plans:
            if not (self._wants_white or self._wants_black):
                break
            self._try(plan)
        spent_s = self._spent_s
        return Hunt(self._name, self._white, self._black, self._runs, spent_s, tuple(self._unsound))

    @property
    def _spent_s(self) -> float:
        return time.process_time() - self._began

    @property
    def _wants_white(self) -> bool:
        return self._white is None and self._spent_s < self._budget.white_s

    @property
    def _wants_black(self) -> bool:
        return self._black is None and self._spent_s < self._budget.black_s

    def _try(self, plan: Plan) -> None:
        # Nodes check themselves as long as that may tell something.  In production they don't, and
        # a node that ends because of a check does clients no harm that they could notice.
        checks = self._wants_white
        seen = self._look(plan, checks or self._aftermaths_left > 0, checks)
        is_news = (seen.inside and self._wants_white) or (seen.outside and self._wants_black)
        if is_news and not self._is_fine(plan):
            return
        if seen.outside and self._wants_black:
            self._black = self._kill(plan, seen.outside)
        if seen.inside and self._wants_white:
            white = self._kill(plan, seen.inside)
            before_s = self._spent_s
            least = shrunk(plan, self._is_sound, self._budget.shrink_s)
            self._began += self._spent_s - before_s
            self._white = attrs.evolve(
                white, least=_token_of(least), faults_count=len(least.faults)
            )
        if seen.inside and self._aftermaths_left > 0 and self._wants_black:
            if seen.inside.events:
                self._look_behind(plan, seen)
            elif checks and not self._wants_white:
                self._try(plan)

    def _look_behind(self, plan: Plan, seen: Seen) -> None:
        """Try *plan* with further faults, which are injected when the oracle has *seen* a broken
        rule."""
        from sim.mutants.follow_up import aftermaths

        self._aftermaths_left -= 1
        assert seen.inside is not None
        further = aftermaths(plan, seen.inside, seen.place, seen.acknowledgements)
        for one in itertools.islice(further, _AFTERMATHS_OF_A_PLAN):
            if not self._wants_black:
                return
            outside = self._look(one, watches=False, checks=False).outside
            if outside and self._is_fine(one):
                self._black = self._kill(one, outside)

    def _look(self, plan: Plan, watches: bool, checks: bool) -> Seen:
        self._runs += 1
        return look(plan, watch=watches, checks_invariants=checks)

    def _is_fine(self, plan: Plan) -> bool:
        is_fine = self._is_sound(plan)
        if not is_fine:
            self._unsound.append(_token_of(plan))
        return is_fine

    def _kill(self, plan: Plan, seen: Violation) -> MutantKill:
        return MutantKill(seen.rule, str(seen)[:500], _token_of(plan), self._runs, self._spent_s)


def hunt(
    name: str, plans: Iterable[Plan], is_sound: Callable[[Plan], bool], budget: Budget
) -> Hunt:
    """Run *plans* in this process, where the mutant is planted, until it is found both ways, or
    the budget is spent."""
    return _Hunter(name, is_sound, budget).hunt(plans)


def look(plan: Plan, *, watch: bool = True, checks_invariants: bool = True) -> Seen:
    """Run *plan* and return what is noticed; *watch*: whether an oracle observes the run.
    *checks_invariants*: see `sim.run.simulation.simulate`."""
    from octopi.simulation.invariants.oracle import Oracle
    from sim.mutants.follow_up import Occurrences
    from sim.run.simulation import ObserverMaker, simulate

    found: list[Seen] = []  # the run goes on, so that clients may notice
    counts = Occurrences()

    def report(violation: Violation) -> None:
        place = counts.place(violation.events[-1])
        found.append(Seen(violation, None, place, counts.acknowledgements()))

    observers: list[ObserverMaker] = []
    if watch:
        observers = [lambda cluster: counts, lambda cluster: Oracle(cluster, report)]
    verdict = simulate(
        plan,
        observers,
        events_kept=10,
        outlives_crashes=True,
        checks_invariants=checks_invariants,
    )
    first = found[0] if found else Seen(verdict.violation, None, None, {})
    return attrs.evolve(first, outside=verdict.outside)


def shrunk(plan: Plan, is_sound: Callable[[Plan], bool], seconds_max: float) -> Plan:
    """The smallest plan that is found within *seconds_max* and fails here as *plan* does."""
    from sim.search.shrink import NothingFailsError, shrink

    try:
        least = shrink(plan, seconds_max).plan
    except NothingFailsError:  # only a run that goes on to its end shows it
        return plan
    return least if is_sound(least) else plan


def plans(first: int = 1, module: str = "", scenarios: Sequence[str] = ()) -> Iterator[Plan]:
    """Plans to search from seed *first* on, in turn one of the named *scenarios* and one of the
    mix; only those in which the code of *module* does something."""
    if any(one in module for one in _OF_GROUPS):
        mixed: Iterator[Plan] = _of_groups(first)
    elif any(one in module for one in _OF_RINGS):
        mixed = _of_rings(first)
    elif any(one in module for one in _OF_RELAYS):
        mixed = _of_relays(first)
    else:
        mixed = (plan for plan in _mix(first) if _runs(module, plan))
    if not scenarios:
        return mixed
    own = (plan for plan in _only(scenarios, first) if _runs(module, plan))
    return itertools.chain.from_iterable(zip(own, mixed, strict=True))


def _mix(first: int) -> Iterator[Plan]:
    """All scenarios, and after every seventh a swarm plan."""
    from sim.generate import scenario_plans, swarm

    for seed in itertools.count(first):
        yield scenario_plans.draw(seed)
        if seed % _SCENARIOS_PER_SWARM == 0:
            yield swarm.draw(seed, "message")


def _of_groups(first: int) -> Iterator[Plan]:
    """Plans with several registers."""
    from sim.generate import groups

    return (groups.draw(seed, "message") for seed in itertools.count(first))


def _of_rings(first: int) -> Iterator[Plan]:
    """Plans without a register."""
    from sim.generate import rings

    return (rings.draw(seed, "message") for seed in itertools.count(first))


def _of_relays(first: int) -> Iterator[Plan]:
    """Plans with topics in memory."""
    from sim.generate import relays

    return (relays.draw(seed, "message") for seed in itertools.count(first))


def _only(scenarios: Sequence[str], first: int) -> Iterator[Plan]:
    """The *scenarios*, one after the other, again and again."""
    from sim.generate.scenario_plans import draw_scenario

    for seed, name in zip(itertools.count(first), itertools.cycle(scenarios), strict=False):
        yield draw_scenario(name, seed)


def _runs(module: str, plan: Plan) -> bool:
    """Whether *plan* has use for *module*: more than half of all plans have no members of
    subscriptions, and only those of `sim.generate.groups` have several registers, and those of
    `sim.generate.rings` none.  Only those of `sim.generate.relays` have topics in memory."""
    if any(one in module for one in _OF_GROUPS):
        return plan.registers > 1
    if any(one in module for one in _OF_RINGS):
        return plan.founders > 0
    if any(one in module for one in _OF_RELAYS):
        return plan.workload.relay_topics > 0
    return plan.workload.members > 0 or not any(one in module for one in _OF_SUBSCRIPTIONS)


def _token_of(plan: Plan) -> str:
    from sim.run.plan import to_token

    return to_token(plan)


def _plan_of(token: str) -> Plan:
    from sim.run.plan import from_token

    return from_token(token)


def main() -> int:
    """Hunt one mutant; the result is one line of JSON on standard output."""
    parser = argparse.ArgumentParser(prog="python -m sim.mutants.runner", description=__doc__)
    parser.add_argument("name", choices=sorted(MUTANTS), metavar="NAME")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--runs", type=int, default=100_000, help="plans at most")
    parser.add_argument("--plan", metavar="TOKEN", help="only this plan")
    for option in attrs.fields(Budget):
        parser.add_argument(f"--{option.name}", type=float, default=option.default)
    arguments = parser.parse_args()
    budget = Budget(arguments.white_s, arguments.black_s, arguments.shrink_s)
    with Control() as control:
        mutant = MUTANTS[arguments.name]
        plant(mutant)
        drawn = plans(arguments.first, mutant.module, mutant.scenarios)
        searched: Iterator[Plan] = itertools.islice(drawn, arguments.runs)
        if arguments.plan:
            searched = iter([_plan_of(arguments.plan)])
        if mutant.unseen:
            budget = attrs.evolve(budget, black_s=0.0)
        found = hunt(arguments.name, searched, control.is_sound, budget)
    print(json.dumps(attrs.asdict(found)))
    return 0 if found.white else 1


if __name__ == "__main__":
    sys.exit(main())
