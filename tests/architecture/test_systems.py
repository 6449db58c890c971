"""What a system declares in a module of its own is found by what gathers it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

from octopi import tracing, wire
from octopi.simulation import invariants
from octopi.simulation.invariants.system import SystemInvariants
from octopi.simulation.invariants.systems import SYSTEMS
from octopi.tracing import steps
from octopi.tracing.step import Step
from octopi.wire import messages
from octopi.wire.declarations import DECLARATIONS

Declared = TypeVar("Declared")


def modules(package: ModuleType) -> list[ModuleType]:
    names = sorted(one.name for one in iter_modules(package.__path__, f"{package.__name__}."))
    return [import_module(name) for name in names]


def declared(package: ModuleType, kind: type[Declared]) -> Iterator[type[Declared]]:
    """The subclasses of *kind* that the modules of *package* declare."""
    for module in modules(package):
        own = [one for one in vars(module).values() if isinstance(one, type)]
        for one in own:
            if issubclass(one, kind) and one.__module__ == module.__name__:
                yield one


def test_all_steps_are_those_that_the_modules_of_the_systems_declare() -> None:
    found = {one for one in declared(tracing, Step) if one.text}
    assert found == set(steps.ALL), "a system's module has its place in octopi/tracing/steps.py"
    assert len(steps.ALL) == len(found)
    assert len(steps.BY_CODE) == len(steps.ALL), "two steps have one code"


def test_the_messages_of_all_modules_stand_under_one_name() -> None:
    assert modules(wire)
    missing = [one for one in DECLARATIONS if vars(messages).get(one.__name__) is not one]
    assert missing == [], (
        "octopi/wire/messages.py has no line for its module, or another name there"
    )


def test_the_oracle_makes_the_invariants_of_all_systems() -> None:
    found = set(declared(invariants, SystemInvariants)) - {SystemInvariants}
    assert found == set(SYSTEMS), "they stand in octopi/simulation/invariants/systems.py"
