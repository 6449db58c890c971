"""A message that is sent directly is stored once, whatever becomes of the connection.

A fake broker takes the place of the real one on the direct connection; what the session holds is
finished by the ordinary sender, at the real one.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import octopi
import octopi.blocking
from octopi.blocking import direct_sender
from octopi.blocking.direct_link import DirectFault, DirectLink
from octopi.blocking.direct_sender import RETRY_S, DirectBroker, DirectSender
from octopi.clients.producing.partitioner import place_for_key
from octopi.errors import Status
from octopi.operating_system import SystemRandomness
from octopi.transport.failures import failure
from octopi.transport.frame_reader import BINARY, CLOSE, PING, TEXT, FrameReader, frame_head
from octopi.wire.codec import decode, encode
from octopi.wire.messages import (
    MESSAGES,
    Authenticated,
    FoundOffset,
    Heartbeat,
    Produce,
    Produced,
)

pytestmark = pytest.mark.process


def direct(producer: octopi.blocking.Producer) -> DirectSender:
    """The direct way of *producer*."""
    return producer._direct


def only_broker(producer: octopi.blocking.Producer) -> DirectBroker:
    """The broker that *producer* has a direct connection to."""
    [broker] = direct(producer)._brokers.values()
    return broker


@contextmanager
def fake_broker(
    producer: octopi.blocking.Producer, act: Callable[[socket.socket, Produce], None]
) -> Iterator[list[Produce]]:
    """Within the block *act* answers what is sent directly, instead of the broker.  Gives the
    messages that were received."""
    ours, theirs = socket.socketpair()
    link = DirectLink(ours.detach(), SystemRandomness())
    broker = only_broker(producer)
    [log] = direct(producer)._logs.values()
    with broker.lock:
        if broker.link is not None:
            broker.drop(broker.link)
        broker.link = log.link = link
    received: list[Produce] = []

    def serve() -> None:
        reader = FrameReader(is_masked=True, on_control=lambda *_: None)
        while data := theirs.recv(65_536):
            reader.feed(data)
            while (message := reader.next(2**24)) is not None:
                produce = decode(message, frozenset(MESSAGES.values()))
                if isinstance(produce, Produce):
                    received.append(produce)
                    act(theirs, produce)

    thread = threading.Thread(target=serve, name="fake broker")
    thread.start()
    try:
        yield received
    finally:
        with broker.lock:
            if broker.link is link:
                broker.drop(link)
        thread.join()
        theirs.close()


def frame(message: object) -> bytes:
    data = encode(message)
    return frame_head(BINARY, len(data)) + data


def failing(
    status: Status, *, address: str = "", epoch: int | None = None, is_numbered: bool = True
) -> Callable[[socket.socket, Produce], None]:
    def act(peer: socket.socket, produce: Produce) -> None:
        number = produce.request if is_numbered else None
        in_epoch = None if epoch is None else octopi.Epoch(epoch)
        peer.sendall(frame(failure(number, status, "a reason", address, in_epoch)))

    return act


def saying(*parts: bytes) -> Callable[[socket.socket, Produce], None]:
    def act(peer: socket.socket, produce: Produce) -> None:
        for part in parts:
            peer.sendall(part)

    return act


def answering(make: Callable[[int], object]) -> Callable[[socket.socket, Produce], None]:
    def act(peer: socket.socket, produce: Produce) -> None:
        peer.sendall(frame(make(produce.request)))

    return act


def closing(how: int) -> Callable[[socket.socket, Produce], None]:
    def act(peer: socket.socket, produce: Produce) -> None:
        peer.shutdown(how)

    return act


HALF = frame(Produced(1, octopi.Offset(0), octopi.Epoch(1), False))[:5]

CASES: dict[str, Callable[[socket.socket, Produce], None]] = {
    "a failure that may pass": failing(Status.NOT_READY),
    "a redirect to nowhere": failing(Status.NOT_LEADER, address="ws://127.0.0.1:9", epoch=99),
    "a redirect without an address": failing(Status.NOT_LEADER),
    "an unknown topic": failing(Status.UNKNOWN_TOPIC),
    "a sequence gap": failing(Status.SEQUENCE_GAP),
    "a failure of the connection": failing(Status.SHUTTING_DOWN, is_numbered=False),
    "another answer": answering(
        lambda request: FoundOffset(request, octopi.Offset(0), octopi.Offset(0), octopi.Offset(0))
    ),
    "an answer to another request": answering(
        lambda request: Produced(request + 7, octopi.Offset(0), octopi.Epoch(1), False)
    ),
    "an answer that is another one's": answering(lambda request: Authenticated(request, None)),
    "garbage": saying(b"\xff" * 100),
    "a message that is none": saying(frame_head(BINARY, 3) + b"abc"),
    "a text": saying(frame_head(TEXT, 2) + b"{}"),
    "a ping": saying(frame_head(PING, 0)),
    "a close": saying(frame_head(CLOSE, 2) + b"\x03\xe8"),
    "half an answer, and nothing more": saying(HALF),
    "only heartbeats": saying(frame(Heartbeat()), frame(Heartbeat())),
    "nothing": saying(),
    "the end of the stream": closing(socket.SHUT_WR),
    "the end of the connection": closing(socket.SHUT_RDWR),
}


@pytest.mark.parametrize("case", CASES)
def test_whatever_comes_instead_of_a_receipt_the_message_is_stored_once(
    url: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_sender, "RETRY_S", 0.0)
    topic = "case-" + "".join(one if one.isalnum() else "-" for one in case)
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            producer.send(topic, b"before")
            with fake_broker(producer, CASES[case]) as received:
                receipt = producer.send(topic, b"given away")
                assert len(received) == 1
                assert not receipt.duplicate
            assert producer.acknowledged_count == 2
            expected = [b"before", b"given away"]
            while direct(producer).acknowledged_count < 2:
                assert len(expected) < 4, "a redirect may lead astray once"
                expected.append(b"%d" % len(expected))
                producer.send(topic, expected[-1])
        with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            assert [one.value for one in consumer] == expected


def test_what_is_refused_for_good_is_not_stored_and_the_producer_goes_on(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_sender, "RETRY_S", 0.0)
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            producer.send("for-good", b"0")
            act = failing(Status.MALFORMED_RECORD)
            with fake_broker(producer, act), pytest.raises(octopi.NotDeliveredError):
                producer.send("for-good", b"refused")
            producer.send("for-good", b"1")
            producer.flush()  # the failure was told
        with client.consumer("for-good", start="earliest", stop_at_end=True) as consumer:
            assert [one.value for one in consumer] == [b"0", b"1"]


def send_while_replaced(client: octopi.blocking.Client) -> None:
    with client.producer() as producer:
        producer.send("fenced", b"0")
        act = failing(Status.PRODUCER_FENCED)
        with fake_broker(producer, act), pytest.raises(octopi.NotDeliveredError):
            producer.send("fenced", b"1")
        with pytest.raises(octopi.ProducerFencedError):
            producer.send("fenced", b"2")


def test_a_producer_that_another_process_replaced_is_closed(url: str) -> None:
    with octopi.blocking.connect(url) as client, pytest.raises(octopi.ProducerFencedError):
        send_while_replaced(client)


def test_an_answer_that_is_lost_doubles_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has the message, and the ordinary sender sends it again."""
    receive = DirectLink.receive

    def lose(self: DirectLink, wait_s: float) -> object:
        receive(self, wait_s)
        raise DirectFault("the answer was lost")

    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            producer.send("lost-answer", b"0")
            with monkeypatch.context() as patch:
                patch.setattr(DirectLink, "receive", lose)
                receipt = producer.send("lost-answer", b"1")
            assert receipt.duplicate
            assert producer.send("lost-answer", b"2").offset == receipt.next_offset
        with client.consumer("lost-answer", start="earliest", stop_at_end=True) as consumer:
            assert [one.value for one in consumer] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("moment", ["send", "receive"])
def test_an_interrupted_send_is_delivered_and_those_behind_it_come_later(
    url: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def interrupt(*_: object) -> object:
        raise KeyboardInterrupt

    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            topic = f"interrupted-{moment}"
            producer.send(topic, b"0")
            with monkeypatch.context() as patch:
                patch.setattr(DirectLink, moment, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    producer.send(topic, b"1")
            for number in range(2, 20):
                producer.send(topic, b"%d" % number)
            assert producer.acknowledged_count == 20
        with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            assert [one.value for one in consumer] == [b"%d" % n for n in range(20)]


def test_a_second_interruption_while_the_first_is_handled_breaks_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            producer.send("twice", b"0")
            with monkeypatch.context() as patch:
                patch.setattr(DirectLink, "receive", interrupt)
                patch.setattr(DirectSender, "_give_away", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    producer.send("twice", b"1")
            for number in range(2, 10):
                producer.send("twice", b"%d" % number)
        with client.consumer("twice", start="earliest", stop_at_end=True) as consumer:
            assert [one.value for one in consumer] == [b"%d" % n for n in range(10)]


def test_a_broker_that_takes_nothing_is_left_soon(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer of this connection reads nothing, so a large message doesn't fit the buffers."""
    with octopi.blocking.connect(url) as client, client.producer() as producer:
        producer.send("large", b"0")
        ours, theirs = socket.socketpair()
        broker, [log] = only_broker(producer), direct(producer)._logs.values()
        with broker.lock:
            assert broker.link is not None
            broker.drop(broker.link)
            broker.link = log.link = DirectLink(ours.detach(), SystemRandomness())
        began = time.monotonic()
        assert not producer.send("large", bytes(900_000)).duplicate
        assert time.monotonic() - began < 10
        theirs.close()


@pytest.mark.parametrize("place", ["add", "advance", "answered"])
def test_a_session_that_was_interrupted_while_it_decided_is_used_no_more(
    url: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Before it was sent the message is not taken, and after its answer it is stored."""
    with octopi.blocking.connect(url) as client:
        with client.producer() as producer:
            topic = f"deciding-{place}"
            producer.send(topic, b"0")
            [log] = direct(producer)._logs.values()
            kind = type(log.session)
            plain = getattr(kind, place)

            def interrupt(self: object, *args: object, **named: object) -> object:
                plain(self, *args, **named)
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(kind, place, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    producer.send(topic, b"1")
            producer.send(topic, b"2")
            assert direct(producer).acknowledged_count == 2
        with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            values = [one.value for one in consumer]
        assert values == ([b"0", b"1", b"2"] if place == "answered" else [b"0", b"2"])


def test_messages_that_are_sent_directly_follow_a_topic_that_grows(url: str) -> None:
    keys = [b"key-%d" % number for number in range(8)]
    with octopi.blocking.connect(url) as client:
        client.create_topic("widened", partition_ids=[0])
        with client.producer() as producer:
            for key in keys:
                assert producer.send("widened", b"0", key=key).partition == 0
            places = [one.partition for one in client.admin.grow_topic("widened", 2).partitions]
            for key in keys:
                receipt = producer.send("widened", b"1", key=key)
                assert receipt.partition == places[place_for_key(key, 2)]
            time.sleep(RETRY_S)
            before = direct(producer).acknowledged_count
            for key in keys:
                producer.send("widened", b"2", key=key)
            assert direct(producer).acknowledged_count == before + len(keys)
            assert producer.acknowledged_count == 3 * len(keys)


def test_a_second_thread_takes_the_ordinary_way_meanwhile(url: str) -> None:
    with octopi.blocking.connect(url) as client, client.producer() as producer:
        producer.send("second", b"0")
        with only_broker(producer).lock:
            producer.send("second", b"1")
        assert direct(producer).acknowledged_count == 1
        assert producer.acknowledged_count == 2
        producer.send("second", b"2")
        assert direct(producer).acknowledged_count == 2


def test_messages_without_a_key_are_spread_and_those_with_one_stay_together(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        info = client.create_topic("spread", 3)
        with client.producer() as producer:
            one = [producer.send("spread", bytes(4000)).partition for _ in range(100)]
            assert {*one} == {place.partition for place in info.partitions}
            plain = producer._inner
            for number in range(20):
                key = b"%d" % number
                [direct_place, ordinary_place] = [
                    producer.send("spread", b"", key=key).partition,
                    producer.submit("spread", b"", key=key).receipt().partition,
                ]
                assert direct_place == ordinary_place
            assert plain.acknowledged_count == 20
            last = info.partitions[2].partition
            assert producer.send("spread", b"", partition=last).partition == last


def test_an_idle_connection_is_kept_alive_and_one_that_has_ended_is_replaced(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_sender, "HEARTBEAT_INTERVAL_S", 0.05)
    beats = []
    keep_alive = DirectLink.keep_alive

    def count(self: DirectLink) -> None:
        keep_alive(self)
        beats.append(self)

    monkeypatch.setattr(DirectLink, "keep_alive", count)
    with octopi.blocking.connect(url) as client, client.producer() as producer:
        producer.send("idle", b"0")
        broker = only_broker(producer)
        link = broker.link
        while len(beats) < 3:
            time.sleep(0.01)
        producer.send("idle", b"1")
        assert broker.link is link, "it is the same connection"
        assert link is not None
        link._socket.shutdown(socket.SHUT_RDWR)
        while broker.link is link:
            time.sleep(0.01)
        producer.send("idle", b"2")
        assert broker.link is not link
        assert direct(producer).acknowledged_count == 3


def test_a_connection_whose_token_ends_is_replaced(url: str) -> None:
    with octopi.blocking.connect(url) as client, client.producer() as producer:
        producer.send("renewed", b"0")
        broker = only_broker(producer)
        link, broker.renew_at = broker.link, 0.0
        assert math.isinf(broker.renew_at) is False
        producer.send("renewed", b"1")
        producer.send("renewed", b"2")
        assert broker.link not in (None, link)
        assert producer.acknowledged_count == 3


def test_a_producer_that_is_closed_while_it_sends_leaves_no_connection(url: str) -> None:
    with octopi.blocking.connect(url) as client:
        entered = threading.Event()
        outcomes: list[object] = []

        def act(peer: socket.socket, produce: Produce) -> None:
            entered.set()

        def send(producer: octopi.blocking.Producer) -> None:
            try:
                outcomes.append(producer.send("closed-meanwhile", b"1"))
            except octopi.OctopiError as error:
                outcomes.append(error)

        with client.producer() as producer:
            producer.send("closed-meanwhile", b"0")
            with fake_broker(producer, act):
                sending = threading.Thread(target=send, args=(producer,))
                sending.start()
                entered.wait()
                with pytest.raises(ZeroDivisionError), client.producer():
                    raise ZeroDivisionError
                producer.flush()
            sending.join()
        [outcome] = outcomes
        assert isinstance(outcome, octopi.Receipt)
