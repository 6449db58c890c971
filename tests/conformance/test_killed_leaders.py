"""Every client sends and reads while the leader of a log is killed: nothing is lost or doubled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from tests.browser.test_reading import leader_of, start_cluster
from tests.conformance.clients import CLIENTS
from tests.conformance.judge import Judge, Step
from tests.conformance.opened import Drivers
from tests.conformance.operating import Operator

pytestmark = [pytest.mark.process, pytest.mark.slow]

(SCENARIO,) = json.loads(
    (Path(__file__).parent / "scenarios_of_failures/killed_leader.json").read_text()
)


class _KillingOperator:
    """Also kills brokers."""

    def __init__(self, register: NodeProcess, brokers: dict[int, NodeProcess]) -> None:
        self.url = register.url
        self._brokers = brokers
        self._killed: NodeProcess | None = None
        self._operator = Operator(register.url, needs_tokens=False)

    def do(self, topic: str, step: Step) -> Any:  # noqa: ANN401
        """See `tests.conformance.judge.Operating`."""
        match step["do"]:
            case "kill the leader":
                self._killed = self._brokers[trio.run(leader_of, self.url, topic)]
                self._killed.kill9()
            case "restart the killed":
                assert self._killed is not None
                self._killed.restart()
            case _:
                return self._operator.do(topic, step)
        return None

    def wait_until_in_sync(self) -> None:
        """Until a leader can be killed without the loss of the last replica."""

        async def wait() -> None:
            async with octopi.connect(self.url) as client:
                with trio.fail_after(30):
                    while True:
                        partitions = (await client.admin.describe_cluster()).partitions
                        if all(len(one.in_sync) == len(self._brokers) for one in partitions):
                            return
                        await trio.sleep(0.05)  # nothing announces it to clients

        trio.run(wait)


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_KillingOperator]:
    """Of one cluster of processes for all clients."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        yield _KillingOperator(*start_cluster(nodes))


@pytest.fixture(scope="module")
def drivers(
    operator: _KillingOperator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Drivers]:
    """The clients."""
    opened = Drivers(operator.url, tmp_path_factory.mktemp("clients"))
    with opened.stack:
        yield opened


@pytest.mark.parametrize("client", CLIENTS)
def test_a_killed_leader_costs_no_client_a_message_and_no_repeat(
    client: str, drivers: Drivers, operator: _KillingOperator
) -> None:
    operator.wait_until_in_sync()
    Judge(drivers.of(client), drivers.other_than(client), operator, f"{client}-").run(SCENARIO)
