"""An acceptance of a partition with very many logs."""

from octopi.coordination.acceptance_pages import AcceptancePages, pages_of
from octopi.limits import LIST_COUNT_MAX, MESSAGE_BYTES_MAX
from octopi.wire.codec import decode, encode
from octopi.wire.messages import AcceptEpoch, LogEnd

LOG_COUNT = 2 * LIST_COUNT_MAX + 1


def test_the_ends_of_very_many_logs_go_in_messages_that_may_be_sent() -> None:
    ends = [LogEnd(f"{number:016x}", (1 << 59) + number) for number in range(LOG_COUNT)]
    whole = AcceptEpoch(0, 5, 1, 1, last_epoch=4, log_epoch=4, ends=ends)
    pages = pages_of(whole)
    assert [len(page.ends) for page in pages] == [LIST_COUNT_MAX, LIST_COUNT_MAX, 1]
    gathering = AcceptancePages()
    found = None
    for page in pages:
        assert found is None
        sent = encode(page)
        assert len(sent) < MESSAGE_BYTES_MAX // 10
        received = decode(sent, frozenset({AcceptEpoch}))
        assert isinstance(received, AcceptEpoch)
        found = gathering.add(received)
    assert found == whole


def test_an_acceptance_without_logs_is_one_message() -> None:
    nothing = AcceptEpoch(0, 5, 1, 1, last_epoch=0, log_epoch=0, ends=[])
    assert pages_of(nothing) == [nothing]
