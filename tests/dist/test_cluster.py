"""A cluster of the executable by the commands of its systemd units, on a system without Python."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from tests.browser.console_pages import ROWS
from tests.browser.pages import browser
from tests.deploy.host import ended
from tests.deploy.units import CONFIG, Units, cluster_of_units
from tests.dist.bare import OF_EXECUTABLES, BareHost, bare_host
from tests.kit.cluster import eventually

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page

pytestmark = OF_EXECUTABLES

EXPECTED = re.compile(
    "status of 401"  # the console asks without a token, and then for one
    # Chromium refuses a certificate of a new address before the page's exception for it is found.
    "|WebSocket opening handshake was canceled"
)
"""What a browser tells of a console that works."""


@attrs.frozen
class Cluster:
    """A register and three brokers, and the commands of an operator on their machine."""

    on: BareHost
    units: Units

    def command(self, name: str, *arguments: str) -> list[str]:
        """The words of the command *name* about this cluster."""
        words = name.split()
        return ["octopi-node", *words, "--config", CONFIG, "--timeout", "20", *arguments]

    def ask(self, name: str, *arguments: str, code: int = 0) -> str:
        """What a command printed."""
        return self.on.run(self.command(name, *arguments), {}, code)

    def described(self, name: str, *arguments: str) -> Any:  # noqa: ANN401
        """What a command printed as JSON; of an unhealthy cluster, too."""
        command = self.on.command_line(self.command(name, *arguments, "--json"))
        done = subprocess.run(
            command, env=self.on.environment({}), capture_output=True, text=True, check=False
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def leader(self, topic: str) -> int:
        """The broker that leads the one partition of *topic*."""
        (place,) = self.described("topics describe", topic)["partitions"]
        broker: int = place["leader"]
        return broker

    def is_in_sync(self, broker: int) -> bool:
        """Whether each replica of *broker* is in sync or leads, and is one of three, and the
        cluster is healthy."""
        status = self.described("status")
        replicas = status["replicas"]
        states = {one["state"] for one in replicas if one["broker"] == broker}
        is_one_of_three = len({one["broker"] for one in replicas}) == 3
        return states == {"in sync"} and is_one_of_three and bool(status["healthy"])

    @contextmanager
    def producing(self, topic: str) -> Iterator[subprocess.Popen[str]]:
        """A producer of the lines that it is given; in the end all are acknowledged."""
        with subprocess.Popen(
            self.on.command_line(self.command("produce", topic)),
            env=self.on.environment({}),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as producer:
            try:
                yield producer
                _, said = producer.communicate(timeout=60)
            finally:
                producer.kill()
        assert producer.returncode == 0, said


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("bare")
    with ended(bare_host(directory)) as on, cluster_of_units(on, broker_count=3) as units:
        yield Cluster(on, units)


def send(producer: subprocess.Popen[str], numbers: range) -> list[str]:
    """Give *producer* a line for each number; the lines."""
    lines = [f"order {number}" for number in numbers]
    assert producer.stdin is not None
    producer.stdin.write("".join(f"{line}\n" for line in lines))
    producer.stdin.flush()
    return lines


def test_nothing_acknowledged_is_lost_with_the_leader_which_comes_back(cluster: Cluster) -> None:
    cluster.ask("topics create", "orders", "--min-insync", "2")
    dead = cluster.leader("orders")
    with cluster.producing("orders") as producer:
        sent = send(producer, range(1000))
        assert cluster.ask("consume", "orders", "-n", "1000").splitlines() == sent
        sent += send(producer, range(1000, 2000))  # they may be on their way
        cluster.units.brokers[dead - 1].kill9()
        sent += send(producer, range(2000, 3000))
    assert cluster.ask("consume", "orders", "-e").splitlines() == sent
    assert cluster.leader("orders") != dead
    assert "2 of 3 brokers up" in cluster.ask("status", code=1)

    cluster.units.brokers[dead - 1].start()
    cluster.units.brokers[dead - 1].wait_for("READY=1")
    trio.run(partial(eventually, partial(cluster.is_in_sync, dead), within_s=60))
    assert "3 of 3 brokers up" in cluster.ask("status")
    assert cluster.ask("consume", "orders", "-e").splitlines() == sent


def test_the_console_shows_the_brokers_and_the_messages(cluster: Cluster) -> None:
    with cluster.producing("shown") as producer:
        sent = send(producer, range(3))
    token = cluster.on.path("/etc/octopi/operator.token").read_text().strip()
    with browser() as chromium:
        # No authority of a test is known to Chromium.
        page = chromium.new_page(ignore_https_errors=True)
        problems = errors_of(page)
        page.goto(f"https://{cluster.units.register_at}/console/")
        page.fill("input[name=token]", token)
        page.click("text=Look")
        page.wait_for_selector(".tiles li:has-text('Brokers up'):has-text('3 of 3')")
        page.click("nav a:text-is('Brokers')")
        for number in (1, 2, 3):
            page.wait_for_selector(f"#topology .node.up:has-text('Broker {number}')")
        page.evaluate("location.hash = '#/messages/shown?from=earliest'")
        for line in sent:
            page.wait_for_selector(f"{ROWS}:text-is('{line}')")
        page.close()
    assert problems == []


def errors_of(page: Page) -> list[str]:
    """The list of errors that *page* tells from now on: exceptions, refused loads, failures."""
    found: list[str] = []

    def note(said: ConsoleMessage) -> None:
        if said.type in {"error", "warning"} and not EXPECTED.search(said.text):
            found.append(said.text)

    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", note)
    return found


def test_the_cluster_is_measured(cluster: Cluster) -> None:
    shown = cluster.ask("bench", "--messages", "5000", "--seconds", "10", "--rate", "1000")
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0][:2] == ["WORKLOAD", "MESSAGES"]
    assert [line[0] for line in lines[1:]] == ["produce", "consume", "latency", "latency"]
    for line in lines[1:]:
        assert re.fullmatch(r"[\d,]+", line[1])
    assert "octopi-bench-" not in cluster.ask("topics list")
