"""Hypothesis strategies for wire messages, derived from the message classes themselves."""

from __future__ import annotations

import types
import typing
from typing import Any

import attrs
from hypothesis import strategies as st

from octopi.printable import has_controls
from octopi.wire.messages import TYPE_NAMES, AtMost, MayBeMissing, MayBeNegative, NoControls

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


def optional_fields(cls: type) -> dict[str, object]:
    """Field -> default, of the fields that messages of *cls* may come without."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        field.name: field.default.factory()
        if isinstance(field.default, attrs.Factory)  # type: ignore[arg-type]
        else field.default
        for field in attrs.fields(cls)
        if MayBeMissing() in getattr(hints[field.name], "__metadata__", ())
    }


def as_written(message: object) -> dict[str, object]:
    """*message* as the map that is sent: without the optional fields that have their default."""
    fields = _as_written(message)
    assert isinstance(fields, dict)
    return {"type": TYPE_NAMES[type(message)], **fields}


def _as_written(value: Any) -> object:  # noqa: ANN401
    if isinstance(value, list):
        return [_as_written(one) for one in value]
    if not attrs.has(type(value)):
        return value
    optional = optional_fields(type(value))
    fields = {one.name: getattr(value, one.name) for one in attrs.fields(type(value))}
    return {
        name: _as_written(inner)
        for name, inner in fields.items()
        if name not in optional or inner != optional[name]
    }


def _values(hint: object) -> st.SearchStrategy[object]:
    size_max = _BULK_BYTES_MAX
    alphabet: st.SearchStrategy[str] = st.characters(codec="utf-8")
    if typing.get_origin(hint) is typing.Annotated:
        hint, *notes = typing.get_args(hint)
        if MayBeNegative() in notes:
            return st.integers(-(2**63), 2**63 - 1)
        sizes = [note.size for note in notes if isinstance(note, AtMost)]
        size_max = min([*sizes, _BULK_BYTES_MAX])
        if NoControls() in notes:
            alphabet = alphabet.filter(lambda one: not has_controls(one))
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
        return st.text(alphabet, max_size=size_max // 4)
    if hint is bytes:
        return st.binary(max_size=size_max)
    assert isinstance(hint, type)
    return instances(hint)
