"""Which errors in the logs of nodes a fault excuses."""

from __future__ import annotations

import logging
from threading import Thread

from octopi.roles.broker.replica_driver import LEADER_LACKS
from octopi.roles.register.admissions import CONFLICT
from octopi.roles.register.startup_recovery import JOURNAL_LACKS
from sim.run.log_errors import comes_of_older_disks, listening


def test_a_conflict_of_topics_is_excused_only_for_a_broker_with_an_older_disk() -> None:
    facts = {"broker": 3, "what": ["topic renewed-1 exists here as one, the broker holds another"]}
    assert comes_of_older_disks(CONFLICT, facts, {2, 3})
    assert not comes_of_older_disks(CONFLICT, facts, {2})
    assert not comes_of_older_disks(CONFLICT, facts, set())


def test_other_nodes_are_excused_only_for_errors_about_an_older_disk() -> None:
    for message in (JOURNAL_LACKS, LEADER_LACKS):
        assert comes_of_older_disks(message, {}, {2})
        assert not comes_of_older_disks(message, {}, set())
    assert not comes_of_older_disks("disk failed", {}, {2})


def test_a_logged_exception_fails_the_run_even_if_errors_are_excused() -> None:
    complaints: list[str] = []
    logger = logging.getLogger("octopi.test")
    with listening(is_excused=lambda *_: True, complain=complaints.append):
        logger.error("a disk is full")
        try:
            raise KeyError("unforeseen")
        except KeyError:
            logger.exception("it broke")
    (told,) = complaints
    assert told.startswith(": it broke: Traceback")
    assert "KeyError: 'unforeseen'" in told


def test_errors_logged_by_other_threads_do_not_count() -> None:
    complaints: list[str] = []
    logger = logging.getLogger("octopi.test")
    with listening(is_excused=lambda *_: False, complain=complaints.append):
        thread = Thread(target=logger.error, args=("a client elsewhere has lost its server",))
        thread.start()
        thread.join()
    assert complaints == []
