"""One list of scenarios of durable subscriptions, and every client carries it out.

subscriptions.json has the list: what each step is, and what is to be seen.  A step that a client
has no means for is named there, with the reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from octopi.errors import OctopiError
from octopi.model import QUEUE_MODES
from octopi.operating_system import SystemClock
from octopi.security.authenticator import Authenticator
from octopi.security.grants import Verb
from tests.browser.clusters import in_a_thread
from tests.browser.pages import serve_console
from tests.browser.subscription_clients import (
    PATIENCE_S,
    ConformingClient,
    InPage,
    Refused,
    in_node,
    in_program,
    in_python,
)
from tests.kit.cluster import Cluster
from tests.security.test_authorisation import everything, fresh
from tests.security.tokens import key_ring

pytestmark = pytest.mark.process

SCENARIOS = json.loads(Path(__file__).with_name("subscriptions.json").read_text())
CLIENTS = ["python", "node", "page", "cli"]
RETENTION_BYTES = 8_192
SEGMENT_BYTES = 4_096
PROGRAM = [sys.executable, "-m", "octopi_node"]
RUNS = [
    pytest.param(client, number, id=f"{client}: {scenario['says']}")
    for client in CLIENTS
    for number, scenario in enumerate(SCENARIOS)
    if client not in scenario.get("without", {})
]


@asynccontextmanager
async def _running(directory: Path) -> AsyncIterator[Cluster]:
    """A cluster that asks for tokens, and removes at once what retention lets go."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)
        await cluster.start_register(authenticator=Authenticator(key_ring(), SystemClock(), None))
        node_token = fresh(None, "node", replicate="*")
        await cluster.start_broker(
            authenticator=Authenticator(key_ring(), SystemClock(), None),
            token=lambda: node_token,
            retention_check_interval_s=0.05,
        )
        yield cluster
        nursery.cancel_scope.cancel()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One cluster for all."""
    with in_a_thread(_running(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster.register.url


class Scenario:
    """One scenario, in a topic of its own, carried out by one client."""

    def __init__(self, url: str, topic: str, client: ConformingClient) -> None:
        self._url = url
        self._topic = topic
        self._client = client

    def run(self, scenario: dict[str, Any]) -> None:
        self._administer({"do": "prepare", "partitions": scenario.get("partitions", 1)})
        for step in scenario["steps"]:
            try:
                seen = self._step(step)
            except Refused as refused:
                seen = f"refused: {refused}"
            expected = f"refused: {step['refused']}" if "refused" in step else step.get("sees")
            if expected == "the oldest":
                expected = [self._administer({"do": "tell the oldest"})]
            assert seen == expected, step

    def _step(self, step: dict[str, Any]) -> Any:  # noqa: ANN401
        match step["do"]:
            case "join":
                without = [verb for verb in Verb if verb != Verb.CONSUME]
                return self._client.do(
                    {
                        "do": "join",
                        "as": step["as"],
                        "topic": self._topic + step.get("topic", ""),
                        "name": step.get("name", "billing"),
                        "token": fresh(verbs=without) if "token" in step else everything(),
                        "options": step.get("with", {}),
                        **({"takes": step["takes"]} if "takes" in step else {}),
                    }
                )
            case "take one each":
                return sorted(
                    text
                    for name in step["as"]
                    for text in self._client.do({"do": "take", "as": name, "count": 1})
                )
            case "take" | "commit" | "mark" | "claims" | "gaps" | "leave" | "fail":
                return self._client.do(step)
            case "acknowledge" | "release" | "reject" | "extend" | "attempt" | "deadline in":
                return self._client.do(step)
            case "take lists":
                return sorted(self._client.do(step))
        return self._administer(step)

    def _administer(self, step: dict[str, Any]) -> Any:  # noqa: ANN401
        async def act() -> object:
            async with octopi.connect(self._url, token=everything()) as client:
                with trio.fail_after(PATIENCE_S):
                    return await _administer(client, self._topic, step)

        return trio.run(act)


async def _administer(client: octopi.Client, topic: str, step: dict[str, Any]) -> object:
    match step["do"]:
        case "prepare":
            await client.create_topic(
                topic,
                partition_ids=list(range(step["partitions"])),
                retention_bytes=RETENTION_BYTES,
                segment_bytes=SEGMENT_BYTES,
            )
        case "publish":
            async with client.producer() as producer:
                keys = step.get("keys") or [None] * len(step["values"])
                for value, key in zip(step["values"], keys, strict=True):
                    await producer.send(
                        topic,
                        value.encode(),
                        key=None if key is None else key.encode(),
                        partition=step.get("partition", 0),
                    )
        case "create":
            mode = step.get("mode", "exclusive")
            await client.admin.create_subscription(topic, "billing", mode=mode)
        case "reset":
            force = step.get("force", False)
            await client.admin.reset_subscription(topic, "billing", step["to"], force=force)
        case "delete":
            await client.admin.delete_subscription(topic, "billing")
        case "await":
            while True:  # nothing announces it
                status = await client.admin.describe_subscription(topic, "billing")
                logs = {one.member: one.log_count for one in status.members}
                if logs == step["logs"] and all(one.is_attached for one in status.logs):
                    return None
                await trio.sleep(0.05)
        case "lose the oldest":
            async with client.producer() as producer:
                for number in range(200):  # a batch each, or they would share a segment
                    await producer.send(topic, b"%0100d" % number)
            while True:  # nothing announces it
                found = await client.find_offset(topic, "earliest", partition=0)
                if found.highwater - found.log_start < RETENTION_BYTES + SEGMENT_BYTES:
                    return None  # nothing more goes
                await trio.sleep(0.05)
        case "tell the dead letters":
            async with client.consumer(f"{topic}.billing.dead", start="earliest") as consumer:
                letters = [await anext(consumer) for _ in step["sees"]]
            return [
                {
                    "value": one.value.decode(),
                    "attempts": int(one.headers["octopi-attempts"]),
                    "reason": one.headers["octopi-reason"].decode(),
                }
                for one in letters
            ]
        case "tell the oldest":
            async with client.consumer(topic, start="earliest") as consumer:
                return (await anext(consumer)).value.decode()
        case other:
            raise AssertionError(other)
    return None


def _members(url: str, topic: str, name: str) -> set[str]:
    """Who is a member of the subscription now."""

    async def ask() -> set[str]:
        async with octopi.connect(url, token=everything()) as client:
            try:
                status = await client.admin.describe_subscription(topic, name)
            except OctopiError:
                return set()
            is_queue = (
                status.definition.mode in QUEUE_MODES
            )  # its members have no logs of their own
            return {one.member for one in status.members if one.log_count or is_queue}

    return trio.run(ask)


@pytest.mark.parametrize(("client", "number"), RUNS)
def test_every_client_sees_what_the_list_of_scenarios_says(
    client: str, number: int, url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    opened: AbstractContextManager[ConformingClient]
    topic = f"{client}-{number}"
    if client == "page":
        page = request.getfixturevalue("page")
        serve_console(page)
        Scenario(url, topic, InPage(page, url)).run(SCENARIOS[number])
        return
    if client == "cli":
        opened = in_program(url, tmp_path, PROGRAM, lambda *asked: _members(url, *asked))
    else:
        opened = {"python": in_python, "node": in_node}[client](url)
    with opened as conforming:
        Scenario(url, topic, conforming).run(SCENARIOS[number])


def test_each_scenario_that_leaves_out_a_client_gives_a_reason() -> None:
    for scenario in SCENARIOS:
        for client, reason in scenario.get("without", {}).items():
            assert client == "cli", "the clients for programs can all of it"
            assert len(reason.split()) > 3, scenario["says"]
    assert len({scenario["says"] for scenario in SCENARIOS}) == len(SCENARIOS)
