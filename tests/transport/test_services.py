"""Sessions that are made of services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from octopi.errors import ProtocolError
from octopi.identifiers import PartitionId
from octopi.roles.broker.client_parts import ClientParts, ServiceMaker
from octopi.roles.broker.node import BrokerNode, client_services
from octopi.roles.broker.ring.session import RingService
from octopi.roles.register.service_sessions import CLIENT_SERVICES as REGISTER_SERVICES
from octopi.transport.services import Service, ServiceSession
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT


class _Noting(Service):
    """Notes what it takes."""

    def __init__(self, *kinds: type) -> None:
        super().__init__(dict.fromkeys(kinds, self._take))
        self.taken: list[object] = []
        self.regranted_count = 0

    def _take(self, message: object) -> None:
        self.taken.append(message)

    def token_refreshed(self) -> None:
        self.regranted_count += 1


def test_each_message_goes_to_the_service_that_takes_its_type() -> None:
    topics, offsets = _Noting(m.DescribeTopic, m.DeleteTopic), _Noting(m.FindOffset)
    session = ServiceSession("broker", [topics, offsets])
    found = m.FindOffset(1, "orders", PartitionId(3), "earliest", 0)
    deleted = m.DeleteTopic(2, "orders")
    session.handle(found)
    session.handle(deleted)
    assert (topics.taken, offsets.taken) == ([deleted], [found])


def test_a_message_that_no_service_takes_is_an_error_of_the_peer() -> None:
    session = ServiceSession("register", [_Noting(m.DeleteTopic)])
    with pytest.raises(ProtocolError, match="FindOffset is no request for a register"):
        session.handle(m.FindOffset(1, "orders", PartitionId(3), "earliest", 0))


def test_two_services_can_not_take_the_same_type_of_messages() -> None:
    services = [_Noting(m.DeleteTopic, m.FindOffset), _Noting(m.FindOffset)]
    with pytest.raises(ValueError, match="two services take FindOffset"):
        ServiceSession("broker", services)


def test_services_that_an_iterator_makes_begin_with_the_first_message() -> None:
    made: list[_Noting] = []

    def make() -> Iterator[Service]:
        made.append(_Noting(m.DeleteTopic))
        yield made[0]

    session = ServiceSession("broker", make())
    session.token_refreshed()
    session.closed()
    assert made == []
    for topic in ("orders", "users"):
        session.handle(m.DeleteTopic(1, topic))
    session.token_refreshed()
    assert made[0].taken == [m.DeleteTopic(1, "orders"), m.DeleteTopic(1, "users")]
    assert (len(made), made[0].regranted_count) == (1, 1)


def test_all_services_hear_of_a_fresh_token() -> None:
    services = [_Noting(m.DeleteTopic), _Noting(m.FindOffset)]
    ServiceSession("broker", services).token_refreshed()
    assert [one.regranted_count for one in services] == [1, 1]


def test_a_service_holds_no_memory_and_waits_for_nothing_by_default() -> None:
    service = Service({})
    service.token_refreshed()
    assert (service.sizes(), service.waiting_count) == ({}, 0)


class _Surroundings:
    """Has every attribute: services only look for theirs when they are made."""

    def __getattr__(self, name: str) -> _Surroundings:
        return self


def _taken_by(services: Iterable[Callable[[Any], Service]]) -> set[type]:
    return {kind for make in services for kind in make(_Surroundings()).handlers}


def test_the_services_of_a_role_take_all_that_its_clients_may_send() -> None:
    ours = {m.Authenticate}  # taken before a session sees it
    around: Any = _Surroundings()
    parts = ClientParts(around, around, around, around, around)
    node = BrokerNode(around, around, around, parts, around, around, around, around, around, 0.0)
    assert _taken_by(client_services(node)) == CLIENT.to_leader - ours
    of_ring: list[ServiceMaker] = [
        *parts.services("test", 0.0, around, around),
        partial(RingService, lambda: around, lambda: around),
    ]
    assert _taken_by(of_ring) == CLIENT.to_leader - ours
    assert _taken_by(REGISTER_SERVICES) == CLIENT.to_decider - ours
