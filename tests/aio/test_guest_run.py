"""One run of Trio in each loop of asyncio: it begins with the first client and ends with the last,
also where a program ends badly."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path

import pytest
import trio

import octopi
import octopi.aio
from octopi.aio.blocks import AsyncioBlock
from octopi.aio.guest_run import GuestRun
from octopi.clients.background import background_tasks

NOWHERE = "ws://127.0.0.1:9"
ROOT = Path(__file__).parents[2]


def result_of(program: str, *arguments: str, interrupt: bool = False) -> tuple[int, str, str]:
    """Exit code, output and errors of *program*, with warnings as errors; it is interrupted after
    its first line of output if that is asked for."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    first = ""
    if interrupt:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(0.3)  # until its loop waits: nothing tells that to another process
        process.send_signal(signal.SIGINT)
    try:
        output, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
    return process.returncode, first + output, errors


def test_clients_of_one_loop_share_a_run_that_ends_with_the_last() -> None:
    async def main() -> None:
        assert not trio.lowlevel.in_trio_run()
        async with octopi.aio.connect(NOWHERE):
            token = trio.lowlevel.current_trio_token()
            async with octopi.aio.connect(NOWHERE):
                assert trio.lowlevel.current_trio_token() is token
            assert trio.lowlevel.current_trio_token() is token
        assert not trio.lowlevel.in_trio_run()
        async with octopi.aio.connect(NOWHERE):
            assert trio.lowlevel.current_trio_token() is not token
        assert not trio.lowlevel.in_trio_run()

    asyncio.run(main())
    asyncio.run(main())


def test_clients_come_and_go_in_many_tasks_at_once() -> None:
    async def visit(number: int) -> None:
        for _ in range(5):
            async with octopi.aio.connect(NOWHERE):
                await asyncio.sleep(0.0001 * number)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(visit(number))
        assert not trio.lowlevel.in_trio_run()

    asyncio.run(main())


def test_loops_in_several_threads_have_runs_of_their_own() -> None:
    async def main() -> None:
        async with octopi.aio.connect(NOWHERE):
            ready.wait(10)
            tokens.append(trio.lowlevel.current_trio_token())
            ready.wait(10)

    ready, tokens = threading.Barrier(2), list[trio.lowlevel.TrioToken]()
    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, tokens))) == 2


async def test_each_library_is_told_which_client_to_use() -> None:
    with pytest.raises(RuntimeError, match=r"a Trio program: use octopi\.connect"):
        async with octopi.aio.connect(NOWHERE):
            pass


def test_asyncio_programs_are_told_which_client_to_use() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"an asyncio program: use octopi\.aio\.connect"):
            async with octopi.connect(NOWHERE):
                pass
        async with octopi.aio.connect(NOWHERE):
            with pytest.raises(RuntimeError, match=r"use octopi\.aio\.connect"):
                async with octopi.connect(NOWHERE):
                    pass

    asyncio.run(main())


def test_programs_of_neither_library_are_told_so() -> None:
    with pytest.raises(RuntimeError, match="enter it in a Trio task"):
        octopi.connect(NOWHERE).__aenter__().send(None)
    with pytest.raises(RuntimeError, match="enter it in an asyncio task"):
        octopi.aio.connect(NOWHERE).__aenter__().send(None)


def test_a_wrong_address_is_an_error_before_the_block() -> None:
    with pytest.raises(octopi.InvalidOptionError):
        octopi.aio.connect("nonsense")


def test_a_second_loop_of_a_thread_is_refused_while_the_first_has_clients() -> None:
    async def open_one() -> octopi.aio.Client:
        return await block.__aenter__()

    async def close_one() -> None:
        await block.__aexit__(None, None, None)

    async def refused() -> None:
        with pytest.raises(RuntimeError, match="another thread"):
            async with octopi.aio.connect(NOWHERE):
                pass

    block = octopi.aio.connect(NOWHERE)
    first = asyncio.new_event_loop()
    first.run_until_complete(open_one())
    asyncio.run(refused())
    first.run_until_complete(close_one())
    first.close()
    assert not trio.lowlevel.in_trio_run()


def test_a_client_that_is_left_open_ends_with_asyncio_run() -> None:
    async def main() -> None:
        blocks.append(octopi.aio.connect(NOWHERE))
        await blocks[0].__aenter__()

    blocks: list[AbstractAsyncContextManager[octopi.aio.Client]] = []
    asyncio.run(main())
    assert not trio.lowlevel.in_trio_run()


def test_a_loop_that_is_closed_with_an_open_client_disturbs_nothing() -> None:
    program = """
        import asyncio, sys, octopi.aio, trio

        async def main():
            await blocks[0].__aenter__()

        blocks = [octopi.aio.connect("ws://127.0.0.1:9")]
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        if sys.argv[1] == "again":
            async def other():
                async with octopi.aio.connect("ws://127.0.0.1:9"):
                    print("opened")
            asyncio.run(other())
            assert not trio.lowlevel.in_trio_run()
        print("end")
        """
    assert result_of(program, "once") == (0, "end\n", "")
    assert result_of(program, "again") == (0, "opened\nend\n", "")


def test_a_loop_that_is_run_several_times_keeps_its_clients() -> None:
    program = """
        import asyncio, octopi.aio, trio

        async def enter(block):
            return await block.__aenter__()

        async def leave(block):
            await block.__aexit__(None, None, None)

        with asyncio.Runner() as runner:
            connection = octopi.aio.connect("ws://127.0.0.1:9")
            client = runner.run(enter(connection))
            left_open, closed = client.producer(), client.producer()
            producers = [runner.run(enter(one)) for one in (left_open, closed)]
            runner.run(leave(closed))
            assert trio.lowlevel.in_trio_run()
        assert not trio.lowlevel.in_trio_run()
        """
    assert result_of(program) == (0, "", "")


def test_ctrl_c_ends_a_program_that_has_a_loop_of_its_own() -> None:
    program = """
        import asyncio, octopi.aio

        async def main():
            async with octopi.aio.connect("ws://127.0.0.1:9"):
                print("open", flush=True)
                await asyncio.sleep(3600)

        loop = asyncio.new_event_loop()
        task = loop.create_task(main())
        try:
            loop.run_until_complete(task)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            task.cancel()
            try:
                loop.run_until_complete(task)
            except asyncio.CancelledError:
                print("cancelled")
            loop.close()
        """
    assert result_of(program, interrupt=True) == (0, "open\ninterrupted\ncancelled\n", "")


def test_ctrl_c_ends_a_program_cleanly() -> None:
    program = """
        import asyncio, octopi.aio

        async def main():
            try:
                async with octopi.aio.connect("ws://127.0.0.1:9") as client:
                    async with client.producer() as producer:
                        print("open", flush=True)
                        await producer.send("orders", b"value")
            finally:
                print("left", flush=True)

        asyncio.run(main())
        """
    code, output, errors = result_of(program, interrupt=True)
    assert output == "open\nleft\n"
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert errors.count("Traceback") <= 2, errors  # of asyncio.run: cancelled, then interrupted
    assert "abandoned" not in errors
    assert code in {1, -signal.SIGINT}


def test_the_loop_goes_on_while_trio_waits() -> None:
    async def main() -> None:
        async with octopi.aio.connect(NOWHERE, request_timeout_s=0.5) as client:
            asking = asyncio.ensure_future(client.topics())
            turns = 0
            while not asking.done():
                await asyncio.sleep(0.01)
                turns += 1
            with pytest.raises(octopi.UnreachableError):
                await asking
            assert turns > 5

    asyncio.run(main())


def test_a_task_of_the_client_that_fails_ends_the_block_with_its_error() -> None:
    class FaultError(Exception):
        pass

    @asynccontextmanager
    async def failing() -> AsyncIterator[trio.Event]:
        async def fail() -> None:
            await wanted.wait()
            raise FaultError

        wanted = trio.Event()
        async with background_tasks() as nursery:
            nursery.start_soon(fail)
            yield wanted

    async def body(*, goes_on: bool) -> None:
        async with AsyncioBlock(GuestRun.of_running_loop, failing, lambda _, wanted: wanted) as one:
            one.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if not goes_on:
                    raise

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        for goes_on in (False, True):
            with pytest.raises(FaultError):
                await body(goes_on=goes_on)
            await asyncio.sleep(0)
            assert task.cancelling() == 0
            assert not trio.lowlevel.in_trio_run()

    asyncio.run(main())


def test_what_a_block_suppresses_is_suppressed() -> None:
    @asynccontextmanager
    async def suppressing() -> AsyncIterator[None]:
        try:
            yield
        except LookupError:
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with AsyncioBlock(GuestRun.of_running_loop, suppressing, lambda _, value: value):
            raise LookupError

    asyncio.run(main())


def test_context_variables_reach_the_client() -> None:
    async def main() -> None:
        variable.set("value")
        async with octopi.aio.connect(NOWHERE, token=token, request_timeout_s=0.1) as client:
            run = await GuestRun.of_running_loop()
            assert await run.call(look) == "value"
            assert client.admin is not None

    async def look() -> str:
        await trio.lowlevel.checkpoint()
        return variable.get()

    def token() -> str:
        return variable.get()

    variable: ContextVar[str] = ContextVar("variable")
    asyncio.run(main())
