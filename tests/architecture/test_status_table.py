"""The statuses of the wire: their numbers and names are for ever, each has its meaning."""

import re
from pathlib import Path

import pytest

from octopi.errors import (
    STATUS_MEANINGS,
    Blame,
    RedirectLoopError,
    RefusedError,
    Status,
    refused,
)

NUMBERS = {
    "MALFORMED_MESSAGE": 1,
    "UNKNOWN_MESSAGE": 2,
    "UNSUPPORTED_VERSION": 3,
    "WRONG_ENDPOINT": 4,
    "MESSAGE_TOO_LARGE": 5,
    "TOO_MANY": 6,
    "TOO_SLOW": 7,
    "UNKNOWN_TOPIC": 20,
    "INVALID_TOPIC": 21,
    "TOPIC_EXISTS": 22,
    "UNKNOWN_PARTITION": 23,
    "INVALID_OPTION": 24,
    "WRONG_KIND": 25,
    "TOPIC_CLOSED": 26,
    "MALFORMED_RECORD": 30,
    "RECORD_CHECKSUM": 31,
    "CONDITION_FAILED": 32,
    "OFFSET_INSIDE_RECORD": 33,
    "OFFSET_OUT_OF_RANGE": 34,
    "SEQUENCE_GAP": 35,
    "PRODUCER_FENCED": 36,
    "UNKNOWN_PRODUCER": 37,
    "RECEIPT_FORGOTTEN": 38,
    "UNCOMMITTED": 39,
    "NOT_LEADER": 40,
    "NOT_READY": 41,
    "NO_BROKER": 42,
    "SHUTTING_DOWN": 43,
    "NO_QUORUM": 44,
    "STALE_ROUTE": 45,
    "HISTORY_FORKED": 46,
    "BUFFER_FULL": 48,
    "ANSWER_LOST": 49,
    "DISK_FULL": 50,
    "LOG_READ_ONLY": 51,
    "LOG_CORRUPT": 52,
    "INTERNAL": 53,
    "DUPLICATE_BROKER": 60,
    "REGISTER_SUPERSEDED": 63,
    "BROKER_IN_USE": 64,
    "WRONG_CLUSTER": 61,
    "BROKER_FENCED": 62,
    "UNAUTHENTICATED": 70,
    "FORBIDDEN": 71,
    "EXPIRED": 72,
    "OVER_LIMIT": 73,
    "QUOTA_EXCEEDED": 74,
    "NOT_A_MEMBER": 75,
    "UNKNOWN_SUBSCRIPTION": 80,
    "SUBSCRIPTION_EXISTS": 81,
    "SUBSCRIPTION_BUSY": 82,
    "MEMBER_FENCED": 83,
    "STALE_DELIVERY": 84,
    "UNKNOWN_MEMBER": 85,
    "WRONG_MODE": 86,
}
"""What clients in the field know.  A line may be added; none may change or go."""

each_status = pytest.mark.parametrize("status", Status, ids=lambda status: status.name.lower())


def refusals() -> list[type[RefusedError]]:
    """The classes of refusals that callers react to, at any depth, but for that which clients make
    of several refusals."""
    found, waiting = [], RefusedError.__subclasses__()
    while waiting:
        one = waiting.pop()
        if one is not RedirectLoopError:
            found.append(one)
        waiting += one.__subclasses__()
    return sorted(found, key=lambda cls: cls.__name__)


def test_numbers_and_names_of_statuses_stay_as_clients_know_them() -> None:
    # __members__ has aliases too: two names for one number.
    found = {name: int(status) for name, status in Status.__members__.items()}
    assert found == NUMBERS, "a new status gets a line in NUMBERS, above"
    assert len(set(NUMBERS.values())) == len(NUMBERS)


def test_zero_is_no_status() -> None:
    """So that a field that was never set can't be taken for one."""
    assert min(Status) > 0


@each_status
def test_a_status_says_what_to_do_next(status: Status) -> None:
    assert STATUS_MEANINGS[status].next


def test_the_table_has_rows_for_statuses_only_and_in_their_order() -> None:
    assert list(STATUS_MEANINGS) == list(Status)


def test_the_protocol_document_has_the_same_table() -> None:
    document = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
    row = r"^\| (\d+) \| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \| (\w+) \| (\d+) \| (.+) \|$"
    rows = re.findall(row, document, re.MULTILINE)
    assert rows == [
        (
            str(int(status)),
            status.name.lower(),
            "yes" if meaning.retryable else "no",
            meaning.fault.value,
            "yes" if meaning.before_append else "no",
            "yes" if meaning.look_up else "no",
            str(meaning.http),
            meaning.next,
        )
        for status, meaning in STATUS_MEANINGS.items()
    ], 'docs/protocol.md, "Statuses", has the same rows'


def test_a_refusal_that_blames_neither_side_is_retryable_but_for_some_statuses() -> None:
    final = {
        status
        for status, meaning in STATUS_MEANINGS.items()
        if meaning.fault is Blame.NEITHER and not meaning.retryable
    }
    assert final == {
        Status.UNKNOWN_PRODUCER,
        Status.RECEIPT_FORGOTTEN,
        Status.HISTORY_FORKED,
        Status.MEMBER_FENCED,
        Status.STALE_DELIVERY,
        Status.UNKNOWN_MEMBER,
    }


@each_status
def test_a_status_after_which_clients_look_up_the_topic_means_refused_before_append(
    status: Status,
) -> None:
    """Or the records of a request that is sent again could be stored twice."""
    meaning = STATUS_MEANINGS[status]
    assert meaning.before_append or not meaning.look_up


@each_status
def test_a_status_about_tokens_means_refused_before_append(status: Status) -> None:
    meaning = STATUS_MEANINGS[status]
    assert meaning.before_append or not meaning.of_access


def test_a_failure_of_the_node_itself_does_not_say_whether_records_were_appended() -> None:
    unknown = {Status.LOG_READ_ONLY, Status.LOG_CORRUPT, Status.INTERNAL, Status.UNCOMMITTED}
    assert not any(STATUS_MEANINGS[status].before_append for status in unknown)


@each_status
def test_an_answer_becomes_an_exception_with_all_its_fields(status: Status) -> None:
    error = refused(status, "because", "ws://127.0.0.1:7001", 3, 99)
    assert (error.status, error.address) == (status, "ws://127.0.0.1:7001")
    assert (error.epoch, error.offset) == (3, 99)
    assert error.retryable == STATUS_MEANINGS[status].retryable
    assert str(error) == f"because [{status.name.lower()}]"


@pytest.mark.parametrize("cls", refusals(), ids=lambda cls: cls.__name__)
def test_a_refusal_with_a_class_of_its_own_comes_back_as_that_class(
    cls: type[RefusedError],
) -> None:
    raised = cls("because")
    assert type(refused(raised.status, "because")) is cls


def test_no_two_classes_stand_for_one_status() -> None:
    statuses = [cls.default_status for cls in refusals()]
    assert None not in statuses
    assert len(set(statuses)) == len(statuses)


def test_a_status_without_a_class_of_its_own_is_a_plain_refusal() -> None:
    with_class = {cls.default_status for cls in refusals()}
    for status in set(Status) - with_class:
        assert type(refused(status, "because")) is RefusedError


def test_a_refusal_without_a_status_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="a refusal needs a status"):
        RefusedError("because")


def test_pages_and_programs_know_the_same_refusals_of_what_was_not_appended() -> None:
    file = Path(__file__).parents[2] / "octopi/console/static/client/publisher.js"
    listed = re.search(r"const BEFORE_APPEND = new Set\((.*?)\)", file.read_text(), re.DOTALL)
    assert listed is not None
    in_pages = set(re.findall(r'"(\w+)"', listed[1]))
    of_pages_alone = {"not_a_member", "unreachable", "page_refused", "token"}
    before_append = {
        one.name.lower() for one, is_so in STATUS_MEANINGS.items() if is_so.before_append
    }
    assert in_pages - of_pages_alone == before_append
