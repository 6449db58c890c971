"""The web service among the examples, under its own server, against real nodes."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import octopi.blocking
from harness.processes import NodeProcess, node_processes
from tests.examples.tools import EXAMPLES, need

SERVES = re.compile(r"Uvicorn running on http://127\.0\.0\.1:([0-9]+) ")
PATIENCE_S = 2
ANSWER_S = 20
UMBRELLA = {"customer": "customer-7", "item": "umbrella"}
HAT = {"customer": "customer-8", "item": "hat"}
COAT = {"customer": "customer-7", "item": "coat"}


class Service:
    """The process of the service."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        assert process.stderr is not None
        for line in process.stderr:
            self.log.append(line)
            if (found := SERVES.search(line)) is not None:
                self.port = int(found[1])
                return
        raise AssertionError("".join(self.log))

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """The answer to a request, whose body may not be read yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        given = {"Content-Type": "application/json", "Connection": "close", **(headers or {})}
        connection.request(method, path, None if body is None else json.dumps(body), given)
        return connection.getresponse()

    def answer(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status of the answer to a request, and its JSON."""
        response = self.ask(method, path, body)
        return response.status, json.load(response)

    def listen(self, position: str) -> http.client.HTTPResponse:
        """The stream of the orders behind *position*."""
        response = self.ask("GET", "/orders/live", headers={"Last-Event-ID": position})
        assert response.getheader("Content-Type", "").startswith("text/event-stream")
        return response

    def end(self, number: signal.Signals) -> int:
        """End it by a signal.  Returns its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(ANSWER_S)
        assert self.process.stderr is not None
        self.log += self.process.stderr.readlines()
        return code


@contextmanager
def running_service(server: NodeProcess) -> Iterator[Service]:
    variables = {
        "OCTOPI_SERVER": server.url,
        "PORT": "0",
        "PATIENCE_S": str(PATIENCE_S),
        "PYTHONWARNINGS": "error",
    }
    with subprocess.Popen(
        [sys.executable, str(EXAMPLES / "fastapi_service.py")],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Service(process)
        finally:
            process.kill()


def event(stream: http.client.HTTPResponse) -> tuple[Any, str]:
    """The next event of a stream: its JSON, and its id."""
    fields = {}
    while (line := stream.readline().decode()) != "\n":
        assert line, "the stream has ended"
        name, _, value = line.rstrip("\n").partition(": ")
        fields[name] = value
    return json.loads(fields["data"]), fields["id"]


def readings(server: NodeProcess) -> int:
    """The number of consumers that read anything now."""
    with octopi.blocking.connect(server.url) as client:
        return len(client.admin.describe_readings())


@pytest.fixture
def installed() -> None:
    need("fastapi", "uvicorn")


def test_the_page_about_clients_shows_parts_of_the_service_and_all_its_statuses() -> None:
    page = (EXAMPLES.parent / "clients.md").read_text()
    source = (EXAMPLES / "fastapi_service.py").read_text()
    excerpts = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(excerpts) == 3
    assert [one for one in excerpts if one not in source] == []
    function = source.partition("def http_status")[2].partition("class Server")[0]
    cases = re.findall(r"case (.*?):\n +return ([0-9]+)", function, re.DOTALL)
    answers: dict[str, set[str]] = {}
    for errors, status in cases:
        answers.setdefault(status, set()).update(re.findall(r"octopi\.(\w+)\(", errors))
    rows = re.findall(r"^\| ([0-9]{3}) \| (.*?) \|", page, re.MULTILINE)
    documented = {status: set(re.findall(r"`(\w+Error)`", when)) for status, when in rows}
    answers["503"].remove("RefusedError")  # the table says: refusals that are retryable
    assert documented == answers


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_orders_are_stored_read_page_by_page_and_streamed(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        with running_service(register) as service:
            assert service.answer("GET", "/orders")[1]["orders"] == []

            placed = [service.answer("POST", "/orders", one) for one in (UMBRELLA, COAT)]
            assert [status for status, _ in placed] == [201, 201]
            with (
                octopi.blocking.connect(register.url) as client,
                client.consumer("orders", start="earliest", stop_at_end=True) as consumer,
            ):
                stored = {(one.partition, one.offset): json.loads(one.value) for one in consumer}
            ids = [(where["partition"], where["offset"]) for _, where in placed]
            assert stored == dict(zip(ids, (UMBRELLA, COAT), strict=True))

            status, page = service.answer("GET", "/orders?limit=1")
            assert (status, page["orders"]) == (200, [UMBRELLA])
            status, rest = service.answer("GET", f"/orders?after={page['next']}")
            assert (status, rest["orders"]) == (200, [COAT])

            first = service.listen("earliest")
            assert event(first)[0] == UMBRELLA
            _, seen = event(first)
            first.close()  # as a browser that loses its connection, and comes back
            assert service.answer("POST", "/orders", HAT)[0] == 201
            second = service.listen(seen)
            assert event(second)[0] == HAT
            second.close()

            deadline = time.monotonic() + ANSWER_S
            while readings(register):
                assert time.monotonic() < deadline, "a consumer outlives its stream"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_errors_of_the_log_are_answers_that_say_who_has_to_do_what(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        broker = nodes.broker(register)
        with running_service(register) as service:
            assert service.answer("POST", "/orders", {"customer": "customer-7"})[0] == 422
            status, refusal = service.answer("GET", "/orders?after=yesterday")
            assert (status, refusal["code"]) == (400, "invalid_option")

            old = service.answer("GET", "/orders")[1]["next"]
            with octopi.blocking.connect(register.url) as client:
                client.delete_topic("orders")
                client.create_topic("orders")
            status, refusal = service.answer("GET", f"/orders?after={old}")
            assert (status, refusal["code"]) == (410, "topic_replaced")
            assert service.answer("POST", "/orders", UMBRELLA)[0] == 201

            broker.kill9()
            assert service.answer("GET", "/orders")[0] == 503
            response = service.ask("POST", "/orders", HAT)
            assert response.status == 503
            assert response.getheader("Retry-After") == "1"
            assert json.load(response)["code"] == "not_delivered"
            register.kill9()
            status, refusal = service.answer("GET", "/orders")
            assert (status, refusal["code"]) == (503, "unreachable")

            register.restart()
            broker.restart()
            deadline = time.monotonic() + 2 * ANSWER_S
            while service.answer("POST", "/orders", COAT)[0] != 201:
                assert time.monotonic() < deadline, "the service has not recovered"
            assert service.answer("GET", "/orders")[1]["orders"] == [UMBRELLA, COAT]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)]
)
def test_a_service_that_is_told_to_end_ends_its_streams_and_leaves_nothing_open(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        with running_service(register) as service:
            assert service.answer("POST", "/orders", UMBRELLA)[0] == 201
            streams = [service.listen("earliest") for _ in range(3)]
            assert [event(stream)[0] for stream in streams] == [UMBRELLA] * 3
            assert service.end(number) == code
            # In order, with the last chunk; otherwise reading raises an error.
            assert [stream.read() for stream in streams] == [b""] * 3
        assert "Application shutdown complete" in "".join(service.log)
        assert not [line for line in service.log if not line.startswith("INFO")]
        assert readings(register) == 0
