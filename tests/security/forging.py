"""Messages that look like those of a node, with what an attacker would put into them.

Field by field a value is drawn that is plausible in the cluster at hand, or at the end of what its
type can hold, or illegal.  Nothing is checked before it is sent, so codecs see the illegal ones.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Iterator
from random import Random
from typing import Any

import attrs
import cbor2

from octopi.record import NO_REQUEST, encode_opaque
from octopi.wire import messages as m
from tests.strategies import as_written

NUMBERS = [0, 1, 2, 3, 23, 255, 9_999, 10_000, 10**6, 10**9, (1 << 39) - 1, (1 << 40) - 1]
NUMBERS += [
    1 << 40,
    1 << 53,
    1 << 60,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
    -1,
    -(1 << 63),
]
TEXTS = [
    "",
    "a",
    "..",
    "../../x",
    "a\0b",
    "a/b",
    "\x1b[2J",
    "\u202e",
    "x" * 201,
    "0" * 16,
    "f" * 16,
]
BULK = [
    b"",
    b"\0",
    b"\xff" * 40,
    encode_opaque(NO_REQUEST, b"forged"),
    encode_opaque(b"r" * 32, b""),
]


@attrs.define
class Known:
    """What the attacker knows of the cluster, as everybody may ask it."""

    plausible: dict[str, list[object]]
    """By the name of a field."""


def known(cluster: m.ClusterDescription, topic: m.TopicInfo) -> Known:
    """What there is to know."""
    (partition,) = topic.partitions
    brokers = [one.broker for one in cluster.brokers]
    lives = sorted({one.incarnation for one in cluster.brokers})
    epochs: list[object] = [partition.epoch, partition.epoch + 1, partition.epoch + 2]
    return Known(
        {
            "cluster": [cluster.cluster, ""],
            "topic": [topic.topic, "other"],
            "topic_id": [topic.topic_id, "ab" * 8],
            "partition": [0, 1],
            "partitions": [[0], [0, 1]],
            "epoch": epochs,
            "promised": epochs,
            "log_epoch": epochs,
            "last_epoch": epochs,
            "records_epoch": epochs,
            "recovered_epoch": [0, *epochs],
            "version": [0, 1, 2],
            "leader": [*brokers, 7],
            "broker": [*brokers, 7],
            "leader_incarnation": [*lives, 2],
            "joiner_incarnation": [*lives, 2],
            "incarnation": [*lives, 2],
            "attempt": [1, 2, 1000],
            "generation": [1, 2, 3],
            "nonce": ["n", "ab" * 8],
            "address": ["ws://nowhere:1", "ws://register:7000", "ws://broker-1:7000"],
            "replicas": [brokers, brokers[:2], [7]],
            "in_sync": [brokers, brokers[:1], [7]],
            "lost": [[], brokers[:1]],
            "brokers": [[], brokers],
            "request": [1, 2, 3, 4, 5],
            "offset": [0, 10, 100],
            "log_end": [0, 10, 100],
            "end": [0, 10, 100],
            "keep": [0, 10, 100],
            "begin": [0, 10, 100],
            "start": [0, 10, 100],
            "highwater": [0, 10, 100],
        }
    )


class Forge:
    """Makes messages."""

    def __init__(self, randomness: Random, facts: Known) -> None:
        self._randomness = randomness
        self._known = facts

    def message(self, classes: list[type]) -> bytes:
        """Any message of *classes*; one in four has some bytes changed."""
        data = encoded(self.part(self._randomness.choice(classes)))
        return spoilt(data, self._randomness) if self._randomness.random() < 0.25 else data

    def part(self, cls: type) -> Any:  # noqa: ANN401
        """An instance of *cls*, with anything in its fields."""
        hints = typing.get_type_hints(cls, include_extras=True)
        drawn = {
            one.name: self._value(one.name, hints[one.name])
            for one in attrs.fields(cls)
            if one.default is attrs.NOTHING or self._randomness.random() < 0.5
        }
        return cls(**drawn)

    def _value(self, name: str, hint: object) -> object:
        randomness = self._randomness
        hint = _plain(hint)
        origin = typing.get_origin(hint)
        if origin in (typing.Union, types.UnionType):
            inner, _ = typing.get_args(hint)
            return None if randomness.random() < 0.3 else self._value(name, inner)
        plausible = self._known.plausible.get(name, [])
        fitting = [one for one in plausible if _fits(one, hint)]
        if fitting and randomness.random() < 0.8:
            return randomness.choice(fitting)
        if origin is list:
            (entry,) = typing.get_args(hint)
            return [self._value(name, entry) for _ in range(randomness.choice((0, 1, 1, 2, 5)))]
        if hint is bool:
            return randomness.random() < 0.5
        if hint is int:
            return randomness.choice(NUMBERS)
        if hint is str:
            return randomness.choice(TEXTS)
        if hint is bytes:
            return randomness.choice(BULK)
        assert isinstance(hint, type)
        return self.part(hint)


def spoilt(data: bytes, randomness: Random) -> bytes:
    """*data* with some bytes changed, left out, put in or repeated."""
    changed = bytearray(data)
    for _ in range(randomness.randint(1, 3)):
        at = randomness.randrange(len(changed) + 1)
        match randomness.randrange(4):
            case 0:
                changed[at : at + 1] = randomness.randbytes(1)
            case 1:
                del changed[at : at + randomness.randint(1, 4)]
            case 2:
                changed[at:at] = randomness.randbytes(randomness.randint(1, 4))
            case _:
                changed[at:at] = changed[at // 2 : at]
    return bytes(changed)


def _plain(hint: object) -> object:
    """*hint* without its bounds, and the type that a `NewType` is made of."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return getattr(hint, "__supertype__", hint)


def _fits(value: object, hint: object) -> bool:
    if typing.get_origin(hint) is list:
        return isinstance(value, list) and not attrs.has(_inner(hint))
    return type(value) is hint


def _inner(hint: object) -> type:
    (entry,) = typing.get_args(hint)
    inner = _plain(entry)
    assert isinstance(inner, type)
    return inner


def encoded(message: object) -> bytes:
    """*message* on the wire, whatever its fields hold."""
    return cbor2.dumps(as_written(message))


def one_by_one(message: Any, spares: Collection[str] = ()) -> Iterator[Any]:  # noqa: ANN401
    """*message* with each of its fields but *spares*, and of its parts, a little different and at
    each end of what its type holds."""
    hints = typing.get_type_hints(type(message), include_extras=True)
    for field in attrs.fields(type(message)):
        if field.name in spares:
            continue
        for value in _extremes(getattr(message, field.name), hints[field.name]):
            yield attrs.evolve(message, **{field.name: value})


def _extremes(value: Any, hint: object) -> Iterator[object]:  # noqa: ANN401
    hint = _plain(hint)
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        inner, _ = typing.get_args(hint)
        yield None
        if value is not None:
            yield from _extremes(value, inner)
    elif origin is list:
        yield []
        yield [*value, *value]
        if value:
            for changed in _extremes(value[0], typing.get_args(hint)[0]):
                yield [changed, *value[1:]]
                yield [*value, changed]
    elif hint is bool:
        yield not value
    elif hint is int:
        yield from (value + 1, value - 1, 2 * value)
        yield from NUMBERS
    elif hint is str:
        yield from (value[:-1], value[:-1] + "0", value[:-1] + "1")
        yield from TEXTS
    elif hint is bytes:
        yield from (value[:-1], value[:-1] + b"?", value + value)
        yield from BULK
    else:
        yield from one_by_one(value)
