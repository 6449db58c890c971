"""Which replicas serve, by what their brokers say."""

from octopi.coordination.health import Health
from octopi.wire.messages import BrokerStatus, ReplicaTrouble, ReplicaTroubleAt


def status(disk_trouble: str = "", **replicas: str) -> BrokerStatus:
    """A broker's status, with reasons by ``p`` and the partition's number."""
    troubles = [ReplicaTrouble(int(one.removeprefix("p")), why) for one, why in replicas.items()]
    return BrokerStatus(disk_trouble, 5, 10, troubles)


def test_a_broker_serves_its_partitions_once_it_has_answered_to_all_decisions() -> None:
    health = Health()
    assert not health.serves(1, 0)
    health.informed(1)
    assert health.serves(1, 0)
    assert health.is_led_to(1, 0)
    health.forget(1)
    assert not health.serves(1, 0)
    assert not health.brokers


def test_a_decision_that_was_not_stored_keeps_clients_from_that_partition_alone() -> None:
    health = Health()
    health.informed(1)
    assert health.unstored(1, {3})
    assert not health.unstored(1, {3})
    assert not health.is_led_to(1, 3)
    assert health.serves(1, 4)
    assert health.is_troubled(1)
    assert health.unstored(1, [])
    assert health.serves(1, 3)
    health.check_invariants()


def test_clients_are_still_sent_to_a_leader_that_takes_no_records() -> None:
    health = Health()
    health.informed(1)
    assert health.told(1, status(p3="broken"))
    assert (health.serves(1, 3), health.is_led_to(1, 3)) == (False, True)
    assert health.troubles(3, [1, 2]) == [ReplicaTroubleAt(1, "broken")]
    assert health.told(1, status(p3=""))
    assert health.serves(1, 3)
    assert not health.is_troubled(1)
    health.check_invariants()


def test_a_full_disk_keeps_all_replicas_on_it_from_serving() -> None:
    health = Health()
    health.informed(1)
    assert health.told(1, status("full"))
    assert not health.told(1, status("full"))
    assert [health.trouble(1, partition) for partition in (0, 7)] == ["full", "full"]
    assert health.status(1) == status("full")
    assert health.status(2) is None
    health.reconnected(1)
    assert health.serves(1, 0)
    assert health.told(1, status("full"))
    assert health.told(1, status())
    assert health.serves(1, 0)
    assert not health.told(1, status())
