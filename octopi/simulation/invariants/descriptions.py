"""What holds inside a cluster, and of a run, in words: one sentence for each rule.

The rules are those of `octopi.simulation.invariants.oracle` and of what runs plans.  A system with
rules of its own has their words with them (`octopi.simulation.invariants.systems`), and so have the
promises to clients (`octopi.simulation.history.anomalies.Rule`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from octopi.simulation.invariants.systems import SYSTEMS

PROMISES: Final[Mapping[str, str]] = {
    "acknowledged-unheld": (
        "what is committed is held by every replica that counts as in sync, by as many as its "
        "topic asks for, and on the devices where that was asked for"
    ),
    "promised-unheld": (
        "a follower acknowledges only what it holds, and with the sync flag set only what its "
        "device holds"
    ),
    "highwater-back": (
        "a highwater mark never goes back in one life of a node, and never passes the end of "
        "the log"
    ),
    "committed-differs": "replicas have the same bytes below their highwater marks",
    "committed-cut": (
        "no replica in the in-sync set cuts committed records off, and none cuts off what it "
        "knows as committed"
    ),
    "two-leaders": "in one epoch one life of one broker leads: the one that was appointed",
    "undecided-told": "the register tells only what it has made durable",
    "epoch-used-again": "a change of leaders begins with an epoch that no replica has promised",
    "promise-forgotten": "a broker accepts only an epoch that is on its disk",
    "stopping-proposes": "a broker that was asked to stop takes no replica out of the in-sync set",
    "refusing-proposes": (
        "a leader whose disk refuses records takes no replica out of the in-sync set: it is to lead"
    ),
    "in-sync-unasked": (
        "a replica that is decided to be in sync has promised the epoch, in its present incarnation"
    ),
    "incomplete-leader": (
        "the leader, and each replica of the in-sync set, has all committed records"
    ),
    "uncommitted-seen": "no client or replica is told that more is committed than is",
    "receipt-wrong": "a receipt is given for committed records, and for the producer's own",
    "committed-twice": "the sequence of a producer is committed once, without gaps",
    "invalid-committed": "what is committed are whole, valid records",
    "removed-too-early": (
        "retention removes only what the settings of a topic don't keep, and no replica begins "
        "behind that"
    ),
    "retired-unkept": (
        "a broker keeps the records of a replica that it gives up, unless its disk is full"
    ),
    "credit-passed": "a consumer is sent no record that begins behind its credit",
    "lost-too-much": (
        "when all that were in sync have lost what was in their memories, the best of them leads "
        "with what it has on its device; by an operator's order the best of those that are left"
    ),
    "lost-unasked": (
        "nothing is given up unasked that a member of the last in-sync set may come back with, or "
        "that each of them had on its device"
    ),
    "lost-untold": "what is known to be lost is told",
    "liveness": "once everything is healed, the cluster gets going again in bounded time",
    "complaint": "a node complains of nothing that no fault excuses",
    "exception": "no node ends with an exception of its own making",
    "DeadlockError": "some task can always go on",
    "SpinningError": "time passes",
    **{rule: words for system in SYSTEMS for rule, words in system.promises.items()},
}
"""Rule -> what holds where it isn't broken."""
