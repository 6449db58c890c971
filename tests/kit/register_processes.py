"""Three registers that agree, as processes."""

from __future__ import annotations

from harness.processes import NodeProcess, NodeProcesses
from octopi.cli.free_ports import free_ports


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
