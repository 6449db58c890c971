"""What is written in requests for streams: paths, offsets, JSON, headers; and their events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, unquote

from hypothesis import strategies as st

from octopi.identifiers import TopicId, topic_name_fault
from octopi.limits import RECORDS_PER_PRODUCE_MAX, WALL_MS_MAX
from octopi.model import StreamDefinition
from octopi.streams import json_mode, offsets, paths, sse
from octopi.streams.cursors import cursor
from octopi.streams.definitions import definition_of, expiry_headers
from octopi.streams.forks import ForkOrder, order_of
from octopi.streams.problems import StreamProblem
from octopi.streams.writing import MARK, noted, write_of
from octopi.wire.codec import fault_in
from tests.fuzz.target import Target

_LINE: Final = re.compile(r"\r\n|\r|\n")


def check(data: bytes) -> bool:
    text = data.decode("latin-1")
    _check_event(data)
    _check_cursor(text)
    noted({MARK: data})
    return any([
        _check_json(data), _check_path(text), _check_offset(text), _check_fork(text),
        _check_headers(text),
    ])  # fmt: skip


def _refused(step: Callable[[], object]) -> StreamProblem | None:
    found = None
    try:
        step()
    except StreamProblem as problem:
        found = problem
    assert found is None or found.http in {400, 413}
    assert found is None or len(str(found)) < 900, "the reason repeats much of what came"
    return found


def _check_json(data: bytes) -> bool:
    def refuse(_: str) -> Any:  # noqa: ANN401
        raise ValueError

    try:
        text = data.decode()
        meant = json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        assert _refused(lambda: json_mode.values_of(data)), "it is no JSON"
        return False
    elements = meant if isinstance(meant, list) else [meant]
    if len(elements) > RECORDS_PER_PRODUCE_MAX:
        return False
    values = json_mode.values_of(data)
    again = json.loads(json_mode.array_of(values), parse_int=str, parse_float=str)
    assert again == elements
    return True


def _check_path(text: str) -> bool:
    path = paths.PREFIX + text
    if _refused(lambda: paths.topic_of(path)):
        return False
    topic = paths.topic_of(path)
    assert not topic_name_fault(topic)
    assert paths.topic_of(paths.path_of(topic)) == topic, "the topic names another path"
    if "%" not in text and topic.startswith(paths.ESCAPED) and not text.startswith(paths.ESCAPED):
        assert unquote(paths.path_of(topic)) == unquote(quote(path, "/", "latin-1")), path
    return True


def _check_offset(text: str) -> bool:
    if _refused(lambda: offsets.place_of(text)):
        return False
    found = offsets.place_of(text)
    assert 0 <= found.place.offset < 1 << 63
    if found.topic_id is not None:
        assert offsets.offset_text(found.topic_id, *_parts(found)) == text
    return True


def _parts(found: offsets.StreamPlace) -> tuple[Any, Any]:
    return found.place.offset, found.place.anchor


def _check_fork(text: str) -> bool:
    if _refused(lambda: ForkOrder.parse(text)):
        return False
    order = ForkOrder.parse(text)
    assert not topic_name_fault(order.source), "it may be an internal log"
    assert ForkOrder.parse(order.text) == order
    return True


def _check_headers(text: str) -> bool:
    """The lines are the values of headers, the same in each order of them."""
    values = text.split("\n")
    is_any_taken = False
    for names in (
        ("content-type",), ("stream-ttl",), ("stream-expires-at",),
        ("content-type", "stream-ttl", "stream-expires-at"),
    ):  # fmt: skip
        headers = dict(zip(names, values, strict=False))
        if not _refused(lambda: definition_of(headers)):  # noqa: B023
            _check_definition(definition_of(headers))
            is_any_taken = True
    headers = dict(
        zip(("producer-id", "producer-epoch", "producer-seq", "stream-seq"), values, strict=False)
    )
    _refused(lambda: write_of(headers, [b""]))
    headers = dict(
        zip(
            ("stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset"),
            values,
            strict=False,
        )
    )
    if not _refused(lambda: order_of(headers)):
        order = order_of(headers)
        assert order is not None
        assert ForkOrder.parse(order.text) == order
    return is_any_taken


def _check_definition(stream: StreamDefinition) -> None:
    assert not fault_in(stream)
    assert stream.expires_at_ms is None or stream.expires_at_ms <= WALL_MS_MAX
    for name, value in expiry_headers(stream):
        again = definition_of({name: value})
        assert (again.ttl_s, again.expires_at_ms) == (stream.ttl_s, stream.expires_at_ms)


def _check_event(data: bytes) -> None:
    """That a reader reads one event, with the same content."""
    event = sse.data_event("text/plain", [data]).decode()
    if not data:
        assert not event
        return
    assert "\r" not in event
    head, *lines, last, end = event.split("\n")
    assert (head, last, end) == ("event: data", "", "")
    assert all(line.startswith("data:") for line in lines)
    read = [line.removeprefix("data:") for line in lines]
    read = [line[1:] if line.startswith(" ") else line for line in read]
    assert read == _LINE.split(data.decode(errors="replace"))


def _check_cursor(text: str) -> None:
    now_ms = 1_800_000_000_000
    shown = cursor(now_ms, text, 7)
    assert int(shown) >= int(cursor(now_ms, "", 0))
    if shown != cursor(now_ms, "", 0):
        assert int(shown) > int(text)


_ID: Final = TopicId("5f0c2a1b5f0c2a1b")
_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
).map(lambda value: json.dumps(value).encode())  # fmt: skip

TARGET = Target(
    "streams",
    "any text is refused as documented, or is a path, an offset, a fork, headers or JSON that is "
    "written in the same way again; any content is one event with that content",
    st.one_of(
        _VALUES,
        st.text(max_size=12).map(lambda text: quote(text, safe="/").encode()),
        st.integers(0, 2**63 - 1).map(lambda offset: f"{offset:020d}~{_ID}~7-1200.6-800".encode()),
        st.sampled_from(
            [
                b"orders - 0", b"orders -1 3", b"3600", b"text/plain; charset=utf-8",
                b"2030-01-01T00:00:00Z", b"2030-01-01T00:00:00.5+02:00", b"p\n0\n7\n1",
                b"/v1/streams/a/b\n-1\n3", b"application/json\n3600",
            ]
        ),
    ),
    check,
    (
        "octopi/streams/json_mode.py", "octopi/streams/paths.py", "octopi/streams/offsets.py",
        "octopi/streams/forks.py", "octopi/streams/definitions.py", "octopi/streams/sse.py",
        "octopi/streams/content_types.py", "octopi/streams/cursors.py",
        "octopi/streams/writing.py",
    ),
    words=(
        b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\u0000", b"\\ud800", b"NaN", b"-Infinity",
        b"1e400", b"-0", b"00", b"[[[[[[[[", b" ", b"\t", b"\n", b"\r\n", b"\r", b"\x0b", b"\x85",
        b"\xc3\xa9", b"\xff", b"\xef\xbb\xbf", b"path.", b".2f", b"%2f", b"%2e", b"%", b"/", b"//",
        b"/../", b"~subscriptions - 0", b"~", b"-1", b"now", b"0" * 20, b"9" * 20,
        b"5f0c2a1b5f0c2a1b", b"7-0", b"T", b"Z", b"+23:59", b"-23:59", b"9999-12-31T23:59:59",
        b"0001-01-01T00:00:00", b".999999999", b";", b"application/x-www-form-urlencoded",
        b"9" * 400, b'{"producer":"p","epoch":0,"seq":1}', b"\xe2\x80\xa8",
    ),
)  # fmt: skip
