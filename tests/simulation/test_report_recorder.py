"""The recorder sees every message on either tier, and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from hypothesis import given, strategies as st

from octopi.simulation.kernel.world import Event, Violation
from octopi.simulation.network.message_links import FrameNet
from octopi.simulation.network.network import Tier
from octopi.simulation.network.streams import WebSocketTier
from octopi.simulation.report.frame_decoder import SpokenStream
from octopi.simulation.report.recorder import Recorder
from octopi.simulation.report.recording import Came, Recording, Sent
from octopi.wire.codec import encode
from octopi.wire.messages import FindOffset, FoundOffset, Heartbeat, Produce
from sim.run.simulation import simulate
from tests.simulation.recordings import PLAN, real_run
from tests.simulation.worlds import Small, run_small

TIERS = pytest.mark.parametrize("tier", [FrameNet, WebSocketTier], ids=["message", "websocket"])
ASKED = FindOffset(7, "orders", 1, "latest", 0)
ANSWER = FoundOffset(7, 100, 0, 100)


def recorded(tier: Tier, main: Callable[[Small], Awaitable[None]]) -> Recording:
    """A little run of *main*."""
    recorder = Recorder()

    async def watched(small: Small) -> None:
        recorder.watch_network(small.network)
        small.world.observers.append(recorder)
        await main(small)

    run_small(tier, watched)
    return recorder.recording("little")


async def ask_and_answer(small: Small) -> None:
    asker, answerer = await small.pair()
    await asker.send(encode(ASKED))
    await answerer.receive()
    await answerer.send(encode(ANSWER))
    await asker.receive()


def sent(recording: Recording) -> list[Sent]:
    return [one for one in recording.happenings if isinstance(one, Sent)]


def came(recording: Recording) -> dict[int, Came]:
    return {one.number: one for one in recording.happenings if isinstance(one, Came)}


@TIERS
def test_messages_are_recorded_with_sender_content_and_time(tier: Tier) -> None:
    recording = recorded(tier, ask_and_answer)
    found = [(one.host, one.target, one.kind) for one in sent(recording)]
    assert found[:4] == [
        ("here", "there", "request"),
        ("there", "here", "answer"),
        ("here", "there", "find_offset"),
        ("there", "here", "found_offset"),
    ]
    arrivals = came(recording)
    for message in sent(recording)[:4]:
        arrival = arrivals[message.number]
        assert arrival.at > message.at
        assert arrival.host == message.target
    asked, answer = sent(recording)[2:4]
    assert (asked.content, answer.content) == (ASKED, ANSWER)
    assert asked.size_bytes >= len(encode(ASKED))


@TIERS
def test_an_answer_is_about_the_log_of_its_request(tier: Tier) -> None:
    asked, answer = sent(recorded(tier, ask_and_answer))[2:4]
    assert (asked.topic, asked.partition) == (answer.topic, answer.partition) == ("orders", 1)


@TIERS
def test_a_message_lost_on_its_way_is_recorded_without_an_arrival(tier: Tier) -> None:
    async def main(small: Small) -> None:
        asker, _ = await small.pair()
        small.network.cut("here", "there")
        await asker.send(encode(Heartbeat()))

    recording = recorded(tier, main)
    (heartbeat,) = [one for one in sent(recording) if one.kind == "heartbeat"]
    assert heartbeat.number not in came(recording)


@TIERS
def test_a_large_message_has_arrived_when_all_of_it_has(tier: Tier) -> None:
    produce = Produce(1, "orders", 0, bytes(200_000))

    async def main(small: Small) -> None:
        asker, answerer = await small.pair()
        await asker.send(encode(produce))
        await answerer.receive()

    recording = recorded(tier, main)
    last = sent(recording)[-1 if tier is FrameNet else 2]
    assert last.number in came(recording)
    if tier is WebSocketTier:
        assert last.content == produce


def test_bytes_that_are_no_message_are_recorded_as_such() -> None:
    async def main(small: Small) -> None:
        asker, _ = await small.pair()
        await asker.send(b"nonsense")

    last = sent(recorded(FrameNet, main))[-1]
    assert (last.kind, last.content, last.size_bytes) == ("bytes", None, 8)


def test_events_after_a_failure_are_not_recorded() -> None:
    recorder = Recorder()

    async def main(small: Small) -> None:
        recorder.watch_network(small.network)
        small.world.observers.append(recorder)
        small.world.note("before")
        small.world.fail(Violation("rule", "it is broken"))
        small.world.note("at once")
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        small.world.note("later")

    with pytest.raises(Violation):
        run_small(FrameNet, main)
    events = [one for one in recorder.recording("given up").happenings if isinstance(one, Event)]
    assert [event.what for event in events][:2] == ["before", "at once"]
    assert "later" not in [event.what for event in events]


def test_a_recorded_run_takes_the_same_course_as_any_other() -> None:
    assert simulate(PLAN).digest == real_run().digest


def test_a_recording_has_all_hosts_and_all_events_in_order() -> None:
    recording = real_run()
    assert recording.hosts[0] == ("register", "register")
    assert ("producer-1", "client") in recording.hosts
    times = [one.at for one in recording.happenings]
    assert times == sorted(times)
    numbers = [one.number for one in recording.happenings if isinstance(one, Event)]
    assert numbers == list(range(len(numbers)))


# --- bytes of WebSockets ----------------------------------------------------------------

HEAD = b"GET /v1/client HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\n\r\n"
MASK = b"\x01\x02\x03\x04"


def frame(payload: bytes, *, opcode: int = 2, is_final: bool = True, is_masked: bool) -> bytes:
    """A frame of RFC 6455, section 5.2."""
    size, head = len(payload), bytes([(0x80 if is_final else 0) | opcode])
    masked = 0x80 if is_masked else 0
    if size < 126:
        head += bytes([masked | size])
    elif size < 1 << 16:
        head += bytes([masked | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([masked | 127]) + size.to_bytes(8, "big")
    if not is_masked:
        return head + payload
    return head + MASK + bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))


def spoken(data: bytes, cuts: list[int]) -> list[tuple[str, object, int]]:
    """What is found in *data*, which comes in pieces."""
    stream, found, start = SpokenStream(), [], 0
    for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        found += list(stream.add(data[start:end]))
        start = end
    return found


@given(
    sizes=st.lists(st.sampled_from([0, 1, 60, 126, 1000, 70_000]), min_size=1, max_size=3),
    is_masked=st.booleans(),
    cuts=st.lists(st.integers(0, 2_000), max_size=8),
)
def test_messages_are_decoded_however_their_bytes_are_split(
    sizes: list[int], is_masked: bool, cuts: list[int]
) -> None:
    messages = [Produce(number, "t", 0, bytes(size)) for number, size in enumerate(sizes)]
    data, ends = HEAD, [len(HEAD)]
    for message in messages:
        data += frame(encode(message), is_masked=is_masked)
        ends.append(len(data))
    found = spoken(data, cuts)
    assert [kind for kind, *_ in found] == ["request", *["produce"] * len(sizes)]
    assert [content for _, content, _ in found][1:] == messages
    assert [end for *_, end in found] == ends


def test_a_message_in_several_frames_is_one_and_control_frames_may_come_between() -> None:
    whole = encode(Heartbeat())
    data = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
    data += frame(whole[:5], is_final=False, is_masked=False)
    data += frame(b"", opcode=9, is_masked=False)
    data += frame(whole[5:], opcode=0, is_masked=False)
    data += frame(b"\x03\xe8", opcode=8, is_masked=False)
    found = spoken(data, [])
    assert [kind for kind, *_ in found] == ["answer", "ping", "heartbeat", "close"]


@given(st.binary(max_size=400))
def test_any_bytes_can_be_decoded_without_an_error(data: bytes) -> None:
    spoken(data, [])
    spoken(HEAD + data, [50])


def test_http_of_a_program_is_one_head_and_then_bytes_of_whatever_length() -> None:
    post = b"POST /orders HTTP/1.1\r\nContent-Length: 5\r\n\r\na hat"
    assert [kind for kind, *_ in spoken(post, [])] == ["request", "bytes"]
    answer = b"HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\n7"
    assert [kind for kind, *_ in spoken(answer, [20])] == ["answer", "bytes"]
    plain = b"GET /orders HTTP/1.1\r\nHost: shop\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    assert [kind for kind, *_ in spoken(plain, [])] == ["request", "bytes"]


def test_what_never_has_a_head_is_not_kept() -> None:
    found = spoken(b"x" * 100_000, [70_000])
    assert [(kind, end) for kind, _, end in found] == [("bytes", 70_000), ("bytes", 100_000)]
