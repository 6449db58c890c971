"""Content types of streams: how they are compared, and what follows from them."""

from __future__ import annotations

import re
from typing import Final

from octopi.limits import CONTENT_TYPE_BYTES_MAX
from octopi.streams.problems import invalid

DEFAULT: Final = "application/octet-stream"
FORM: Final = "application/x-www-form-urlencoded"
"""What ``curl -d`` says of any data.  So it says nothing about a stream's content."""

_TYPE: Final = re.compile(r"[!#$&^_.+\w-]{1,127}/[!#$&^_.+\w-]{1,127}(\s*;[\x20-\x7e]*)?", re.ASCII)


def checked(text: str) -> str:
    """*text*, a ``Content-Type``, or the default if it is empty or a form's.

    Raises:
      StreamProblem: if it is none.
    """
    text = text.strip()
    if not text or essence(text) == FORM:
        return DEFAULT
    if len(text) > CONTENT_TYPE_BYTES_MAX or _TYPE.fullmatch(text) is None:
        raise invalid(f"{text[:80]!r} is no content type")
    return text


def given(text: str) -> str:
    """*text*, the ``Content-Type`` of a write.

    Raises:
      StreamProblem: if it is none.
    """
    return FORM if essence(text) == FORM else checked(text)


def essence(text: str) -> str:
    """The type in *text*, in lower case, without parameters."""
    return text.partition(";")[0].strip().lower()


def matches(given: str, stream: str) -> bool:
    """Whether content of the type *given* may be written to a stream of the type *stream*."""
    return essence(given) == essence(stream) or (
        essence(given) == FORM and essence(stream) == DEFAULT
    )


def is_json(content_type: str) -> bool:
    """Whether a stream of that type keeps JSON values apart."""
    return essence(content_type) == "application/json"


def is_text(content_type: str) -> bool:
    """Whether server-sent events carry content of that type as it is, and not in base64."""
    return essence(content_type).startswith("text/") or is_json(content_type)
