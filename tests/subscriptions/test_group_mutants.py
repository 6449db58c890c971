"""Each rule of marks and groups is needed: without it, random walks find a promise broken.

One rule matters only if a leader changes between an answer and the commit that it should have
waited for, and the member that was replaced is the first one to come back.  One in a thousand walks
comes there, so another test finds that this rule is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import attrs
import pytest

from octopi.subscriptions import coordinated, coordinator, log_mark, log_marks
from tests.subscriptions import test_partition_subscriptions as requests
from tests.subscriptions.group_world import BrokenRuleError, GroupWorld
from tests.subscriptions.test_group_walks import world_of

SEEDS = 400


@attrs.frozen
class PlantedFault:
    """A rule that is taken away, and the rule that walks find broken."""

    name: str
    module: ModuleType
    user: ModuleType
    """The module that makes the objects of the one that is changed."""
    cls: str
    before: str
    after: str
    broken: str = ""
    """How the walk says what is broken; empty: in one of several ways."""
    found_by: Callable[[], None] | None = None
    """The test that finds it; None: walks do."""


FAULTS = [
    PlantedFault(
        "a claim is answered before it is kept",
        log_mark,
        log_marks,
        "LogMark",
        "        return effects + self._when_committed(now, told)\n",
        "        self._appended = attrs.evolve(self._appended, claim=claim)\n"
        "        return effects + self._when_committed(now, told)\n",
        found_by=requests.test_a_replaced_member_is_told_and_marks_no_more_after_a_change_of_the_leader,
    ),
    PlantedFault(
        "an attach is answered before it is committed",
        log_mark,
        log_marks,
        "LogMark",
        "        return effects + self._when_committed(now, told)\n",
        "        return [*effects, told, *self.store(now)]\n",
        broken="went back",
    ),
    PlantedFault(
        "a mark of any claim counts",
        log_mark,
        log_marks,
        "LogMark",
        "        if session != self.holder:\n            return []  # it was told",
        "        if False:\n            return []  # it was told",
    ),
    PlantedFault(
        "a member with any claim attaches",
        log_mark,
        log_marks,
        "LogMark",
        "        if claim < self.entry.claim:\n"
        "            return [TellRefused(session, Status.MEMBER_FENCED, _FENCED)]\n",
        "",
    ),
    PlantedFault(
        "a confirmation is given in memory",
        log_mark,
        log_marks,
        "LogMark",
        "            return self._when_committed(now, TellMarked(session, confirm))\n",
        "            return [TellMarked(session, confirm)]\n",
        "went back",
    ),
    PlantedFault(
        "a mark that was answered goes back",
        log_mark,
        log_marks,
        "LogMark",
        "        if offset > self.entry.mark:\n",
        "        if offset != self.entry.mark:\n",
        "went back",
    ),
    PlantedFault(
        "a reset keeps the claim",
        coordinator,
        coordinated,
        "Coordinator",
        "        claim = Claim(max(state.claim, newest) + 1)\n        begun",
        "        claim = state.claim\n        begun",
    ),
    PlantedFault(
        "claims start anew",
        coordinator,
        coordinated,
        "Coordinator",
        "        claim = self.logs[log].claim\n        return self._set(log, Assignment",
        "        claim = Claim(0)\n        return self._set(log, Assignment",
    ),
    PlantedFault(
        "an assignment is told before it is committed",
        coordinator,
        coordinated,
        "Coordinator",
        "        return [self._pending.append(assignment_key(self.sid, log), entry, *then)]\n",
        "        return [*then, self._pending.append(assignment_key(self.sid, log), entry)]\n",
        "untold",
    ),
    PlantedFault(
        "a log is assigned before it is released",
        coordinator,
        coordinated,
        "Coordinator",
        "                effects += self._ask_to_release(log, now)\n",
        "                effects += self._assign(log, member)\n",
        "overlap",
    ),
]


def changed(fault: PlantedFault) -> object:
    """The class without the rule."""
    path = Path(str(fault.module.__file__))
    source = path.read_text()
    assert source.count(fault.before) == 1, f"{fault.name}: the source has changed"
    module = ModuleType(fault.module.__name__)
    code = compile(source.replace(fault.before, fault.after), str(path), "exec")
    exec(code, module.__dict__)
    found: object = getattr(module, fault.cls)
    return found


def first_broken(make: type[GroupWorld] | None = None) -> str:
    """The first rule that a walk finds broken; empty: none."""
    for seed in range(SEEDS):
        world = world_of(seed) if make is None else make(seed, marks_on_receipt=True)
        try:
            world.walk(400)
        except (BrokenRuleError, AssertionError) as error:
            return f"{error}"
    return ""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_random_walks_notice_a_missing_rule(
    fault: PlantedFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault.user, fault.cls, changed(fault))
    if fault.found_by is not None:
        with pytest.raises(AssertionError):
            fault.found_by()
        return
    assert first_broken().startswith(fault.broken or ("went", "zombie", "two", "passed", "overlap"))


def test_random_walks_notice_members_that_mark_unprocessed_messages() -> None:
    assert first_broken(GroupWorld).startswith("passed over")
