"""A cluster of processes changes from a ring to a register while a producer goes on."""

from __future__ import annotations

import pytest
import trio

import octopi
from harness.processes import NodeProcesses
from octopi.cli.failures import ExitCode
from octopi.cli.free_ports import free_port
from octopi.clients.ring import hand_over_to_registers
from octopi.ring.ending import EndingStage
from tests.cli.conftest import Program
from tests.cli.test_cluster_to_ring import BROKERS, Producing
from tests.kit.ring_processes import start_ring


def test_brokers_and_the_register_are_killed_while_a_producer_goes_on(
    nodes: NodeProcesses, program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    founders = start_ring(nodes, BROKERS)
    first, second, third = founders
    addresses = ",".join(one.url for one in founders)
    register = nodes.register()
    possible = program("cluster", "to-registers", register.url, "--dry-run", "--server", addresses)
    assert "3 brokers can hand the cluster over to ws://" in possible.stderr
    created = program("topics", "create", "orders", "--server", addresses)
    assert created.exit_code == 0, created.stderr
    producing = Producing(addresses)
    producing.start()
    producing.wait_for(50)

    async def order() -> str:
        async with octopi.connect(addresses.split(",")) as client:
            return (await hand_over_to_registers(client, [register.url])).stage

    assert trio.run(order) in set(EndingStage)
    second.kill9()
    register.kill9()
    register.start()
    second.start()
    again = program("cluster", "to-registers", register.url, "--server", addresses)
    assert again.exit_code == 0, again.stderr
    assert "all brokers have joined: the cluster has a register" in again.stderr
    producing.wait_for(50)
    for one in (register, third, first):
        one.kill9()
        one.start()
    producing.wait_for(50)
    sent = producing.end()
    capfd.readouterr()
    consumed = program("consume", "orders", "-e", "--server", register.url)
    assert capfd.readouterr().out.split() == sent, consumed.stderr


def test_a_register_with_a_cluster_is_refused(nodes: NodeProcesses, program: Program) -> None:
    listen = f"127.0.0.1:{free_port()}"
    founder = nodes.node("ring-1", "broker", "--listen", listen, "--join", f"ws://{listen}")
    founder.start()
    register = nodes.register()
    nodes.broker(register)
    refused = program("cluster", "to-registers", register.url, "--server", founder.url)
    assert refused.exit_code == ExitCode.REFUSED
    assert "start a register with an empty data directory" in refused.stderr
