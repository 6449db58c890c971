"""Server-sent events: how the content of a stream is framed.

Content can't make events of its own: each of its lines is a ``data`` line, wherever a reader would
see the end of a line.
"""

from __future__ import annotations

import base64
import json
from typing import Final

from octopi.streams.content_types import is_json, is_text
from octopi.streams.json_mode import array_of

CONTENT_TYPE: Final = "text/event-stream"


def data_event(content_type: str, values: list[bytes]) -> bytes:
    """The event with the values of records; empty if they have no content."""
    content = b"".join(values)
    if not content:
        return b""
    if is_json(content_type):
        text = array_of(values).decode()
    elif is_text(content_type):
        text = content.decode(errors="replace")
    else:
        text = base64.b64encode(content).decode()
    return _event("data", text)


def control_event(next_offset: str, cursor: str, *, up_to_date: bool, closed: bool) -> bytes:
    """The event that says where the reader is now."""
    fields: dict[str, object] = {"streamNextOffset": next_offset}
    if closed:
        fields["streamClosed"] = True
    else:
        fields["streamCursor"] = cursor
    if up_to_date:
        fields["upToDate"] = True
    return _event("control", json.dumps(fields, separators=(",", ":")))


def _event(name: str, text: str) -> bytes:
    # With no object for each line: a text may have millions of them.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = f"\n{text}".replace("\n", "\ndata:")
    lines = lines.replace("\ndata: ", "\ndata:  ")  # readers drop one space behind the colon
    return f"event: {name}{lines}\n\n".encode()
