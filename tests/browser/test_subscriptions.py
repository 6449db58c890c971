"""A page is a member of a subscription through whatever happens to sockets, brokers and itself."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

import octopi
from harness.processes import NodeProcesses, node_processes
from tests.browser.pages import open_client_page
from tests.browser.test_reading import (
    CUTTABLE,
    cut_sockets,
    leader_of,
    produce,
    start_cluster,
    wait_for,
)
from tests.browser.tools import STATIC, node_command

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.process

# Keeps what came as numbers, until there are `count` different ones, and what was told.
CONSUME = """([count, options]) => {
    window.got = [];
    window.losses = [];
    window.done = (async () => {
        window.octopi = await Octopi.connect();
        octopi.addEventListener("fenced", ({ detail }) => losses.push(detail));
        window.numbers = await octopi.subscription("numbers", { name: "sum", ...options });
        await numbers.ready;
        window.isMember = true;
        for await (const message of numbers) {
            got.push(Number(message.text()));
            if (got.length % 50 === 0) await numbers.commit();
            if (new Set(got).size === count) break;
        }
        await numbers.commit();
        await octopi.close();
    })();
    done.catch((error) => (window.failure = error.code ?? String(error)));
}"""


def test_a_member_passes_over_no_message_through_cut_sockets_and_a_killed_leader(
    tmp_path: Path, page: Page
) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = start_cluster(nodes)
        page.add_init_script(CUTTABLE)
        trio.run(produce, register.url, "numbers", 0, 100)
        open_client_page(page, register.url)
        page.evaluate(CONSUME, [1_000, {}])
        wait_for(page, 100)
        for cut in range(6):
            seen = page.evaluate("got.length")
            trio.run(produce, register.url, "numbers", 100 + cut * 150, 150)
            cut_sockets(page, seen)
            if cut == 3:
                brokers[trio.run(leader_of, register.url, "numbers")].kill9()
        page.evaluate("() => done")
        got = page.evaluate("got")
        assert sorted(set(got)) == list(range(1_000))
        # A connection that breaks costs nothing; a leader that dies costs what was not confirmed.
        assert len(got) <= 1_000 + 500
        assert page.evaluate("losses") == []


# Keeps the numbers that came, those that are acknowledged and committed, and those of them that
# came again.  Each third message is released at first.
WORK_OFF = """(options) => {
    window.got = [];
    window.committed = new Set();
    window.again = [];
    window.done = (async () => {
        window.octopi = await Octopi.connect();
        const all = { name: "sum", prefetch: 20, ...options };
        const numbers = await octopi.subscription("numbers", all);
        let answered = [];
        for await (const message of numbers) {
            const number = Number(message.text());
            got.push(number);
            if (committed.has(number)) again.push(number);
            if (number % 3 === 0 && message.attempt === 1) {
                message.release();
                continue;
            }
            message.acknowledge();
            answered.push(number);
            if (answered.length < 20) continue;
            if ((await numbers.commit()) === 0) answered.forEach((one) => committed.add(one));
            answered = []; // else nobody knows which of them are
        }
    })();
    done.catch((error) => (window.failure = error.code ?? String(error)));
}"""


async def all_processed(url: str) -> None:
    """Wait until all messages are settled."""
    async with octopi.connect(url) as client:
        with trio.fail_after(60):
            while True:  # nothing announces it
                status = await client.admin.describe_subscription("numbers", "sum")
                if not status.lag_bytes:
                    return
                await trio.sleep(0.1)


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_each_message_of_a_queue_is_processed_through_cut_sockets_and_a_killed_leader(
    tmp_path: Path, page: Page, mode: str
) -> None:
    with node_processes(tmp_path) as nodes:
        register, brokers = start_cluster(nodes)
        page.add_init_script(CUTTABLE)
        trio.run(produce, register.url, "numbers", 0, 100)
        open_client_page(page, register.url)
        page.evaluate(WORK_OFF, {"mode": mode, "ackTimeout": 10_000, "attempts": None})
        wait_for(page, 100)
        for cut in range(3):
            seen = page.evaluate("got.length")
            trio.run(produce, register.url, "numbers", 100 + cut * 100, 100)
            cut_sockets(page, seen)
            if cut == 1:
                brokers[trio.run(leader_of, register.url, "numbers")].kill9()
        trio.run(all_processed, register.url)
        page.evaluate("() => octopi.close()")
        page.evaluate("() => done")
        assert set(page.evaluate("got")) == set(range(400))
        assert page.evaluate("committed.size") >= 100
        assert page.evaluate("again") == []


@contextmanager
def node_member(
    url: str, script_name: str = "frozen_member.mjs"
) -> Iterator[tuple[subprocess.Popen[str], Callable[[], Any]]]:
    """octopi.js in Node as the member of ``numbers``, and the next line that it says."""
    script = Path(__file__).with_name(script_name)
    with subprocess.Popen(
        [*node_command(), str(script), STATIC.as_uri(), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def say() -> Any:  # noqa: ANN401
            assert process.stdout is not None
            return json.loads(process.stdout.readline())

        try:
            yield process, say
        finally:
            process.kill()


async def take_over_the_dead(url: str) -> tuple[bytes, int]:
    """Be the next member, which gets the subscription when the other one is given up for dead."""
    async with (
        octopi.connect(url) as client,
        client.subscription("numbers", "sum", session_timeout_s=1.0) as numbers,
    ):
        message = await anext(numbers)
        return message.value, numbers.claim


def prepare(nodes: NodeProcesses) -> str:
    register = nodes.register()
    nodes.broker(register)
    trio.run(produce, register.url, "numbers", 0, 10)
    return register.url


def test_a_frozen_member_is_fenced_and_says_so(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        url = prepare(nodes)
        with node_member(url) as (process, say):
            assert say() == ["got", "0"]
            process.send_signal(signal.SIGSTOP)
            value, claim = trio.run(take_over_the_dead, url)
            assert (value, claim) == (b"0", 2)
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.write("commit\n")
            process.stdin.flush()
            # What waits in its memory isn't handed out, and what it has in hand can't be marked.
            told = [say(), say()]
            assert ["fenced", 1] in told
            assert ["commit", "member_fenced"] in told


async def work_off(url: str, count: int) -> list[bytes]:
    """Be another member of the queue, which acknowledges so many messages."""
    async with (
        octopi.connect(url) as client,
        client.subscription("numbers", "sum", mode="shared", ack_timeout_s=1.0) as numbers,
    ):
        values = []
        for _ in range(count):
            async with await anext(numbers) as message:
                values.append(message.value)
        return values


def test_a_frozen_member_of_a_queue_hands_out_nothing_that_others_have(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        url = prepare(nodes)
        with node_member(url, "frozen_queue_member.mjs") as (process, say):
            assert say() == ["got", "0"]
            process.send_signal(signal.SIGSTOP)
            trio.run(produce, url, "numbers", 10, 5)  # they are dealt to it, and lie in its socket
            assert sorted(trio.run(work_off, url, 15)) == sorted(b"%d" % one for one in range(15))
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert say() == ["stale", 1]
            assert say() == ["got", "the next one"]


def test_a_hidden_tab_whose_timers_do_not_run_stays_a_member(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        url = prepare(nodes)
        page.add_init_script(
            """
            const [set, every] = [setTimeout, setInterval];
            window.setTimeout = (work, ms) => set(work, window.isHidden && ms > 50 ? 1e9 : ms);
            window.setInterval = (work, ms) => every(() => window.isHidden || work(), ms);
            """
        )
        open_client_page(page, url)
        page.evaluate("window.isHidden = true")
        page.evaluate(CONSUME, [20, {}])
        wait_for(page, 10)

        async def wait() -> None:
            """Longer than the session timeout."""
            async with octopi.connect(url) as client:
                first = await client.admin.describe_subscription("numbers", "sum")
                (member,) = first.members
                await trio.sleep(12)
                again = await client.admin.describe_subscription("numbers", "sum")
                assert [one.member for one in again.members] == [member.member]

        trio.run(wait)
        trio.run(produce, url, "numbers", 10, 10)
        page.evaluate("() => done")
        assert page.evaluate("got") == list(range(20))
        assert page.evaluate("losses") == []


def test_a_frozen_tab_is_fenced_and_says_so(tmp_path: Path, page: Page) -> None:
    with node_processes(tmp_path) as nodes:
        url = prepare(nodes)
        open_client_page(page, url)
        page.evaluate(
            """async () => {
                window.octopi = await Octopi.connect();
                window.losses = [];
                octopi.addEventListener("fenced", ({ detail }) => losses.push(detail.claim));
                const options = { name: "sum", sessionTimeout: 1_000 };
                window.numbers = await octopi.subscription("numbers", options);
                window.first = (await numbers.next()).value.text();
            }"""
        )
        assert page.evaluate("first") == "0"
        browser = page.context.new_cdp_session(page)
        browser.send("Debugger.enable")
        browser.send("Debugger.pause")  # before the next statement, for instance of a timer
        assert trio.run(take_over_the_dead, url) == (b"0", 2)
        browser.send("Debugger.resume")
        assert page.evaluate("numbers.commit().catch((error) => error.code)") == "member_fenced"
        assert page.evaluate("losses") == [1]
