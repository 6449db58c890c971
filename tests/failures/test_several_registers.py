"""Three registers as real processes, of which each is killed without warning while real clients
produce and consume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.cli.free_ports import free_ports
from tests.failures.test_killed_processes import Workload, in_thread
from tests.kit.register_processes import three_registers

pytestmark = pytest.mark.process


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


def has_voters(registers: list[NodeProcess], addresses: list[str]) -> bool:
    """Whether the newest line that says who the registers are has these."""
    lines = [line for one in registers for line in one.log().splitlines()]
    told = [json.loads(line) for line in lines if '"the registers are"' in line]
    newest = max(told, key=lambda one: one["timestamp"], default={"addresses": ""})
    return newest["addresses"] == ", ".join(sorted(addresses))


async def voters_are(registers: list[NodeProcess], addresses: list[str]) -> None:
    """Wait until a register has said that these are the registers now."""
    with trio.fail_after(30):
        while not has_voters(registers, addresses):  # noqa: ASYNC110 (a process tells nobody)
            await trio.sleep(0.05)


async def test_one_register_becomes_three_and_one_again_while_messages_flow(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        urls = [f"ws://127.0.0.1:{port}" for port in free_ports(3)]

        def register(number: int, peers: list[str]) -> NodeProcess:
            listen = ("--listen", urls[number].removeprefix("ws://"), "--gather", "0")
            several = ("--peers", ",".join(peers)) if peers else ()
            return nodes.node(f"register-{number + 1}", "register", *listen, *several)

        async def restart(one: NodeProcess, peers: list[str]) -> NodeProcess:
            await in_thread(one.terminate)
            again = register(urls.index(one.url), peers)
            await in_thread(again.start)
            return again

        first = register(0, []).start()
        for name in ("broker-1", "broker-2"):
            nodes.node(name, "broker", "--register", ",".join(urls)).start()
        workload = Workload(urls, "orders")
        with trio.fail_after(100):
            async with octopi.connect(urls) as client:
                await client.create_topic("orders")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(workload.produce)
                nursery.start_soon(workload.consume)
                await workload.reached(300)
                others = [register(1, urls), register(2, urls)]
                for one in others:
                    await in_thread(one.start)
                first = await restart(first, urls)
                await voters_are([first, *others], urls)
                first.kill9()
                async with octopi.connect(urls) as client:
                    await client.create_topic("with-three")
                await in_thread(first.restart)
                for number, one in enumerate(others):
                    others[number] = await restart(one, urls[:1])
                first = await restart(first, urls[:1])
                await voters_are([first, *others], urls[:1])
                for one in others:
                    await in_thread(one.terminate)
                first = await restart(first, [])
                async with octopi.connect(urls) as client:
                    await client.create_topic("with-one")
            workload.check()
            async with octopi.connect(urls) as client:
                names = {one.topic for one in await client.topics()}
                assert names == {"orders", "with-three", "with-one"}
        assert "Traceback" not in first.log()
