"""One cluster of real processes for all tests of a module; each test has topics of its own.

Each test runs in a thread of its own, because tests in browsers leave a loop of asyncio running in
the main thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from harness.processes import node_processes


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a register with one broker."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        register = nodes.register()
        nodes.broker(register)
        yield register.url


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test in a thread of its own."""
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    errors: list[BaseException] = []

    def run() -> None:
        try:
            pyfuncitem.obj(**arguments)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=pyfuncitem.name)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return True
