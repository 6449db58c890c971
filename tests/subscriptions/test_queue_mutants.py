"""Each rule of queues is needed: without it, random walks find a promise broken."""

from __future__ import annotations

from typing import Any

import pytest

from octopi.subscriptions import dead_letters, log_queue, queue, queued_messages
from tests.subscriptions.group_world import BrokenRuleError
from tests.subscriptions.queue_world import QueueWorld
from tests.subscriptions.test_group_mutants import PlantedFault, changed
from tests.subscriptions.test_queue_walks import KINDS

SEEDS = 200

FAULTS = [
    PlantedFault(
        "a dead letter is appended before its number is kept",
        dead_letters,
        queue,
        "DeadLetters",
        "        return None if first is None or first.offset in self._unknown else first\n",
        "        return first\n",
    ),
    PlantedFault(
        "dead letters are not recognised by their numbers",
        dead_letters,
        queue,
        "DeadLetters",
        "        self.sequence = sequence\n        self._is",
        "        first = pending[0].number if pending else count\n"
        "        self.sequence = LetterSequence(sequence.topic_id, sequence.epoch + 1, first)\n"
        "        self._is",
        "doubled",
    ),
    PlantedFault(
        "a message is settled before its dead letter is there",
        queue,
        log_queue,
        "Queue",
        "            self.letters.add(self._spent.popleft())\n",
        "            one = self._spent.popleft()\n"
        "            self.letters.add(one)\n"
        "            self.waiting_count -= 1\n"
        "            self._settle(one, now)\n",
        "passed over",
    ),
    PlantedFault(
        "a message is dealt again before it is kept how often it was dealt",
        queue,
        log_queue,
        "Queue",
        "            return one.is_known and one.until",
        "            return one.until",
        "too late",
    ),
    PlantedFault(
        "there is no window",
        queue,
        log_queue,
        "Queue",
        "        room = self._window - len(self._order)\n",
        "        room = 1_000\n",
    ),
    PlantedFault(
        "messages of a key are dealt to anybody",
        queue,
        log_queue,
        "Queue",
        "        if line is None or not line.opened:\n",
        "        if True:\n",
        "key order",
    ),
    PlantedFault(
        "a message is given back without the later ones of its key",
        queued_messages,
        queued_messages,
        "KeyLine",
        "            if last is message:\n                return closed\n",
        "            if last is message:\n"
        "                self.opened.extend(self.rest.popleft() for _ in closed[:-1])\n"
        "                self.rest.appendleft(self.rest.popleft())\n"
        "                return closed[-1:]\n",
    ),
    PlantedFault(
        "an acknowledgement of an old delivery counts",
        queue,
        log_queue,
        "Queue",
        "        return one if (one.session, one.attempt) == (session, attempt) else None\n",
        "        return one\n",
        "zombie",
    ),
    PlantedFault(
        "messages of a key are acknowledged in any order",
        queue,
        log_queue,
        "Queue",
        "        if one is None or not one.is_first:\n"
        "            return False\n"
        "        self._close(one)\n"
        "        self._settle(one, now)\n",
        "        if one is None:\n"
        "            return False\n"
        "        self._close(one)\n"
        "        if one.line is not None:\n"
        "            one.line.opened.remove(one)\n"
        "            one.line.opened.appendleft(one)\n"
        "        self._settle(one, now)\n",
        "key order",
    ),
    PlantedFault(
        "what no program saw counts",
        queue,
        log_queue,
        "Queue",
        "                each.attempt -= 1\n",
        "                pass\n",
        "too early",
    ),
    PlantedFault(
        "what a program saw before its member left doesn't count",
        queue,
        log_queue,
        "Queue",
        "                is_seen = seen is None or (one.offset, one.attempt) in seen\n",
        "                is_seen = seen is None\n",
        "too late",
    ),
]

WALKS: list[dict[str, Any]] = [*KINDS.values(), {"keys": "a", "attempts": 1}]


def first_broken() -> str:
    """The first rule that a walk finds broken; empty: none."""
    for seed in range(SEEDS):
        for kind in WALKS:
            world = QueueWorld(seed, **kind)
            try:
                world.walk(200)
            except (BrokenRuleError, AssertionError, LookupError) as error:
                return str(error) or "an invariant of the machine"
    return ""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_random_walks_notice_a_missing_rule_of_queues(
    fault: PlantedFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault.user, fault.cls, changed(fault))
    found = first_broken()
    assert found
    assert found.startswith(fault.broken), found
