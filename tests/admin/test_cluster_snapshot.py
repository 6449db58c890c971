"""What is made of the answers of a register and its brokers."""

from typing import Any

import attrs
import pytest

from octopi import BrokerInfo, BrokerLog, ClusterInfo, LogInfo, PartitionInfo, UnservedTopic
from octopi.admin.cluster_snapshot import (
    ClusterSnapshot,
    broker_state,
    faults,
    holds,
    notes,
    partition_state,
    problems,
    replicas,
)
from octopi.identifiers import BrokerId, Epoch, Incarnation, Offset, PartitionId
from octopi.wire.messages import ReplicaTroubleAt


def broker(number: int, *, live: bool = True) -> BrokerInfo:
    return BrokerInfo(BrokerId(number), f"ws://broker-{number}:1", Incarnation(1), live, 0)


def place(leader: int | None, in_sync: list[int]) -> PartitionInfo:
    replicas = [BrokerId(1), BrokerId(2), BrokerId(3)]
    return PartitionInfo(
        PartitionId(5),
        Epoch(1),
        None if leader is None else BrokerId(leader),
        "",
        replicas,
        [BrokerId(one) for one in in_sync],
        [],
    )


def log(number: int, log_end: int, *, topic: str = "orders", fault: str = "") -> BrokerLog:
    info = LogInfo(
        topic, topic, PartitionId(5), Epoch(1), Offset(10), Offset(90), Offset(log_end), 1000, fault
    )
    return BrokerLog(number, f"ws://broker-{number}:1", info)


def look(
    partition: PartitionInfo,
    *logs: BrokerLog,
    away: frozenset[int] = frozenset(),
    silent: frozenset[int] = frozenset(),
) -> ClusterSnapshot:
    brokers = [broker(number, live=number not in away) for number in (1, 2, 3)]
    cluster = ClusterInfo("c", 1, 8, brokers, [partition])
    return ClusterSnapshot(cluster, list(logs), dict.fromkeys(silent, "no answer"))


def test_the_lag_of_a_follower_is_what_only_its_leader_has() -> None:
    seen = look(place(2, [1, 2]), log(1, 100), log(2, 100), log(3, 40))
    found = replicas(seen, seen.cluster.partitions)
    assert [(one.broker, one.role, one.state, one.lag_bytes) for one in found] == [
        (2, "leader", "in sync", 0),
        (1, "follower", "in sync", 0),
        (3, "follower", "behind", 60),
    ]


def test_the_logs_of_a_partition_are_added_up() -> None:
    seen = look(
        place(1, [1, 2, 3]),
        *(log(number, 100, topic=topic) for number in (1, 2) for topic in ("orders", "bills")),
        log(3, 70),
    )
    leader, _, third = replicas(seen, seen.cluster.partitions)
    assert attrs.asdict(leader) == {
        "partition": 5,
        "broker": 1,
        "role": "leader",
        "state": "in sync",
        "log_count": 2,
        "log_start": 20,
        "log_end": 200,
        "highwater": 180,
        "lag_bytes": 0,
        "size_bytes": 2000,
    }
    assert third.lag_bytes == 30 + 90  # the log that it hasn't begins at 10


def test_a_follower_that_was_asked_later_than_its_leader_has_no_lag() -> None:
    seen = look(place(1, [1, 2, 3]), log(1, 100), log(2, 150), log(3, 100))
    assert [one.lag_bytes for one in replicas(seen, seen.cluster.partitions)] == [0, 0, 0]


def test_of_a_broker_that_is_away_or_silent_nothing_is_known() -> None:
    seen = look(place(1, [1, 2, 3]), log(1, 100), away=frozenset({2}), silent=frozenset({3}))
    _, second, third = replicas(seen, seen.cluster.partitions)
    assert (second.state, second.log_end, second.lag_bytes) == ("away", None, None)
    assert (third.state, third.log_end, third.lag_bytes) == ("silent", None, None)


def test_without_a_leader_no_lag_is_known() -> None:
    seen = look(place(None, [1]), log(2, 100), log(3, 90), away=frozenset({1}))
    found = replicas(seen, seen.cluster.partitions)
    assert [(one.state, one.log_end, one.lag_bytes) for one in found] == [
        ("away", None, None),
        ("behind", 100, None),
        ("behind", 90, None),
    ]


def test_the_state_of_a_partition_is_the_worst_of_what_is_wrong() -> None:
    everybody = {1, 2, 3}
    assert partition_state(place(1, [1, 2, 3]), everybody) == "ok"
    assert partition_state(place(1, [1, 2]), everybody) == "under-replicated"
    assert partition_state(place(1, [1, 2, 3]), {1, 2}) == "under-replicated"
    assert partition_state(place(1, [1]), everybody, 2) == "produce waits: in sync 1 < 2"
    assert partition_state(place(1, [1, 2]), {1, 3}, 2) == "produce waits: in sync 1 < 2"
    assert partition_state(place(None, [1]), everybody, 2) == "no leader"


def test_a_broker_that_is_gone_and_holds_nothing_is_not_missed() -> None:
    gone = broker(4, live=False)
    assert broker_state(broker(4), []) == "up"
    assert broker_state(gone, []) == "away"  # nothing is in use: nobody knows yet
    assert broker_state(gone, [place(1, [1])]) == "retired"
    assert broker_state(broker(3, live=False), [place(1, [1])]) == "away"


def test_faults_name_broker_and_log() -> None:
    logs = [log(1, 100), log(2, 90, fault="the disk failed")]
    assert faults(logs) == ["broker 2, orders/5: the disk failed"]


def test_problems_say_what_a_partition_without_a_leader_waits_for_and_which_command_helps() -> None:
    def said(**fields: Any) -> str:  # noqa: ANN401
        partition = attrs.evolve(place(None, fields.pop("in_sync", [])), **fields)
        return "\n".join(problems(look(partition)))

    assert "waits for broker 3, in sync last" in said(waits_for=[3])
    assert "waits for brokers 1 3, in sync last" in said(waits_for=[1, 3])
    assert "waits for one of brokers 1 3, in sync last" in said(waits_for=[1, 3], in_sync=[1, 3])
    assert "has lost data from its disk" in said(is_stuck=True)
    for fields in ({"waits_for": [3]}, {"is_stuck": True}):
        assert "`octopi-node partitions recover 5`" in said(**fields)
    assert "recover" not in said()
    assert "recover" not in said(leader=1, waits_for=[3])


def test_it_is_said_for_whom_retention_keeps_more() -> None:
    held = attrs.evolve(log(1, 100).log, held_bytes=2000, held_for="billing")
    logs = [log(1, 100), attrs.evolve(log(2, 100), log=held)]
    where = "broker 2, orders/5: retention keeps 2000 bytes more for"
    assert holds(logs) == [f"{where} subscription billing"]
    unknown = attrs.evolve(logs[1], log=attrs.evolve(held, held_for=""))
    assert holds([unknown]) == [f"{where} subscriptions"]


def test_a_leader_that_was_chosen_though_messages_may_be_lost_is_noted_for_good() -> None:
    recovered = attrs.evolve(place(1, [1, 2, 3]), recovered_epoch=Epoch(4))
    (note,) = notes([place(1, [1]), recovered])
    assert "partition 5: in epoch 4" in note
    assert problems(look(recovered)) == []


def test_a_full_disk_is_a_problem_of_its_broker_and_of_the_partitions_on_it() -> None:
    full = "/data takes nothing: No space left on device"
    troubled = attrs.evolve(place(2, [1, 2, 3]), troubles=[ReplicaTroubleAt(BrokerId(2), full)])
    seen = look(troubled)
    brokers = [
        attrs.evolve(one, disk_trouble=full if one.broker == 2 else "")
        for one in seen.cluster.brokers
    ]
    seen = attrs.evolve(seen, cluster=attrs.evolve(seen.cluster, brokers=brokers))
    assert partition_state(troubled, {1, 2, 3}) == "takes no records"
    first, second = problems(seen)
    assert first == "takes no records: partition 5"
    assert second.startswith(f"broker 2, partition 5: {full}; free space")
    assert "octopi-node partitions move" in second


def test_a_replica_that_failed_is_a_problem_also_while_another_one_leads() -> None:
    reason = "Input/output error; restart the broker"
    troubled = attrs.evolve(place(1, [1, 2, 3]), troubles=[ReplicaTroubleAt(BrokerId(3), reason)])
    assert problems(look(troubled)) == [f"broker 3, partition 5: {reason}"]
    assert partition_state(troubled, {1, 2, 3}) == "ok"


def test_a_register_that_learns_its_partitions_again_is_a_problem() -> None:
    cluster = ClusterInfo(
        "c",
        0,
        8,
        [broker(2)],
        [],
        learns=[PartitionId(0), PartitionId(3)],
        learns_from=[BrokerId(1), BrokerId(2)],
    )
    assert problems(ClusterSnapshot(cluster, [], {})) == [
        "the register lost decisions, and learns them again from brokers: partitions 0 3; "
        "start brokers 1 2"
    ]


@pytest.mark.parametrize(
    ("used_id", "why"),
    [
        ("2" * 16, f"the topic of that name in use has id {'2' * 16}"),
        ("", "the register has no topic of that name"),
    ],
)
def test_a_topic_that_a_broker_keeps_and_does_not_serve_is_a_problem(
    used_id: str, why: str
) -> None:
    unserved = UnservedTopic("orders", "3" * 16, BrokerId(3), used_id)
    cluster = ClusterInfo("c", 1, 8, [broker(3)], [], unserved=[unserved])
    assert problems(ClusterSnapshot(cluster, [], {})) == [
        f"broker 3 keeps records of a topic orders with id {'3' * 16}, which it does not serve: "
        f"{why}; if they are not needed, run `octopi-node topics delete --id {'3' * 16}`"
    ]
