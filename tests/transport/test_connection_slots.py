"""Connection slots: strangers are closed for new connections, and clients leave some to members."""

from octopi.transport.connection_slots import ConnectionSlot, ConnectionSlots


def entered(places: ConnectionSlots, gone: list[str], name: str) -> ConnectionSlot:
    place = places.enter(lambda: gone.append(name))
    assert place is not None
    return place


def test_the_oldest_unauthenticated_connection_is_closed_for_a_new_one() -> None:
    places, gone = ConnectionSlots(3), list[str]()
    first, second, third = (entered(places, gone, name) for name in "abc")
    assert second.settle(is_client=True)
    entered(places, gone, "d")
    assert gone == ["a"]
    assert first.has_left
    assert places.count == 3
    first.leave()  # when it notices
    assert places.count == 3
    assert not first.settle(is_client=True)
    entered(places, gone, "e")
    assert gone == ["a", "c"]
    third.leave()
    second.leave()
    second.leave()
    assert (places.count, places.client_count) == (2, 0)


def test_an_authenticated_connection_is_not_closed_for_a_new_one() -> None:
    places, gone = ConnectionSlots(2), list[str]()
    for name in "ab":
        assert entered(places, gone, name).settle(is_client=name == "a")
    assert places.enter(lambda: None) is None
    assert gone == []


def test_clients_leave_connection_slots_to_members_and_operators() -> None:
    places, gone = ConnectionSlots(16), list[str]()
    clients = [entered(places, gone, "client") for _ in range(14)]
    assert all(one.settle(is_client=True) for one in clients)
    late = entered(places, gone, "late")
    assert not late.settle(is_client=True)
    late.leave()
    clients[0].leave()
    assert entered(places, gone, "next").settle(is_client=True)
    assert gone == []


def test_the_reserve_of_slots_is_an_eighth_up_to_a_bound() -> None:
    for count_max, settled_max in ((8, 7), (224, 196), (512, 448), (10_000, 9_936)):
        places = ConnectionSlots(count_max)
        assert places.settled_max == settled_max
        for _ in range(settled_max):
            assert entered(places, [], "client").settle(is_client=True)
        assert not entered(places, [], "late").settle(is_client=True)


def test_a_member_takes_the_slot_of_the_newest_client_and_not_one_of_the_reserve() -> None:
    """However many members come, there is a place in which the next one can prove that it is one,
    until there are members only."""
    places, gone = ConnectionSlots(16), list[str]()
    clients = [entered(places, gone, f"client {number}") for number in range(14)]
    assert all(one.settle(is_client=True) for one in clients)
    for number in range(13, -1, -1):
        assert entered(places, gone, "member").settle(is_client=False)
        assert gone.pop() == f"client {number}"
        assert not clients[number].has_left, "it holds a descriptor until it has gone"
        clients[number].leave()
        assert entered(places, gone, "stranger") is not None
    for _ in range(2):
        assert entered(places, gone, "member").settle(is_client=False)
    assert set(gone) == {"stranger"}
    assert places.enter(lambda: None) is None, "sixteen members"
    assert places.client_count == 0


def test_clients_and_members_leave_the_reserve_together() -> None:
    places, gone = ConnectionSlots(16), list[str]()
    for _ in range(4):
        assert entered(places, gone, "member").settle(is_client=False)
    for _ in range(10):
        assert entered(places, gone, "client").settle(is_client=True)
    assert not entered(places, gone, "late").settle(is_client=True)
    assert gone == []
