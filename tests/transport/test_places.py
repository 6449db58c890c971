"""Places for connections: strangers go for newcomers, and clients leave some to others."""

from octopi.transport.places import Place, Places


def entered(places: Places, gone: list[str], name: str) -> Place:
    place = places.enter(lambda: gone.append(name))
    assert place is not None
    return place


def test_the_oldest_stranger_goes_for_who_comes_next() -> None:
    places, gone = Places(3), list[str]()
    first, second, third = (entered(places, gone, name) for name in "abc")
    assert second.settle(is_client=True)
    entered(places, gone, "d")
    assert gone == ["a"]
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


def test_who_has_settled_goes_for_nobody() -> None:
    places, gone = Places(2), list[str]()
    for name in "ab":
        assert entered(places, gone, name).settle(is_client=name == "a")
    assert places.enter(lambda: None) is None
    assert gone == []


def test_clients_leave_places_to_others() -> None:
    places, gone = Places(16), list[str]()
    clients = [entered(places, gone, "client") for _ in range(14)]
    assert all(one.settle(is_client=True) for one in clients)
    late = entered(places, gone, "late")
    assert not late.settle(is_client=True)
    late.leave()
    for _ in range(2):
        assert entered(places, gone, "node").settle(is_client=False)
    assert places.enter(lambda: None) is None
    clients[0].leave()
    assert entered(places, gone, "next").settle(is_client=True)
    assert gone == []
