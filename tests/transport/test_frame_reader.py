"""Frames as RFC 6455 has them; the cases are those that the Autobahn test suite is made of."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from octopi.transport.frame_reader import (
    BINARY,
    CLOSE,
    CONTINUATION,
    NO_CODE,
    PING,
    PONG,
    TEXT,
    FrameFault,
    FrameReader,
    close_payload,
    frame_head,
    parse_close,
)
from octopi.transport.masking import apply_mask, apply_mask_slowly

MASK = b"\x37\xfa\x21\x3d"
BYTES_MAX = 1 << 20


def frame(
    payload: bytes = b"", opcode: int = BINARY, *, final: bool = True, mask: bytes = b""
) -> bytes:
    head = bytearray(frame_head(opcode, len(payload), mask))
    if not final:
        head[0] &= 0x7F
    return bytes(head) + (apply_mask(payload, mask) if mask else payload)


class Reading:
    """What a reader makes of bytes."""

    def __init__(self, *, is_masked: bool = False, bytes_max: int = BYTES_MAX) -> None:
        self.events: list[bytes | memoryview | tuple[int, bytes]] = []
        self._bytes_max = bytes_max
        self.reader = FrameReader(
            is_masked=is_masked, on_control=lambda *control: self.events.append(control)
        )

    def take(self, data: bytes) -> None:
        self.reader.feed(data)
        while (message := self._next()) is not None:
            self.events.append(message)

    def _next(self) -> bytes | memoryview | None:
        message = self.reader.next(self._bytes_max)
        while message is None and self.reader.is_paused:
            message = self.reader.next(self._bytes_max)
        return message


def read(data: bytes, *, piece_bytes: int = 0, is_masked: bool = False) -> list[object]:
    reading = Reading(is_masked=is_masked)
    step = piece_bytes or len(data)
    for at in range(0, len(data), step):
        reading.take(data[at : at + step])
    return list(reading.events)


def fault_of(data: bytes, *, is_masked: bool = False, bytes_max: int = BYTES_MAX) -> FrameFault:
    with pytest.raises(FrameFault) as caught:
        Reading(is_masked=is_masked, bytes_max=bytes_max).take(data)
    return caught.value


# --- messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [0, 1, 125, 126, 127, 128, 65535, 65536, 65537, 300_000])
@pytest.mark.parametrize("mask", [b"", MASK, bytes(4)], ids=["bare", "masked", "zero mask"])
@pytest.mark.parametrize("piece_bytes", [0, 1000])
def test_a_message_of_any_length_is_read(size_bytes: int, mask: bytes, piece_bytes: int) -> None:
    payload = bytes(range(256)) * (size_bytes // 256 + 1)
    payload = payload[:size_bytes]
    data = frame(payload, mask=mask) + frame(b"next", mask=mask)
    assert read(data, piece_bytes=piece_bytes, is_masked=bool(mask)) == [payload, b"next"]


def test_lengths_are_written_in_their_shortest_form() -> None:
    assert frame_head(BINARY, 125) == b"\x82\x7d"
    assert frame_head(BINARY, 126) == b"\x82\x7e\x00\x7e"
    assert frame_head(BINARY, 65535, MASK) == b"\x82\xfe\xff\xff" + MASK
    assert frame_head(BINARY, 65536) == b"\x82\x7f" + (65536).to_bytes(8, "big")


@given(
    st.lists(st.binary(max_size=300), max_size=6),
    st.integers(1, 40),
    st.booleans(),
    st.binary(min_size=4, max_size=4),
)
def test_messages_are_the_same_however_their_bytes_are_split(
    messages: list[bytes], piece_bytes: int, is_masked: bool, mask: bytes
) -> None:
    data = b"".join(frame(one, mask=mask if is_masked else b"") for one in messages)
    assert read(data, piece_bytes=piece_bytes, is_masked=is_masked) == messages


@pytest.mark.parametrize("piece_bytes", [0, 1, 3])
def test_fragments_make_one_message_even_with_control_frames_between_them(piece_bytes: int) -> None:
    data = (
        frame(b"one", final=False)
        + frame(b"!", PING)
        + frame(b"", CONTINUATION, final=False)
        + frame(b"two", CONTINUATION, final=False)
        + frame(b"?", PONG)
        + frame(b"three", CONTINUATION)
        + frame(b"whole")
    )
    expected = [(PING, b"!"), (PONG, b"?"), b"onetwothree", b"whole"]
    assert read(data, piece_bytes=piece_bytes) == expected


def test_messages_before_a_broken_frame_are_delivered_first() -> None:
    reading = Reading()
    with pytest.raises(FrameFault):
        reading.take(frame(b"good") + b"\xff\x00")
    assert reading.events == [b"good"]


# --- faults ------------------------------------------------------------------------------


@pytest.mark.parametrize("reserved", [0x10, 0x20, 0x40, 0x70])
def test_reserved_bits_are_refused(reserved: int) -> None:
    data = bytearray(frame(b"hello"))
    data[0] |= reserved
    assert fault_of(bytes(data)).code == 1002


@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
def test_unknown_opcodes_are_refused(opcode: int) -> None:
    assert fault_of(frame(b"", opcode)).code == 1002


@pytest.mark.parametrize(("is_masked", "mask"), [(True, b""), (False, MASK)])
def test_frames_of_clients_must_be_masked_and_those_of_servers_not(
    is_masked: bool, mask: bytes
) -> None:
    assert fault_of(frame(b"hello", mask=mask), is_masked=is_masked).code == 1002


@pytest.mark.parametrize("opcode", [CLOSE, PING, PONG])
def test_long_and_fragmented_control_frames_are_refused(opcode: int) -> None:
    assert read(frame(bytes(125), opcode)) == [(opcode, bytes(125))]
    assert fault_of(frame(bytes(126), opcode)).code == 1002
    assert fault_of(frame(b"", opcode, final=False)).code == 1002


def test_a_continuation_frame_without_a_message_is_refused() -> None:
    assert fault_of(frame(b"", CONTINUATION)).code == 1002
    assert fault_of(frame(b"whole") + frame(b"", CONTINUATION)).code == 1002


def test_a_message_within_another_is_refused() -> None:
    assert fault_of(frame(b"one", final=False) + frame(b"two")).code == 1002


@pytest.mark.parametrize("final", [True, False])
def test_text_frames_are_refused_as_unsupported_data(final: bool) -> None:
    assert fault_of(frame(b"text", TEXT, final=final)).code == 1003


@pytest.mark.parametrize(
    "head",
    [
        b"\x82\x7e\x00\x7d",
        b"\x82\x7f" + (65535).to_bytes(8, "big"),
        b"\x82\x7f" + (1 << 63).to_bytes(8, "big"),
    ],
)
def test_a_length_that_is_not_the_shortest_or_too_long_for_the_format_is_refused(
    head: bytes,
) -> None:
    assert fault_of(head).code == 1002


def test_a_too_large_message_is_refused_by_the_header_of_its_frame() -> None:
    assert fault_of(frame_head(BINARY, 101), bytes_max=100).code == 1009
    begun = frame(bytes(60), final=False)
    assert fault_of(begun + frame_head(CONTINUATION, 41), bytes_max=100).code == 1009
    reading = Reading(bytes_max=100)
    reading.take(begun + frame(bytes(40), CONTINUATION))
    assert reading.events == [bytes(100)]


# --- closing -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 4999])
def test_valid_close_codes_are_accepted(code: int) -> None:
    assert parse_close(close_payload(code, "why ü")) == (code, "why ü")


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1100, 2999, 5000, 65535])
def test_invalid_close_codes_are_refused(code: int) -> None:
    with pytest.raises(FrameFault) as caught:
        parse_close(code.to_bytes(2, "big"))
    assert caught.value.code == 1002


def test_a_close_frame_may_have_no_code_but_not_half_of_one() -> None:
    assert parse_close(b"") == (NO_CODE, "")
    with pytest.raises(FrameFault, match="half a code"):
        parse_close(b"\x03")


def test_a_reason_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(FrameFault) as caught:
        parse_close(b"\x03\xe8\xce\xba\xed\xa0\x80")
    assert caught.value.code == 1007


def test_a_long_reason_is_cut_between_characters() -> None:
    payload = close_payload(1000, "é" * 100)
    assert len(payload) <= 125
    assert parse_close(payload) == (1000, "é" * 61)


# --- masks -------------------------------------------------------------------------------


@given(st.binary(max_size=5000), st.binary(min_size=4, max_size=4))
def test_the_quick_and_the_slow_masking_give_the_same_bytes(data: bytes, mask: bytes) -> None:
    masked = apply_mask(data, mask)
    assert masked == apply_mask_slowly(data, mask)
    assert apply_mask(memoryview(bytearray(masked)), mask) == data
    assert apply_mask_slowly(masked, mask) == data


# --- frames without a message ------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        frame(b"", PING) * 1000,
        frame(b"", final=False) + frame(b"", CONTINUATION, final=False) * 999,
        frame(b"x", final=False) + frame(b"x", CONTINUATION, final=False) * 999,
    ],
    ids=["pings", "empty fragments", "tiny fragments"],
)
def test_the_frame_reader_pauses_after_some_frames_without_a_message(data: bytes) -> None:
    reading = Reading()
    reading.reader.feed(data)
    calls, left = 0, reading.reader.unread_bytes
    while True:
        assert reading.reader.next(BYTES_MAX) is None
        calls += 1
        if not reading.reader.is_paused:
            break
        assert reading.reader.unread_bytes < left
        left = reading.reader.unread_bytes
    assert calls >= 1000 / 20
    assert reading.reader.useless_count == 1000


def test_large_fragments_are_not_useless_frames() -> None:
    reading = Reading()
    reading.take(frame(bytes(64), final=False) + frame(bytes(64), CONTINUATION))
    assert reading.reader.useless_count == 0
