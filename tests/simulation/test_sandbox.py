"""A run that uses the real world fails, and names the place in the code."""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest
import trio
from outcome import Outcome, capture

from octopi.simulation.kernel import driver
from octopi.simulation.kernel.sandbox import EPOCH_S, OutsideReachedError
from octopi.simulation.kernel.schedule import Fifo
from octopi.simulation.kernel.world import World
from tests.kit.logs import capture_logs

ANYWHERE: dict[str, Callable[[], object]] = {
    "socket": socket.socket,
    "name": lambda: socket.getaddrinfo("localhost", 80),
    "thread": lambda: threading.Thread(target=print).start(),
    "process": lambda: subprocess.run(["true"], check=True),
    "sleep": lambda: time.sleep(0.001),
}
NODES: dict[str, Callable[[], object]] = {
    "open": lambda: open("/dev/null"),  # noqa: SIM115
    "list": lambda: os.listdir("/"),
    "make": lambda: os.mkdir("/tmp"),
    "path": lambda: Path("/tmp/never-there").unlink(),
    "temporary": tempfile.mkdtemp,
    "time": lambda: time.time(),
    "time_ns": lambda: time.time_ns(),
    "monotonic": lambda: time.monotonic(),
    "monotonic_ns": lambda: time.monotonic_ns(),
    "perf_counter": lambda: time.perf_counter(),
    "perf_counter_ns": lambda: time.perf_counter_ns(),
    "urandom": lambda: os.urandom(4),
    "secrets": lambda: secrets.token_hex(),
    "uuid1": lambda: uuid.uuid1(),
    "uuid4": uuid.uuid4,
    "generator": random.Random,
    "system random": lambda: random.SystemRandom().random(),
}


def run(main: Callable[[], Awaitable[object]], *, strict: bool = True) -> object:
    return driver.run(World(1), main, Fifo(), strict=strict)


def doing(action: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def main() -> object:
        await trio.sleep(1)
        return action()

    return main


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("action", ANYWHERE.values(), ids=ANYWHERE)
def test_a_call_that_can_not_be_repeated_fails_the_run(
    action: Callable[[], object], strict: bool
) -> None:
    with pytest.raises(OutsideReachedError):
        run(doing(action), strict=strict)


@pytest.mark.parametrize("action", NODES.values(), ids=NODES)
def test_a_call_past_the_environment_of_a_node_fails_the_run(action: Callable[[], object]) -> None:
    with pytest.raises(OutsideReachedError, match=r"\.py:\d+ in a simulation"):
        run(doing(action))


def test_threads_of_trio_fail_the_run() -> None:
    async def main() -> None:
        await trio.to_thread.run_sync(int)

    for strict in (True, False):
        with pytest.raises(OutsideReachedError, match=r"test_sandbox\.py"):
            run(main, strict=strict)


def test_real_sockets_of_trio_fail_the_run() -> None:
    async def main() -> None:
        await trio.open_tcp_listeners(0, host="127.0.0.1")

    with pytest.raises(OutsideReachedError):
        run(main)


def test_catching_the_sandbox_error_does_not_save_the_run() -> None:
    def read_clock() -> None:
        try:
            time.time()
        except Exception:
            return

    with pytest.raises(OutsideReachedError, match=r"time\.time was called by .*test_sandbox\.py"):
        run(doing(read_clock))


def test_imports_and_tracebacks_do_not_count_as_use_of_the_real_world() -> None:
    def act() -> None:
        import this_module_is_not_there  # type: ignore[import-not-found]  # noqa: F401

    async def main() -> None:
        with pytest.raises(ImportError):
            act()
        import colorsys  # noqa: F401

        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            logging.getLogger("octopi.test").exception("told with its source lines")

    with capture_logs():
        run(main)


def test_log_records_have_the_worlds_time() -> None:
    stamps = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            stamps.append(record.created)

    logger = logging.getLogger("octopi.test")
    handler = Handler()
    logger.addHandler(handler)
    try:
        run(doing(lambda: logger.warning("now")))
    finally:
        logger.removeHandler(handler)
    assert stamps == [EPOCH_S + 1]


def test_programs_that_are_tested_get_virtual_time_and_seeded_entropy() -> None:
    def look() -> tuple[object, ...]:
        with open("/dev/null") as file:
            return (
                time.time(),
                time.monotonic_ns(),
                uuid.uuid4(),
                uuid.uuid1(),
                secrets.token_hex(),
                random.Random().random(),
                random.SystemRandom().random(),
                random.random(),
                file.read(),
            )

    one, other = (run(doing(look), strict=False) for _ in range(2))
    assert one == other
    assert isinstance(one, tuple)
    assert one[:2] == (EPOCH_S + 1, 1_000_000_000)


def test_the_sandbox_is_removed_after_a_run() -> None:
    before = (time.time, time.sleep, os.urandom, uuid.uuid1, trio.to_thread.run_sync)
    state = random.getstate()
    run(doing(random.random))
    with pytest.raises(OutsideReachedError):
        run(doing(lambda: time.time()))
    assert before == (time.time, time.sleep, os.urandom, uuid.uuid1, trio.to_thread.run_sync)
    assert random.getstate() == state
    assert time.time() > EPOCH_S
    assert random.Random().random() != random.Random().random()
    assert os.urandom(8) != os.urandom(8)
    with socket.socket(), open("/dev/null"):
        pass


OtherThread = Callable[[Callable[[], object]], object]


@pytest.fixture
def other_thread() -> Iterator[OtherThread]:
    """Has a thread that was there before the run do something, and waits for its result."""
    to_do: Queue[Callable[[], object] | None] = Queue()
    done: Queue[Outcome[object]] = Queue()

    def work() -> None:
        while (action := to_do.get()) is not None:
            done.put(capture(action))

    def do(action: Callable[[], object]) -> object:
        to_do.put(action)
        return done.get().unwrap()

    thread = threading.Thread(target=work)
    thread.start()
    yield do
    to_do.put(None)
    thread.join()


def test_other_threads_may_use_the_real_world(other_thread: OtherThread) -> None:
    def look() -> tuple[float, bytes]:
        with open("/dev/null"):
            return time.time(), os.urandom(2)

    answer = run(doing(lambda: other_thread(look)))
    assert isinstance(answer, tuple)
    assert abs(answer[0] - time.time()) < 60


def test_trio_in_another_thread_does_not_change_a_run(other_thread: OtherThread) -> None:
    async def elsewhere() -> str:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(trio.lowlevel.checkpoint)
        return await trio.to_thread.run_sync(str, "of a thread")

    def turns(meanwhile: Callable[[], object]) -> list[int]:
        """In which order tasks had their turns."""

        async def main() -> None:
            async def take_turns(number: int) -> None:
                for _ in range(4):
                    seen.append(number)
                    await trio.lowlevel.checkpoint()

            for _ in range(5):
                async with trio.open_nursery() as nursery:
                    for number in range(6):
                        nursery.start_soon(take_turns, number)
                meanwhile()

        world, seen = World(1), list[int]()
        driver.run(world, main, world.random("schedule"))
        return seen

    answers: list[object] = []
    alone = turns(lambda: None)
    assert turns(lambda: answers.append(other_thread(lambda: trio.run(elsewhere)))) == alone
    assert answers == ["of a thread"] * 5
