"""What the Trio client offers, the client for asyncio offers in the same form."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing

import pytest

import octopi
import octopi.aio

PAIRS: dict[type, type] = {
    octopi.Admin: octopi.aio.Admin,
    octopi.Client: octopi.aio.Client,
    octopi.Consumer: octopi.aio.Consumer,
    octopi.MarkKeeper: octopi.aio.MarkKeeper,
    octopi.MultiTopicConsumer: octopi.aio.MultiTopicConsumer,
    octopi.PendingReceipt: octopi.aio.PendingReceipt,
    octopi.Pipe: octopi.aio.Pipe,
    octopi.Producer: octopi.aio.Producer,
    octopi.QueueSubscription: octopi.aio.QueueSubscription,
    octopi.RecordReader: octopi.aio.RecordReader,
    octopi.StoredRecords: octopi.aio.StoredRecords,
    octopi.SubscribedLog: octopi.aio.SubscribedLog,
    octopi.Subscription: octopi.aio.Subscription,
}

WITHIN = {
    "SubscribedLog.next_batch",
    "abandon",
    "begin",
    "check_open",
    "chunks_nowait",
    "next_batch_nowait",
    "close",
    "confirmed",
    "dealt",
    "description",
    "end",
    "error",
    "fail",
    "fenced",
    "finish",
    "first_place",
    "hand_out",
    "has_in_hand",
    "has_let_others_run",
    "has_unconfirmed",
    "is_at_end",
    "is_idle",
    "is_named",
    "is_prepared",
    "join",
    "leave",
    "may_go_on",
    "may_hand_out",
    "next_at_hand",
    "next_log_nowait",
    "next_message",
    "next_nowait",
    "passed",
    "poll",
    "prepare",
    "reads",
    "ready",
    "receipt_by",
    "released",
    "restore_mark",
    "run",
    "settle",
    "start",
    "taking_many",
    "until_ready",
    "watch",
}
"""Methods that are not for programs: what opens and closes blocks, and what the parts of the client
tell one another.  Names that begin with ``take_`` are such, too."""


def offered(cls: type) -> dict[str, object]:
    """The methods and properties of *cls* for programs."""
    special = {"__aiter__", "__anext__", "__aenter__", "__aexit__", "__await__"}
    return {
        name: member
        for name, member in vars(cls).items()
        if (inspect.isfunction(member) or isinstance(member, property))
        and (name in special or not name.startswith(("_", "take_")))
        and name not in WITHIN
        and f"{cls.__name__}.{name}" not in WITHIN
    }


def shape(function: typing.Any) -> list[tuple[str, object, object]]:  # noqa: ANN401
    """The parameters of *function* with their kinds and defaults."""
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters]


@pytest.mark.parametrize("cls", PAIRS, ids=lambda cls: cls.__name__)
def test_each_method_of_the_trio_client_is_there_with_its_parameters(cls: type) -> None:
    there = offered(PAIRS[cls])
    for name, member in offered(cls).items():
        assert name in there, name
        twin = there[name]
        assert isinstance(member, property) == isinstance(twin, property), name
        if not isinstance(member, property):
            assert shape(twin) == shape(member), name
            assert inspect.iscoroutinefunction(inspect.unwrap(typing.cast(typing.Any, twin))) == (
                inspect.iscoroutinefunction(inspect.unwrap(typing.cast(typing.Any, member)))
            ), name


@pytest.mark.parametrize("name", ["consumer", "subscription"])
def test_each_form_of_a_method_has_the_same_options(name: str) -> None:
    ours = typing.get_overloads(getattr(octopi.aio.Client, name))
    theirs = typing.get_overloads(getattr(octopi.Client, name))
    assert len(ours) == len(theirs) == 2
    assert [shape(one) for one in ours] == [shape(one) for one in theirs]


def test_connect_has_the_same_parameters() -> None:
    assert shape(octopi.aio.connect) == shape(octopi.connect)


def test_names_are_those_of_the_trio_client() -> None:
    for name in octopi.aio.__all__:
        assert hasattr(octopi, name)
        assert name == "connect" or getattr(octopi.aio, name) in PAIRS.values()


@pytest.mark.parametrize("statement", ["import octopi", "import octopi; octopi.connect"])
def test_trio_programs_do_not_load_the_package(statement: str) -> None:
    program = (
        f"import sys; {statement}; print([m for m in sys.modules if m.startswith('octopi.aio')])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert shown.stdout == b"[]\n"
