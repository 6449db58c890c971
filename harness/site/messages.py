"""The reference of the wire: each message with its fields, and the table of statuses, as they are
declared."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from typing import Final

import attrs

from octopi.errors import STATUS_MEANINGS
from octopi.wire import messages as m

_PLANES: Final = {
    m.Plane.CLIENT: "Between clients and nodes",
    m.Plane.MEMBERSHIP: "Between brokers and the register",
    m.Plane.FOLLOW: "Between followers and leaders",
    m.Plane.PEER: "Between a broker and the register, for clients",
    m.Plane.REGISTERS: "Between the registers of one cluster",
    m.Plane.RING: "Between brokers without a register",
    m.Plane.RELAY: "Between relays",
}
_CONNECTION: Final = "On every connection"
_PLAIN: Final = {int: "integer", str: "text", bytes: "bytes", bool: "boolean"}


def messages_page() -> str:
    """A page with every message and every structure in messages."""
    by_plane: dict[str, list[str]] = {name: [] for name in (_CONNECTION, *_PLANES.values())}
    inner: set[type] = set()
    for cls, declared in sorted(m.DECLARATIONS.items(), key=lambda one: one[1].name):
        planes = {_PLANES[route.plane] for route in declared.routes} or {_CONNECTION}
        heading = f"### {declared.name}"
        facts = f"*{declared.kind.value}*"
        if declared.routes:
            facts += ", handled by: " + ", ".join(sorted({one.to.value for one in declared.routes}))
        where = _CONNECTION if len(planes) > 1 else planes.pop()
        by_plane[where].append("\n\n".join([heading, facts, *_described(cls, inner)]))
    parts = [
        "# Messages",
        "The messages of the protocol with their fields, as the code declares them. "
        "[The protocol](../docs/protocol.md) says who sends them when, and which permission each "
        "needs. Integers are not negative unless it is said; a field that may be missing comes "
        "behind all others.",
    ]
    for title, texts in by_plane.items():
        if texts:
            parts += [f"## {title}", *texts]
    parts.append("## Structures in messages")
    written: set[type] = set()
    while left := inner - written:
        for cls in sorted(left, key=lambda one: one.__name__):
            written.add(cls)
            parts += [f"### {cls.__name__}", *_described(cls, inner)]
    return "\n\n".join(parts) + "\n"


def statuses_page() -> str:
    """A page with the table of statuses."""
    lines = [
        "# Statuses",
        "",
        "Why a node refused a request. [The protocol](../docs/protocol.md#statuses) says more.",
        "",
        "| number | name | HTTP | retry | caused by | what to do |",
        "|---|---|---|---|---|---|",
    ]
    for status, meaning in STATUS_MEANINGS.items():
        lines.append(
            f"| {status.value} | `{status.name.lower()}` | {meaning.http} "
            f"| {'yes' if meaning.retryable else 'no'} | {meaning.fault.value} "
            f"| {meaning.next.replace('|', '&#124;')} |"
        )
    return "\n".join(lines) + "\n"


def _described(cls: type, inner: set[type]) -> list[str]:
    """The docstring and the fields of a message or structure; the structures in it are added to
    *inner*."""
    hints = typing.get_type_hints(cls, include_extras=True)
    meanings = _meanings(cls)
    parts = [_prose(inspect.getdoc(cls) or "")]
    rows = [
        f"| `{field.name}` | {_kind(hints[field.name], inner)} | {meanings.get(field.name, '')} |"
        for field in attrs.fields(cls)
    ]
    if rows:
        parts.append("\n".join(["| field | type | meaning |", "|---|---|---|", *rows]))
    return parts


def _meanings(cls: type) -> dict[str, str]:
    """What the strings behind the fields of *cls* say of them."""
    [node] = ast.parse(inspect.getsource(cls)).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for one, behind in zip(node.body, node.body[1:], strict=False):
        match one, behind:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = _prose(text).replace("\n", " ").replace("|", "&#124;")
    return found


def _prose(text: str) -> str:
    """A docstring as Markdown."""
    return " ".join(inspect.cleandoc(text).replace("``", "`").split(" "))


def _kind(hint: object, inner: set[type]) -> str:
    """The type and the bounds of a field, in words."""
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        words = [word for one in arguments[1:] if (word := _bound(one, arguments[0]))]
        return ", ".join([_kind(arguments[0], inner), *words])
    if origin in (types.UnionType, typing.Union):
        return " or ".join("null" if one is type(None) else _kind(one, inner) for one in arguments)
    if origin is not None:
        return f"list of {_kind(arguments[0], inner)}"
    supertype = getattr(hint, "__supertype__", None)
    if supertype is not None:
        return f"{_kind(supertype, inner)} ({getattr(hint, '__name__', '')})"
    assert isinstance(hint, type)
    if attrs.has(hint):
        inner.add(hint)
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return _PLAIN.get(hint, hint.__name__)


def _bound(mark: object, bounded: object) -> str:
    """What an annotation says of its field; empty: nothing that can be said in short."""
    match mark:
        case m.AtMost(size):
            is_list = typing.get_origin(bounded) is not None
            return f"at most {size:,} {'entries' if is_list else 'bytes'}"
        case m.Within(low, high):
            return f"{low:,} to {high:,}"
        case m.MayBeNegative():
            return "may be negative"
        case m.MayBeMissing():
            return "may be missing"
    return ""
