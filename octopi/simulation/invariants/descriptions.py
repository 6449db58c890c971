"""Describes what must hold inside a cluster, and in a run, with one sentence for each rule.

The rules are those of `octopi.simulation.invariants.oracle` and of the code that runs plans.  A
system describes its own rules (`octopi.simulation.invariants.systems`), and
`octopi.simulation.history.anomalies.Rule` describes the guarantees to clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from octopi.simulation.invariants.systems import SYSTEMS

PROMISES: Final[Mapping[str, str]] = {
    "acknowledged-unheld": (
        "committed records are held by every replica that counts as in sync, by as many as their "
        "topic asks for, and on the devices where that is required"
    ),
    "promised-unheld": (
        "a follower acknowledges only what it holds, or, with the sync flag or if its topic asks "
        "for it, what its device holds"
    ),
    "highwater-back": (
        "a highwater mark never goes back while a process runs, and never passes the end of the log"
    ),
    "committed-differs": "replicas have the same bytes below their highwater marks",
    "committed-cut": (
        "no in-sync replica cuts off committed records, and no replica cuts off what it knows as "
        "committed"
    ),
    "two-leaders": "in each epoch one process leads, and its broker is the appointed one",
    "undecided-told": "the register tells brokers only decisions that are on its device",
    "epoch-used-again": "an election begins with an epoch that no in-sync replica has promised",
    "promise-forgotten": (
        "a broker accepts an epoch only when its promise is on its device, and acts in no older one"
    ),
    "stopping-proposes": "a broker that was asked to stop removes no replica from the in-sync set",
    "refusing-proposes": (
        "a leader whose disk refuses records removes no replica from the in-sync set, because "
        "another one has to lead"
    ),
    "in-sync-unasked": (
        "each replica that is decided to be in sync has promised the epoch, in its present "
        "incarnation"
    ),
    "incomplete-leader": "the leader and each in-sync replica have all committed records",
    "uncommitted-seen": "no client or replica is told that more records are committed than are",
    "receipt-wrong": "a receipt is only for committed records, and for the producer's own",
    "committed-twice": "each sequence of a producer is committed once, and there are no gaps",
    "former-life-stored": (
        "when a life of a named producer has begun, nothing more of earlier ones is stored"
    ),
    "invalid-committed": "all committed bytes are whole, valid records",
    "removed-too-early": (
        "retention removes only records that the settings of a topic don't keep, and no replica "
        "begins behind these"
    ),
    "start-forgotten": "a leader has no follower begin where its log has no records any more",
    "retired-unkept": (
        "a broker keeps the records of a replica that it gives up, unless its disk is full"
    ),
    "credit-passed": "a consumer is sent no record that begins behind its credit",
    "lost-too-much": (
        "if all in-sync replicas have lost what was in their memories, the best of them leads with "
        "what is on its device; by an operator's order, the best of the remaining replicas leads"
    ),
    "lost-unasked": (
        "without an operator's order nothing is given up that a member of the last in-sync set may "
        "come back with, or that each of them had on its device"
    ),
    "lost-untold": "all records that are known to be lost are reported",
    "liveness": "once all faults are healed, the cluster works again within a bounded time",
    "complaint": "a node logs no error that no fault excuses",
    "exception": "no node ends with an unexpected exception",
    "DeadlockError": "some task can run, or something is due",
    "SpinningError": "virtual time advances",
    **{rule: words for system in SYSTEMS for rule, words in system.promises.items()},
}
"""Rule -> what holds if it isn't broken, as reports show it."""
