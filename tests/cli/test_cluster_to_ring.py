"""A cluster of processes changes from a register to a ring while a producer goes on."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses
from octopi.cli.failures import ExitCode
from octopi.cli.free_ports import free_port
from octopi.clients.ring import hand_over_to_ring
from tests.cli.conftest import Program

BROKERS = 3


class Producing(threading.Thread):
    """A producer that sends numbers, one after another, beside the test."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.acknowledged_at: list[float] = []
        self.failure: BaseException | None = None
        self._servers = servers.split(",")
        self._stops = threading.Event()

    def run(self) -> None:
        try:
            trio.run(self._produce)
        except BaseException as error:
            self.failure = error

    async def _produce(self) -> None:
        async with octopi.connect(self._servers) as client, client.producer() as producer:
            while not self._stops.is_set():
                await producer.send("orders", b"%d" % len(self.acknowledged_at))
                self.acknowledged_at.append(time.monotonic())

    def wait_for(self, count: int) -> None:
        """Wait until so many more messages are acknowledged."""
        count += len(self.acknowledged_at)
        until = time.monotonic() + 60
        while len(self.acknowledged_at) < count:
            assert self.failure is None, self.failure
            assert time.monotonic() < until, "nothing is acknowledged"
            time.sleep(0.01)  # the other thread says nothing

    def end(self) -> list[str]:
        """Stop; return what was sent."""
        self._stops.set()
        self.join(60)
        assert self.failure is None, self.failure
        return [str(number) for number in range(len(self.acknowledged_at))]

    def longest_pause_s(self) -> float:
        times = self.acknowledged_at
        return max(after - before for before, after in pairwise(times))


def start_prepared(nodes: NodeProcesses) -> tuple[NodeProcess, list[NodeProcess], str]:
    """A register, its brokers, which are prepared, and their addresses."""
    register = nodes.register()
    listens = [f"127.0.0.1:{free_port()}" for _ in range(BROKERS)]
    addresses = ",".join(f"ws://{one}" for one in listens)
    brokers = [
        nodes.node(
            *(f"broker-{number}", "broker", "--listen", listen),
            *("--register", register.url, "--join", addresses),
        )
        for number, listen in enumerate(listens, 1)
    ]
    for one in brokers:
        one.start()
    return register, brokers, addresses


def test_brokers_and_the_register_are_killed_while_a_producer_goes_on(
    nodes: NodeProcesses, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    register, (first, second, third), addresses = start_prepared(nodes)
    possible = program("cluster", "to-ring", "--dry-run", "--server", register.url)
    assert "the register can hand over to 3 brokers" in possible.stderr
    created = program("topics", "create", "orders", "--server", addresses)
    assert created.exit_code == 0, created.stderr
    producing = Producing(addresses)
    producing.start()
    producing.wait_for(50)

    async def order() -> list[str]:
        async with octopi.connect([register.url]) as client:
            return await hand_over_to_ring(client)

    assert trio.run(order) == addresses.split(",")
    second.kill9()
    register.kill9()
    register.start()
    second.start()
    changed = program("cluster", "to-ring", "--server", register.url)
    assert changed.exit_code == 0, changed.stderr
    assert "all brokers have taken over: the register can be stopped" in changed.stderr
    producing.wait_for(50)
    # A client that knows only the register is sent to a broker, which answers.
    listed = program("topics", "list", "--server", register.url)
    assert "orders" in listed.stdout, listed.stderr
    register.kill9()
    third.kill9()
    producing.wait_for(50)
    third.start()
    again = program("cluster", "to-ring", "--server", first.url)
    assert again.exit_code == 0, again.stderr
    sent = producing.end()
    capfd.readouterr()
    consumed = program("consume", "orders", "-e", "--server", addresses)
    assert capfd.readouterr().out.split() == sent, consumed.stderr


def test_without_prepared_brokers_the_register_refuses_and_goes_on(
    nodes: NodeProcesses, program: Program
) -> None:
    register = nodes.register()
    nodes.broker(register)
    refused = program("cluster", "to-ring", "--server", register.url)
    assert refused.exit_code == ExitCode.REFUSED
    assert "broker 1 is not prepared: start it with --join" in refused.stderr
    created = program("topics", "create", "orders", "--server", register.url)
    assert created.exit_code == 0, created.stderr
