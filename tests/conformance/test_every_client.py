"""One list of scenarios, and every client sees the same.

The files in `scenarios` have the list.  A client that lacks what a scenario needs says so in its
driver, with the reason; what the program `octopi-node` can't do is named at the scenario.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest

from octopi.cli import broker_nodes
from octopi.cli.config import NodeSettings
from octopi.roles.broker.node import BrokerOptions
from tests.admin.nodes import serving_nodes
from tests.admin.test_protected_nodes import with_tokens
from tests.browser.clusters import in_a_thread
from tests.conformance.clients import CLIENTS
from tests.conformance.driving import Inexpressible
from tests.conformance.features import FEATURES, features_of
from tests.conformance.http_driver import http_driver
from tests.conformance.judge import Judge, Scenario
from tests.conformance.opened import Drivers
from tests.conformance.operating import Operator

pytestmark = pytest.mark.process

SCENARIOS: Final[list[Scenario]] = [
    scenario
    for file in sorted((Path(__file__).parent / "scenarios").glob("*.json"))
    for scenario in json.loads(file.read_text())
]


def _is_for(client: str, scenario: Scenario) -> bool:
    lacks = CLIENTS[client].lacks
    return client not in scenario.get("without", {}) and not features_of(scenario) & lacks.keys()


RUNS: Final = [
    pytest.param(client, number, id=f"{client}: {scenario['says']}")
    for client in CLIENTS
    for number, scenario in enumerate(SCENARIOS)
    if _is_for(client, scenario)
]


@asynccontextmanager
async def _running(directory: Path) -> AsyncIterator[str]:
    """The url of a cluster that asks for tokens, and removes at once what retention lets go."""
    common = with_tokens(directory, NodeSettings())
    options = partial(BrokerOptions, retention_check_interval_s=0.05)
    with patch.object(broker_nodes, "BrokerOptions", options):
        async with serving_nodes(directory, common=common) as serving:
            yield serving.register


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One cluster for all."""
    with in_a_thread(_running(tmp_path_factory.mktemp("cluster"))) as url:
        yield url


@pytest.fixture(scope="module")
def drivers(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """The clients."""
    opened = Drivers(url, tmp_path_factory.mktemp("clients"))
    with opened.stack:
        yield opened


@pytest.mark.parametrize(("client", "number"), RUNS)
def test_every_client_sees_what_the_list_says(
    client: str, number: int, url: str, drivers: Drivers
) -> None:
    judge = Judge(
        drivers.of(client), drivers.other_than(client), Operator(url), f"{client}-{number}-"
    )
    judge.run(SCENARIOS[number])


@pytest.mark.parametrize(
    "number",
    [number for number, one in enumerate(SCENARIOS) if not _is_for("http", one)],
    ids=lambda number: SCENARIOS[number]["says"],
)
def test_http_can_not_do_what_its_driver_declares(number: int, url: str, drivers: Drivers) -> None:
    with (
        http_driver(url, "long-poll", patience_s=0.5) as driver,
        pytest.raises((Inexpressible, AssertionError)),
    ):
        Judge(driver, drivers.of("trio"), Operator(url), f"not-{number}-").run(SCENARIOS[number])


def test_each_scenario_that_leaves_out_a_client_gives_a_reason() -> None:
    for scenario in SCENARIOS:
        for client, reason in scenario.get("without", {}).items():
            assert client == "cli", "the clients for programs can all of it"
            assert len(reason.split()) > 3, scenario["says"]
    assert len({scenario["says"] for scenario in SCENARIOS}) == len(SCENARIOS)


def test_what_a_client_lacks_is_a_feature_that_a_scenario_needs() -> None:
    needed = set().union(*map(features_of, SCENARIOS))
    assert needed == set(FEATURES)
    for client in CLIENTS.values():
        assert client.lacks.keys() < needed
