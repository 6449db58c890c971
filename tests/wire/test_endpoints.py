"""The table of endpoints covers the protocol."""

from __future__ import annotations

import attrs
import pytest

from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT, EVERYWHERE, FOLLOW, MEMBERSHIP, NOTICES, REQUESTS

SOMEWHERE = EVERYWHERE.union(
    *(
        allowed
        for endpoint in (CLIENT, MEMBERSHIP, FOLLOW)
        for allowed in (endpoint.to_decider, endpoint.to_leader, endpoint.back)
    )
)


@pytest.mark.parametrize("cls", m.TYPE_NAMES, ids=lambda cls: cls.__name__)
def test_every_message_may_be_sent_somewhere(cls: type) -> None:
    assert cls in SOMEWHERE


@pytest.mark.parametrize("cls", m.TYPE_NAMES, ids=lambda cls: cls.__name__)
def test_a_request_is_what_has_an_answer_and_a_number_of_its_own(cls: type) -> None:
    has_answer = "Answer: " in (cls.__doc__ or "")
    speaks_of_another = cls in NOTICES
    has_number = "request" in {field.name for field in attrs.fields(cls)}
    assert (cls in REQUESTS) == (has_answer and has_number and not speaks_of_another)


def test_a_register_takes_what_goes_to_the_decider_and_a_broker_what_goes_to_a_leader() -> None:
    assert m.CreateTopic in CLIENT.accepted_by("register") - CLIENT.accepted_by("broker")
    assert m.Produce in CLIENT.accepted_by("broker") - CLIENT.accepted_by("register")
