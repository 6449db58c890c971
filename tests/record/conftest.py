"""Each test of records runs without kernels, with those that are compiled, and with some that leave
every record to Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octopi.kernels import Kernels
from tests.record.comparing import StoppingKernels, compiled_kernels, using


@pytest.fixture(params=["Python", "compiled", "stopping"], scope="module", autouse=True)
def _records_handled_by(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(_kernels(request.param)):
        yield


def _kernels(name: str) -> Kernels | None:
    if name == "Python":
        return None
    return compiled_kernels() if name == "compiled" else StoppingKernels()
