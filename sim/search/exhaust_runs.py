"""The scenarios of the exhaustive search: small runs that together reach every step and every kind
of I/O.

Each is a plan with a light load and, if something has to go wrong first, with faults of its own.
They are cheap, because thousands of them are run.  Their tasks run in the order in which they were
started, which is easy to follow.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from octopi.simulation.disk.faults import DiskFault, Tear
from octopi.simulation.faults.actions import (
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Reset,
    Stop,
    When,
)
from octopi.simulation.faults.damage import Damage
from sim.run.plan import Plan, WorkloadOptions

_LIGHT: Final = WorkloadOptions(
    producers=1, records=10, consumers=1, topic_partitions=1, value_bytes_max=100, pause_s=0.01
)
_BUSY_S: Final = 0.3
"""A time at which the load is under way."""


def _plan(*faults: InjectedFault, load: dict[str, Any] | None = None, **options: Any) -> Plan:  # noqa: ANN401
    usual = {"seed": 1, "partitions": 1, "order": "fifo", "gather_s": 0.05, "flush_interval_s": 0.1}
    workload = attrs.evolve(_LIGHT, **(load or {}))
    return Plan(workload=workload, faults=faults, **{**usual, **options})


SCENARIOS: Final[dict[str, Plan]] = {
    # No fault; a producer is closed and another one continues.
    "produce": _plan(load={"reopen_count": 4}),
    # The same with records that are flushed before they are acknowledged.
    "flush": _plan(flush_before_ack=True),
    # A producer with a name is closed, and another life of it continues.
    "named": _plan(load={"reopen_count": 4, "named_producers": 1}),
    # The leader dies with records that no other broker has, and comes back.
    "failover": _plan(InjectedFault(AtStep("P2b", "leader", 4), Kill(0.1)), load={"pause_s": 0.05}),
    # There is one replica, and its broker dies within an append.
    "alone": _plan(
        InjectedFault(AtStep("P2a", "leader", 5), BreakDisk(DiskFault("append", Tear()))),
        InjectedFault(AtEffect("append", "during", "leader"), Kill(0.05)),
        brokers=1,
        replicas=1,
        flush_before_ack=True,
        load={"pause_s": 0.02},
    ),
    # A broker dies while it stores its identity.
    "beginning": _plan(InjectedFault(AtEffect("rename", "before", "broker-2"), Kill(0.05))),
    # The register dies, and brokers go on without it.
    "register": _plan(InjectedFault(AtTime(_BUSY_S), Kill(0.1), "register"), load={"pause_s": 0.1}),
    # A connection between a broker and the register breaks.
    "link": _plan(
        InjectedFault(AtTime(_BUSY_S), Reset("broker"), "register"), load={"pause_s": 0.1}
    ),
    # The leader is asked to stop, and starts again; then a follower.
    "stop": _plan(
        InjectedFault(AtTime(_BUSY_S), Stop(0.1), "leader"),
        InjectedFault(AtTime(0.5, behind=True), Stop(0.1), "follower"),
        load={"pause_s": 0.15},
    ),
    # A topic is created and deleted; leaders and replicas move.
    "chores": _plan(brokers=4, load={"pause_s": 0.1, "chores": ("topic", "grow", "drain", "move")}),
    # A topic is altered, twice.
    "altered": _plan(load={"pause_s": 0.1, "chores": ("alter",)}),
    # The leader is cut off from all others.
    "isolation": _plan(
        InjectedFault(AtTime(_BUSY_S), Cut("others", 2.0), "leader"), load={"pause_s": 0.1}
    ),
    # The leader dies while a follower is cut off from it, and out of sync.
    "straggler": _plan(
        InjectedFault(AtTime(_BUSY_S), Cut("leader", 3.0), "broker-3"),
        InjectedFault(When("in_sync", 2), Kill(0.1), "leader"),
        load={"pause_s": 0.1},
    ),
    # The leader's disk fails, and it resigns.
    "resignation": _plan(InjectedFault(AtStep("P2a", "leader", 5), BreakDisk(DiskFault("append")))),
    # Too few are in sync, so producers are refused until they give up.
    "refusal": _plan(
        InjectedFault(AtTime(_BUSY_S), Kill(2.0), "follower"),
        min_insync=3,
        load={"delivery_timeout_s": 1.0, "pause_s": 0.05},
    ),
    # Retention removes records before two consumers, one of each kind, and a follower have read
    # them.
    "retention": _plan(
        InjectedFault(AtTime(_BUSY_S), Kill(0.4), "consumer-1"),
        InjectedFault(AtTime(_BUSY_S), Kill(0.4), "consumer-2"),
        InjectedFault(AtTime(_BUSY_S), Kill(0.4), "broker-3"),
        segment_bytes=4096,
        retention_bytes=4096,
        retention_check_interval_s=0.05,
        load={"consumers": 2, "records": 20, "value_bytes_max": 6000, "pause_s": 0.03},
    ),
    # All machines lose their power and records that consumers have read: one consumer starts again,
    # one resumes.
    "fork": _plan(
        InjectedFault(AtStep("P7b", occurrence=9), LosePower(0.1), "broker-1"),
        InjectedFault(AtTime(0.0, behind=True), LosePower(0.1), "broker-2"),
        InjectedFault(AtTime(0.0, behind=True), LosePower(0.1), "broker-3"),
        seed=3,
        loses_all=True,
        flush_interval_s=5.0,
        load={"consumers": 2, "records": 60, "pause_s": 0.02},
    ),
    # The active one of three registers is cut off from the others, and they fold their journals.
    "registers": _plan(
        InjectedFault(AtTime(_BUSY_S), Cut("register", 1.5), "active"),
        registers=3,
        snapshot_entries=5,
        load={"pause_s": 0.1, "records": 20, "chores": ("topic", "alter")},
    ),
    # A broker of a cluster without a register dies; topics are made and deleted.
    "ring": _plan(
        InjectedFault(AtTime(2.0), Kill(0.5), "leader"),
        founders=3,
        load={"pause_s": 0.1, "records": 20, "chores": ("topic",), "entrances": "brokers"},
    ),
    # A relay is cut off while buffers are overwritten; then the sequencer dies.
    "relays": _plan(
        InjectedFault(AtTime(1.5), Cut("others", 1.0, resets=True), "relay"),
        InjectedFault(AtTime(1.8, behind=True), Kill(0.2), "sequencer"),
        load={
            "pause_s": 0.05,
            "records": 50,
            "consumers": 2,
            "relay_topics": 1,
            "relay_buffer_count": 2,
        },
    ),
    # A relay is cut off while the two others restart and begin a timeline, and gives up what it
    # holds.
    "timelines": _plan(
        InjectedFault(AtTime(1.0), Cut("others", 12.5), "broker-3"),
        InjectedFault(AtTime(1.0, behind=True), Kill(0.1), "broker-2"),
        faults_s=15.0,
        load={"pause_s": 0.5, "records": 25, "relay_topics": 1},
    ),
    # A broker's log is cut short while it is down.
    "damage": _plan(
        InjectedFault(AtTime(0.8), Damage("cut", "log", 0.1), "broker-3"),
        load={"records": 20, "pause_s": 0.1},
    ),
    # Members come and go, one is asked to release a log; then an operator sets marks, and deletes
    # the subscription.
    "subscription": _plan(
        partitions=2,
        load={
            "topic_partitions": 2,
            "records": 20,
            "pause_s": 0.05,
            "members": 2,
            "member_mode": "failover",
            "member_pause_s": 0.02,
            "member_stay_count": 5,
            "chores": ("reset", "delete"),
        },
    ),
    # One of the same keeps its log when it comes back.
    "static member": _plan(
        load={
            "pause_s": 0.05,
            "members": 1,
            "static_members": 1,
            "member_pause_s": 0.02,
            "member_stay_count": 3,
            "chores": ("reset", "delete"),
        },
    ),
    # Members work a queue off, fail at some messages, and are late; then the leader dies.
    "queue": _plan(
        InjectedFault(AtStep("S14b", "leader", 2), Kill(0.1)),
        load={
            "records": 20,
            "pause_s": 0.05,
            "members": 2,
            "member_mode": "key_shared",
            "member_pause_s": 0.02,
            "member_stay_count": 8,
            "queue_attempts": 2,
            "queue_window": 10,
        },
    ),
    # The same without order, with one message in hand, and without a fault.
    "shared queue": _plan(
        load={
            "records": 15,
            "pause_s": 0.05,
            "members": 2,
            "member_mode": "shared",
            "member_pause_s": 0.02,
            "queue_attempts": 1,
            "queue_prefetch": 1,
        },
    ),
    # The register replaces its journal by a snapshot.
    "snapshot": _plan(snapshot_entries=3, load={"chores": ("topic",)}),
    # A broker that was away gets back a leadership, since the other one has much more to do; then
    # nearly all of it is one partition's.
    "shedding": _plan(
        InjectedFault(AtTime(_BUSY_S), Kill(0.1), "broker-1"),
        brokers=2,
        replicas=2,
        partitions=3,
        sheds=True,
        rebalance_interval_s=3600.0,
        load={"records": 60, "pause_s": 0.03, "value_bytes_max": 3000, "topics": 3},
    ),
    # The register gets no messages of brokers during a planned hand-over of a leader.
    "wish": _plan(
        InjectedFault(AtTime(_BUSY_S), Kill(0.1), "broker-1"),
        InjectedFault(AtStep("E2", "register", 2), Cut("broker", 11.0), "register"),
        brokers=2,
        replicas=2,
        partitions=2,
        rebalance_interval_s=0.3,
        faults_s=12.5,
        load={"pause_s": 1.2, "topic_partitions": 2},
    ),
}
"""Names and plans."""
