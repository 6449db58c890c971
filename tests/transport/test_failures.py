"""A refusal of a node is raised as the same exception at its peer."""

from __future__ import annotations

from octopi.errors import HistoryForkedError, NotLeaderError, Status
from octopi.transport.failures import failure_of, refusal
from octopi.wire.codec import decode, encode
from octopi.wire.messages import Failure


def sent(failure: Failure | None) -> Failure:
    answer = decode(encode(failure), frozenset({Failure}))
    assert isinstance(answer, Failure)
    return answer


def test_a_fork_reaches_the_peer_with_the_last_common_offset() -> None:
    error = refusal(sent(failure_of(3, HistoryForkedError("the history forked", offset=1200))))
    assert isinstance(error, HistoryForkedError)
    assert (error.status, error.offset) == (Status.HISTORY_FORKED, 1200)
    assert error.read_until is None


def test_a_refusal_reaches_the_peer_with_the_leaders_address_and_epoch() -> None:
    raised = NotLeaderError("broker 2 leads", address="ws://127.0.0.1:7002", epoch=8)
    error = refusal(sent(failure_of(3, raised)))
    assert isinstance(error, NotLeaderError)
    assert (error.address, error.epoch, error.offset) == ("ws://127.0.0.1:7002", 8, None)


def test_the_error_of_a_fork_names_the_range_that_was_read_and_is_lost() -> None:
    error = HistoryForkedError.of_range("orders", 0, 1200, 1500)
    assert (error.topic, error.partition, error.offset, error.read_until) == (
        "orders",
        0,
        1200,
        1500,
    )
    assert "orders/0: the records from offset 1200 to 1500 were lost" in str(error)
