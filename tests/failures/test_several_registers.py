"""Three registers as real processes, of which each is killed without warning while real clients
produce and consume."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcess, NodeProcesses, node_processes
from octopi.cli.free_ports import free_ports
from tests.failures.test_killed_processes import Workload, in_thread

pytestmark = pytest.mark.process


def three_registers(nodes: NodeProcesses) -> list[NodeProcess]:
    """Three registers that serve."""
    ports = free_ports(3)
    peers = ",".join(f"ws://127.0.0.1:{port}" for port in ports)
    registers = [
        nodes.node(
            f"register-{number}",
            "register",
            *("--listen", f"127.0.0.1:{port}", "--peers", peers, "--gather", "0"),
        )
        for number, port in enumerate(ports, 1)
    ]
    for one in registers:
        one.launch()
    for one in registers:
        one.wait_ready()
    return registers


async def test_each_register_may_be_killed_while_messages_flow_and_topics_are_made(
    tmp_path: Path,
) -> None:
    with node_processes(tmp_path) as nodes:
        registers = three_registers(nodes)
        addresses = ",".join(one.url for one in registers)
        for name in ("broker-1", "broker-2"):
            nodes.node(name, "broker", "--register", addresses).start()
        servers = [one.url for one in registers]
        workload = Workload(servers, "orders")
        with trio.fail_after(120):
            async with octopi.connect(servers) as client:
                await client.create_topic("orders")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(workload.produce)
                nursery.start_soon(workload.consume)
                for number, register in enumerate(registers):
                    await workload.reached(1_000 * number + 500)
                    register.kill9()
                    async with octopi.connect(servers) as client:
                        await client.create_topic(f"topic-{number}")
                    await in_thread(register.restart)
            workload.check()
            async with octopi.connect(servers) as client:
                names = {one.topic for one in await client.topics()}
                assert names == {"orders", "topic-0", "topic-1", "topic-2"}
        for register in registers:
            assert register.terminate() == 0
            assert "Traceback" not in register.log()
