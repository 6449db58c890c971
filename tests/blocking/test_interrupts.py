"""Ctrl-C, forks and exits of blocking programs, each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import octopi.blocking

pytestmark = pytest.mark.process

PREAMBLE = """
import os, signal, sys, threading, time
import octopi, octopi.blocking
url = sys.argv[1]
def ready():
    print("ready", flush=True)
"""


@contextmanager
def program(url: str, text: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs *text*."""
    process = subprocess.Popen(
        [sys.executable, *options, "-c", PREAMBLE + textwrap.dedent(text), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[str], after_s: float = 0.2) -> tuple[str, str, float]:
    """Press Ctrl-C when *process* is ready; return what it printed, and how long it took."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(after_s)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    return out, err, time.monotonic() - began


def stored(url: str, topic: str) -> list[bytes]:
    """The values that *topic* has."""
    with (
        octopi.blocking.connect(url) as client,
        client.consumer(topic, start="earliest", stop_at_end=True) as consumer,
    ):
        return [one.value for one in consumer]


WAITS = {
    "a consumer": """
        client.create_topic("int-consumer", exist_ok=True)
        with client.consumer("int-consumer") as consumer:
            ready()
            next(consumer)
        """,
    "a subscription": """
        client.create_topic("int-sub", exist_ok=True)
        with client.subscription("int-sub", "reader") as subscription:
            ready()
            for message in subscription:
                pass
        """,
    "a queue": """
        client.create_topic("int-queue", exist_ok=True)
        with client.subscription("int-queue", "reader", mode="shared") as queue:
            ready()
            for message in queue:
                pass
        """,
    "an unknown topic": """
        ready()
        with client.consumer("int-unknown", wait_for_topic=60):
            pass
        """,
    "sending": """
        with client.producer() as producer:
            ready()
            while True:
                producer.send("int-sending", b"value")
        """,
    "submitting": """
        with client.producer() as producer:
            ready()
            while True:
                producer.submit("int-submitting", b"value")
        """,
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait_at_once_and_the_blocks_in_order(url: str, wait: str) -> None:
    body = textwrap.indent(textwrap.dedent(WAITS[wait]), " " * 8)
    text = (
        "try:\n    with octopi.blocking.connect(url) as client:"
        + body
        + "\nexcept KeyboardInterrupt:\n    print('interrupted', threading.active_count())\n"
    )
    with program(url, text) as process:
        out, err, took_s = interrupted(process)
    assert (out, err) == ("interrupted 1\n", "")
    assert took_s < 5, "the machine may be busy, and no time-out of the client is that short"


def test_ctrl_c_at_any_moment_loses_and_doubles_nothing(url: str) -> None:
    """Each message was sent, is stored, or was not taken, in order."""
    text = """
        sent, done = [], 0
        try:
            with octopi.blocking.connect(url) as client, client.producer() as producer:
                producer.send("moments", b"begin")
                ready()
                while True:
                    try:
                        number = len(sent)
                        sent.append(number)
                        producer.send("moments", b"%d" % number)
                        done += 1
                    except KeyboardInterrupt:
                        if len(sent) > 500 and done > 100:
                            break
                producer.flush()
        finally:
            print(len(sent))
        """
    with program(url, text) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:
            time.sleep(0.003)
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    values = stored(url, "moments")[1:]
    numbers = [int(one) for one in values]
    assert numbers == sorted(set(numbers)), "in order, and each once"
    assert len(numbers) > 100


def test_a_forked_child_is_told_that_the_client_is_its_parents(url: str) -> None:
    text = """
        with octopi.blocking.connect(url) as client:
            with client.producer() as producer:
                producer.send("forked", b"0")
                producer.send("forked", b"1")
                child = os.fork()
                if not child:
                    for act in (client.topics, lambda: producer.send("forked", b"no"),
                                lambda: producer.submit("forked", b"no")):
                        try:
                            act()
                        except RuntimeError as error:
                            print(error, flush=True)
                    with octopi.blocking.connect(url) as own, own.producer() as mine:
                        mine.send("forked", b"by the child")
                else:
                    os.waitpid(child, 0)
                    producer.send("forked", b"2")
        """
    with program(url, text) as process:
        out, err = process.communicate(timeout=30)
    assert err == ""
    assert out.count("before a fork") == 3
    assert stored(url, "forked") == [b"0", b"1", b"by the child", b"2"]


def test_a_program_that_leaves_its_blocks_open_ends(url: str) -> None:
    text = """
        client = octopi.blocking.connect(url).__enter__()
        producer = client.producer().__enter__()
        producer.send("open", b"0")
        consumer = client.consumer("open", start="earliest").__enter__()
        print(next(consumer).value)
        """
    with program(url, text) as process:
        began = time.monotonic()
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0
    assert (out, err) == ("b'0'\n", "")
    assert time.monotonic() - began < 20


def test_what_another_signal_handler_raises_ends_a_wait_too(url: str) -> None:
    text = """
        class Alarm(Exception):
            pass
        def ring(*_):
            raise Alarm
        signal.signal(signal.SIGALRM, ring)
        with octopi.blocking.connect(url) as client:
            client.create_topic("alarm", exist_ok=True)
            with client.consumer("alarm") as consumer:
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                try:
                    next(consumer)
                except Alarm:
                    print("rang", flush=True)
        """
    with program(url, text) as process:
        out, err = process.communicate(timeout=30)
    assert (out, err) == ("rang\n", "")


def test_a_call_from_the_clients_own_thread_is_refused(url: str) -> None:
    errors: list[Exception] = []
    clients: list[octopi.blocking.Client] = []

    async def token() -> None:
        if clients:
            try:
                clients[0].topics()
            except RuntimeError as error:
                errors.append(error)

    with octopi.blocking.connect(url, token=token) as client:
        clients.append(client)
        client.topics()
    assert len(errors) == 1
