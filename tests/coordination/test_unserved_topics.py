"""Topics that a broker holds and the register doesn't serve: told, and deleted by their ids."""

import attrs
import pytest

from octopi.coordination.journal_entries import BrokerRemoved, OlderTopicFound, TopicDeleted
from octopi.errors import UnknownTopicError
from octopi.limits import UNSERVED_TOPICS_MAX
from octopi.wire.messages import Inventory, RemovedTopic, TopicOptions, TopicRecord, UnservedTopic
from tests.coordination.joins import join
from tests.coordination.test_rebuild import CLUSTER, NEW, OLD, Register, a_topic, report, reporting

IN_USE = a_topic("2")
OTHER = a_topic("3")


def a_register_with_two_topics_of_one_name() -> Register:
    register = Register()
    report(register, 1, IN_USE, NEW)
    report(register, 2, IN_USE, NEW)
    report(register, 3, OTHER)
    return register


def test_a_topic_that_is_not_served_because_of_another_one_of_its_name_is_listed() -> None:
    register = a_register_with_two_topics_of_one_name()
    told = UnservedTopic("orders", OTHER.topic_id, 3, IN_USE.topic_id)
    assert register.controller.unserved.found() == [told]
    assert register.controller.unserved.found(lambda name: name != "orders") == []
    register.persist(register.controller.topics.delete("orders"))
    assert register.controller.unserved.found() == [attrs.evolve(told, used_id="")]


def test_an_unserved_topic_is_deleted_by_its_id_and_no_other_one_is() -> None:
    register = a_register_with_two_topics_of_one_name()
    assert register.controller.topics.of_id(OTHER.topic_id) == OTHER
    deletion = register.controller.topics.delete_by_id(OTHER.topic_id)
    assert deletion.topic == OTHER
    assert deletion.entries == [OlderTopicFound("orders", OTHER.topic_id, 3)]
    register.persist(deletion)
    assert register.controller.unserved.found() == []
    assert register.controller.view.removals_of(3) == [RemovedTopic("orders", OTHER.topic_id)]
    assert register.controller.topics.require("orders").topic_id == IN_USE.topic_id
    with pytest.raises(UnknownTopicError):
        register.controller.topics.delete_by_id(OTHER.topic_id)


def test_an_unserved_topic_is_not_listed_once_its_broker_reports_without_it() -> None:
    register = a_register_with_two_topics_of_one_name()
    register.controller.left(3, 1)
    report(register, 3, IN_USE)
    assert register.controller.unserved.found() == []


def test_an_unserved_topic_of_a_removed_broker_is_not_listed() -> None:
    register = a_register_with_two_topics_of_one_name()
    register.controller.apply(BrokerRemoved(3))
    assert register.controller.unserved.found() == []


def test_a_topic_that_the_register_never_created_is_listed_as_unserved() -> None:
    register = a_register_with_two_topics_of_one_name()
    register.controller.left(3, 1)
    never = TopicRecord("never", "4" * 16, [0], TopicOptions())
    admission = register.controller.admit(
        join(3, cluster=CLUSTER), [reporting(3, OLD, [never]), Inventory([], [OTHER])]
    )
    register.record(admission.entries)
    register.controller.admitted(admission)
    assert register.controller.unserved.found() == [
        UnservedTopic("never", never.topic_id, 3, ""),
        UnservedTopic("orders", OTHER.topic_id, 3, IN_USE.topic_id),
    ]


def test_deleting_by_the_id_of_a_served_topic_deletes_that_topic() -> None:
    """Whoever reports it under another name can have nothing else removed by that."""
    register = a_register_with_two_topics_of_one_name()
    register.controller.left(3, 1)
    report(register, 3, attrs.evolve(IN_USE, topic="theirs"))
    (entry,) = register.controller.topics.delete_by_id(IN_USE.topic_id).entries
    assert isinstance(entry, TopicDeleted)
    assert entry.topic == "orders"


def test_a_broker_that_reports_very_many_topics_does_not_fill_the_memory() -> None:
    register = a_register_with_two_topics_of_one_name()
    many = [attrs.evolve(OTHER, topic_id=f"{one:016x}") for one in range(UNSERVED_TOPICS_MAX + 5)]
    for broker in (3, 4):
        register.controller.unserved.reported(broker, many)
    unserved = register.controller.unserved
    assert len(unserved.found()) == UNSERVED_TOPICS_MAX
    assert unserved.of_id(many[UNSERVED_TOPICS_MAX - 1].topic_id) is not None
    assert unserved.of_id(many[UNSERVED_TOPICS_MAX].topic_id) is None, "it is not kept"
