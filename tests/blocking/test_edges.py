"""Blocking programs at the edges: blocks that end early, time-outs, interruptions and bad peers."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

import octopi
import octopi.blocking
from octopi.blocking.direct_link import DirectFault, DirectLink
from octopi.blocking.direct_sender import DirectSender
from octopi.blocking.submit_queue import Submission
from octopi.blocking.trio_thread import Call
from octopi.operating_system import SystemRandomness
from octopi.wire.messages import Heartbeat
from tests.blocking.test_direct_sending import frame

pytestmark = pytest.mark.process


def test_what_is_given_away_after_its_producer_was_closed_fails_alone(url: str) -> None:
    """The client goes on."""
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            producer.send("given-late", b"0")
            [log] = producer._direct._logs.values()
        session = producer._inner.lent.lend(log.topic, log.partition)
        batch = session.add(b"1", None, {}, 0, trio_now(producer))
        lent = producer._inner.lent
        producer._thread.ask(lambda: lent.adopt(log.topic, log.partition, session))
        assert isinstance(batch.outcome, octopi.NotDeliveredError)
        client.topics()


def trio_now(producer: octopi.blocking.Producer) -> float:
    return producer._direct._now()


def test_headers_are_those_of_the_moment_of_submission(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            headers: dict[str, bytes] = {}
            for number in range(100):
                headers["number"] = b"%d" % number
                producer.submit("headers", b"", headers=headers)
        with client.consumer("headers", start="earliest", stop_at_end=True) as consumer:
            assert [one.headers["number"] for one in consumer] == [b"%d" % n for n in range(100)]


def test_a_message_that_is_queued_after_the_close_is_not_waited_for(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            producer.submit("late", b"0").receipt()
        late = Submission("late", b"1", None, None, None, None)
        producer._queue.put(late)
        with pytest.raises(octopi.ClosedError), octopi.blocking.timeout(5):
            octopi.blocking.PendingReceipt(producer._thread, producer._queue, late).receipt()


def test_a_submission_that_was_interrupted_before_it_was_told_is_flushed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octopi.blocking.connect(url) as client, client.producer() as producer:
        producer.submit("untold", b"0").receipt()
        waiting = producer._queue._waiting
        waiting.append(Submission("untold", b"1", None, None, None, None))
        with octopi.blocking.timeout(5):
            producer.flush()
        assert producer.acknowledged_count == 2


def test_a_call_that_is_interrupted_before_it_waits_goes_on_no_longer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Call[object]) -> object:
        raise KeyboardInterrupt

    with octopi.blocking.connect(url) as client:
        client.create_topic("orphan")
        with client.producer() as producer, client.consumer("orphan") as consumer:
            with monkeypatch.context() as patch:
                patch.setattr(Call, "result", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    next(consumer)
            producer.send("orphan", b"0")
            with octopi.blocking.timeout(5):
                assert next(consumer).value == b"0"


def test_an_interruption_of_a_call_whose_time_is_up_counts_more(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = Call._cancel

    class Interrupted:
        """A thread of Trio; the first post to it is interrupted."""

        def __init__(self, inner: object) -> None:
            self._inner = inner

        def post(self, function: Callable[[], None]) -> bool:
            self.post = self._inner.post  # type: ignore[attr-defined, method-assign]
            raise KeyboardInterrupt

    def cancel_interrupted(self: Call[object]) -> None:
        self._thread = Interrupted(self._thread)  # type: ignore[assignment]
        cancel(self)

    with octopi.blocking.connect(url) as client:
        client.create_topic("counts-more")
        with client.consumer("counts-more") as consumer:
            monkeypatch.setattr(Call, "_cancel", cancel_interrupted)
            with pytest.raises(KeyboardInterrupt), octopi.blocking.timeout(0.05):
                next(consumer)
            monkeypatch.undo()


def test_nothing_follows_half_a_frame() -> None:
    """A goodbye there would be taken for the rest of the message."""
    ours, theirs = socket.socketpair()
    link = DirectLink(ours.detach(), SystemRandomness())
    with pytest.raises(DirectFault):
        link.send(bytes(2_000_000))
    assert theirs.recv(65_536)
    theirs.setblocking(False)
    with suppress(BlockingIOError):
        while theirs.recv(65_536):
            pass
    link.close()
    assert theirs.recv(65_536) == b"", "there was room for a goodbye"
    theirs.close()


def test_heartbeats_prolong_no_wait() -> None:
    ours, theirs = socket.socketpair()
    link = DirectLink(ours.detach(), SystemRandomness())
    ended = threading.Event()

    def beat() -> None:
        for _ in range(100):
            if ended.wait(0.03):
                return
            theirs.sendall(frame(Heartbeat()))

    beating = threading.Thread(target=beat)
    beating.start()
    began = time.monotonic()
    with pytest.raises(DirectFault):
        link.receive(0.1)
    took_s = time.monotonic() - began
    ended.set()
    beating.join()
    link.close()
    theirs.close()
    assert took_s < 1


def test_waiting_for_a_log_may_go_on_after_a_timeout(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        client.create_topic("log-by-log")
        with client.subscription("log-by-log", "group", mode="failover") as member:
            logs = member.logs()
            with next(logs) as log:
                for _ in range(2):
                    with pytest.raises(TimeoutError), octopi.blocking.timeout(0.05):
                        next(logs)
                assert not log.is_lost


def test_a_producers_block_that_is_interrupted_while_others_send_ends(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: DirectSender) -> None:
        raise KeyboardInterrupt

    with octopi.blocking.connect(url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(DirectSender, "wait_for_senders", interrupt)
            with pytest.raises(KeyboardInterrupt), client.producer() as producer:
                producer.send("ended", b"0")
        with pytest.raises(octopi.ClosedError):
            producer.send("ended", b"1")


def test_a_timeout_may_be_endless(url: str) -> None:
    timeout = octopi.blocking.timeout
    with octopi.blocking.connect(url) as client, timeout(math.inf), timeout(1e12):
        client.topics()


def test_a_flush_waits_for_other_threads_no_longer_than_its_timeout(url: str) -> None:
    with octopi.blocking.connect(url) as client, client.producer() as producer:
        producer.send("flushed", b"0")
        [broker] = producer._direct._brokers.values()
        with broker.lock:
            began = time.monotonic()
            flushing = threading.Thread(target=_flush_briefly, args=(producer,))
            flushing.start()
            flushing.join()
            assert time.monotonic() - began < 1


def _flush_briefly(producer: octopi.blocking.Producer) -> None:
    with pytest.raises(TimeoutError), octopi.blocking.timeout(0.1):
        producer.flush()
