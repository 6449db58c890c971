"""The fuzzer finds what is wrong: faults that are planted in decoders, and in properties."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest
from hypothesis import strategies as st

from octopi.transport import frame_reader, http_requests
from octopi.wire import cbor, codec as wire_codec
from octopi.wire.codec import encode
from octopi.wire.messages import Heartbeat
from tests.fuzz import codec, frames, heads, planted, search as searching
from tests.fuzz.search import Finding, Search, TookTooLongError
from tests.fuzz.target import Target
from tests.transport.test_hostile_peers import UPGRADE

HEARTBEAT = encode(Heartbeat())


def found_within(
    target: Target, inputs: int, seed: int = 1, corpus: Sequence[bytes] = ()
) -> Finding | None:
    """What a search finds with so many inputs."""
    left = itertools.count(inputs, -1)
    return Search(target, corpus, seed).run(lambda: next(left) > 0)


def planted_target(check: Callable[[bytes], bool]) -> Target:
    return Target(
        "planted", "", st.just(b"octopi:3:abc"), check, ("tests/fuzz/planted.py",), words=(b"::",)
    )


def test_a_fault_behind_several_checks_is_found_and_its_input_is_short() -> None:
    found = found_within(planted_target(planted.check_nested), 60_000)
    assert found is not None
    assert isinstance(found.error, IndexError)
    assert planted.check_nested(found.data[:-1])
    assert len(found.data) <= 12


def test_without_a_fault_nothing_is_found() -> None:
    target = planted_target(planted.check_sound)
    search = Search(target, [], 1)
    left = itertools.count(2000, -1)
    assert search.run(lambda: next(left) > 0) is None
    assert search.counts.inputs > 1900
    assert 0 < search.counts.passed < search.counts.inputs
    assert search.counts.ways > 3


def test_the_same_seed_tries_the_same_inputs_and_another_seed_tries_others() -> None:
    inputs: list[list[bytes]] = []
    for seed in (1, 1, 2):
        tried: list[bytes] = []

        def check(data: bytes, tried: list[bytes] = tried) -> bool:
            tried.append(data)
            return planted.check_sound(data)

        found_within(planted_target(check), 500, seed)
        inputs.append(tried)
    assert inputs[0] == inputs[1] != inputs[2]


def test_an_input_that_takes_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "INPUT_CPU_S", 0.05)
    found = found_within(planted_target(planted.check_endless), 5000)
    assert found is not None
    assert isinstance(found.error, TookTooLongError)
    assert found.data == b":::::"


def test_inputs_of_the_corpus_are_tried_first() -> None:
    def check(data: bytes) -> bool:
        raise ValueError(data.decode())

    found = Search(planted_target(check), [b"known"], 1).run(lambda: True)
    assert found is not None
    assert found.data == b""


def test_a_decoder_that_lets_an_empty_map_be_a_message_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As ours did."""
    real = cbor.container

    def container(data: bytes, at: int, expected: int) -> tuple[int, int]:
        count, behind = real(data, at, expected)
        return (1, behind) if not (count or at) else (count, behind)

    monkeypatch.setattr(wire_codec, "container", container)
    found = found_within(codec.TARGET, 5000, corpus=[HEARTBEAT])
    assert found is not None
    assert found.data.startswith(b"\xa0")


def test_a_request_head_that_the_websocket_library_cannot_read_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it could not."""
    monkeypatch.setattr(http_requests, "_check_upgrade", lambda headers: None)
    upgrades = attrs.evolve(heads.TARGET, valid=st.just(UPGRADE), words=(b"\xff",))
    found = found_within(upgrades, 2000)
    assert found is not None
    assert isinstance(found.error, UnicodeError)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_RESERVED", 0x30),
        ("_KNOWN", frozenset(range(16))),
        ("_CODES", frozenset(range(65536))),
        ("CONTROL_BYTES_MAX", 400),
        ("_LENGTH_IN_2", 127),
    ],
)
def test_a_reader_of_frames_that_is_not_strict_is_found(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_reader, name, value)
    assert found_within(frames.TARGET, 3000) is not None


def test_a_reader_whose_result_depends_on_how_the_bytes_are_cut_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = frame_reader.FrameReader.feed

    def feed(self: frame_reader.FrameReader, data: bytes) -> None:
        real(self, data if len(data) > 1 or self._is_in_frame else data.replace(b"\x89", b"\x8a"))

    monkeypatch.setattr(frame_reader.FrameReader, "feed", feed)
    found = found_within(frames.TARGET, 3000)
    assert found is not None
    assert "how the bytes are cut" in str(found.error)


def test_inputs_that_take_a_new_way_are_kept_the_shortest_first() -> None:
    target = planted_target(planted.check_nested)
    search = Search(target, [b"octopi:1:a"], 1)
    assert search.worth_keeping([b"octopi:2:bc", b"x", b"yy", b"octopi"]) == [b"x", b"octopi"]


def test_only_ways_through_the_files_of_the_target_are_followed() -> None:
    target = attrs.evolve(planted_target(planted.check_sound), files=("tests/fuzz/codec.py",))
    search = Search(target, [], 1)
    left = itertools.count(100, -1)
    search.run(lambda: next(left) > 0)
    assert search.counts.ways == 0
    assert Path(planted.__file__).name == "planted.py"
