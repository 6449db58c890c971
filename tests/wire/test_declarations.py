"""A message says what it is, where it is sent and what it needs, or it can't be declared."""

from __future__ import annotations

import attrs
import pytest

from octopi.model import Verb
from octopi.wire import messages as m
from octopi.wire.declarations import (
    ANY_TOKEN,
    CLIENT_TO_DECIDER,
    DECLARATIONS,
    MEMBER_TO_DECIDER,
    MESSAGES,
    TO_CLIENT,
    MessageKind,
    Permission,
    answer,
    connection,
    notice,
    on_its_topic,
    on_the_cluster,
    request,
    sent_on,
)


@attrs.frozen
class Numbered:
    """Something with the number of a request, and without a topic."""

    request: int


@attrs.frozen
class Unnumbered:
    """Something that has neither."""


@pytest.fixture(autouse=True)
def nothing_is_declared_by_a_class_that_was_refused() -> None:
    assert Numbered not in DECLARATIONS
    assert Unnumbered not in DECLARATIONS


@pytest.mark.parametrize(
    ("declare", "cls", "fault"),
    [
        (request("x", CLIENT_TO_DECIDER), Numbered, "does not say which permission it needs"),
        (notice("x", MEMBER_TO_DECIDER), Unnumbered, "does not say which permission it needs"),
        (answer("x", MEMBER_TO_DECIDER), Numbered, "does not say which permission it needs"),
        (answer("x", TO_CLIENT, needs=ANY_TOKEN), Numbered, "needs none"),
        (request("x", needs=ANY_TOKEN), Numbered, "does not say where it is sent"),
        (notice("x"), Unnumbered, "does not say where it is sent"),
        (request("x", CLIENT_TO_DECIDER, needs=ANY_TOKEN), Numbered, "does not say how long"),
        (
            request("x", CLIENT_TO_DECIDER, needs=ANY_TOKEN),
            Unnumbered,
            "a request without a field 'request'",
        ),
        (
            request("x", CLIENT_TO_DECIDER, needs=on_its_topic(Verb.ADMIN)),
            Numbered,
            "a permission on its topic, and names none",
        ),
        (connection("hello"), Unnumbered, "the type name 'hello' is Hello's"),
    ],
)
def test_a_message_with_an_incomplete_declaration_is_refused_at_import(
    declare: type, cls: type, fault: str
) -> None:
    with pytest.raises(TypeError, match=fault):
        declare(cls)
    assert cls not in DECLARATIONS
    assert "x" not in MESSAGES


def test_a_declaration_holds_name_kind_routes_and_permission() -> None:
    produce = DECLARATIONS[m.Produce]
    assert produce.name == "produce"
    assert produce.kind is MessageKind.REQUEST
    assert produce.routes == {m.CLIENT_TO_LEADER}
    assert produce.needs == Permission(Verb.PUBLISH, on_its_topic=True)
    assert DECLARATIONS[m.Join].needs == on_the_cluster(Verb.REPLICATE)


def test_a_message_may_be_sent_on_several_routes() -> None:
    assert DECLARATIONS[m.Authenticate].routes == {m.CLIENT_TO_DECIDER, m.CLIENT_TO_LEADER}
    assert m.Done in sent_on(m.TO_CLIENT) & sent_on(m.MEMBER_TO_DECIDER)


@pytest.mark.parametrize("cls", DECLARATIONS, ids=lambda cls: cls.__name__)
def test_only_messages_that_are_checked_declare_a_permission(cls: type) -> None:
    declared = DECLARATIONS[cls]
    is_checked = any(route.is_checked for route in declared.routes)
    assert (declared.needs is not None) == is_checked
