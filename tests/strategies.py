"""Hypothesis strategies for wire messages, derived from the message classes themselves."""

from __future__ import annotations

import types
import typing

import attrs
from hypothesis import strategies as st

from octopi.wire.messages import TYPE_NAMES, MayBeNegative

_ENTRIES_MAX = 4
_BULK_BYTES_MAX = 300


def messages() -> st.SearchStrategy[object]:
    """Any message of the protocol."""
    return st.one_of([instances(cls) for cls in TYPE_NAMES])


def instances(cls: type) -> st.SearchStrategy[object]:
    """Instances of one attrs class: a message, or a part of one."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {field.name: _values(hints[field.name]) for field in attrs.fields(cls)}
    return st.builds(cls, **fields)


def _values(hint: object) -> st.SearchStrategy[object]:
    size_max = _BULK_BYTES_MAX
    if typing.get_origin(hint) is typing.Annotated:
        hint, note = typing.get_args(hint)
        if isinstance(note, MayBeNegative):
            return st.integers(-(2**63), 2**63 - 1)
        size_max = min(note.size, _BULK_BYTES_MAX)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_values(choice) for choice in typing.get_args(hint)])
    if origin is list:
        (entry,) = typing.get_args(hint)
        return st.lists(_values(entry), max_size=_ENTRIES_MAX)
    if hint is types.NoneType:
        return st.none()
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(0, 2**63 - 1)
    if hint is str:
        return st.text(max_size=size_max // 4)
    if hint is bytes:
        return st.binary(max_size=size_max)
    assert isinstance(hint, type)
    return instances(hint)
