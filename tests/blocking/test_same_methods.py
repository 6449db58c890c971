"""What the Trio client offers, the client for blocking programs offers in the same form."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing

import pytest

import octopi
import octopi.blocking
from tests.aio.test_same_methods import offered, shape

PAIRS: dict[type, type] = {
    getattr(octopi, name): getattr(octopi.blocking, name)
    for name in octopi.blocking.__all__
    if name not in {"connect", "timeout"}
}

PLAIN = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__await__": "receipt",
}


@pytest.mark.parametrize("cls", PAIRS, ids=lambda cls: cls.__name__)
def test_each_method_of_the_trio_client_is_there_with_its_parameters(cls: type) -> None:
    there = offered(PAIRS[cls])
    there |= {name: member for name, member in vars(PAIRS[cls]).items() if name in PLAIN.values()}
    for name, member in offered(cls).items():
        twin = there[PLAIN.get(name, name)]
        assert isinstance(member, property) == isinstance(twin, property), name
        if not isinstance(member, property):
            assert shape(twin) == shape(member), name
            assert not inspect.iscoroutinefunction(twin)


@pytest.mark.parametrize("name", ["consumer", "subscription"])
def test_each_form_of_a_method_has_the_same_options(name: str) -> None:
    ours = typing.get_overloads(getattr(octopi.blocking.Client, name))
    theirs = typing.get_overloads(getattr(octopi.Client, name))
    assert len(ours) == len(theirs) == 2
    assert [shape(one) for one in ours] == [shape(one) for one in theirs]


def test_connect_has_the_same_parameters() -> None:
    assert shape(octopi.blocking.connect) == shape(octopi.connect)


@pytest.mark.parametrize("statement", ["import octopi", "import octopi; octopi.connect"])
def test_trio_programs_do_not_load_the_package(statement: str) -> None:
    found = "[m for m in sys.modules if m.startswith('octopi.blocking')]"
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; {statement}; print({found})"],
        capture_output=True,
        check=True,
    )
    assert shown.stdout == b"[]\n"
