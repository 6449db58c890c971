"""NATS measured by ``nats bench``, which is written in Go, on the servers of
`benchmarks.systems.nats`."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.client import Gate
from benchmarks.systems import nats, not_installed
from benchmarks.systems.own_tool import number_in, output_of, took_s

TITLE: Final = "NATS, nats bench (Go)"
KINDS: Final = frozenset({"produce", "consume"})
SERVED_BY: Final = "nats"
DIFFERS: Final = (
    "The tool waits for the acknowledgements of each 500 messages, all of them, before it sends "
    "the next."
)


def missing() -> str | None:
    """Why this system can't be measured; None: it can."""
    return nats.missing() or not_installed(
        "nats", {}, "go install github.com/nats-io/natscli/nats@latest"
    )


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    topic, count = parameters["topic"], parameters["count"]
    command = ["nats", "--server", parameters["address"], "bench", "js"]
    if role == "produce":
        command += ["pub", "async", topic, "--create", "--storage", "file", "--batch", "500"]
        command += ["--replicas", str(parameters.get("replicas", 1))]
    else:
        command += ["ordered"]
    command += ["--stream", topic, "--msgs", str(count), "--size", str(parameters["size"])]
    output = output_of(access, [*command, "--no-progress"])
    return took_s(count, number_in(r"NUMBER msgs/sec", output))
