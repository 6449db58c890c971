"""Clusters without a register, as processes."""

from __future__ import annotations

from harness.processes import NodeProcess, NodeProcesses
from octopi.cli.free_ports import free_port


def start_ring(nodes: NodeProcesses, count: int, name: str = "ring") -> list[NodeProcess]:
    """The *count* founders of a cluster, which are ready when all of them are there.  They are
    called *name* and a number from 1 on."""
    listens = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    joined = ",".join(f"ws://{one}" for one in listens)
    founders = [
        nodes.node(f"{name}-{number}", "broker", "--listen", listen, "--join", joined)
        for number, listen in enumerate(listens, 1)
    ]
    for one in founders:
        one.launch()
    for one in founders:
        one.wait_ready()
    return founders
