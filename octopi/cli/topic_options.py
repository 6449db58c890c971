"""The options of topics on the command line, for `topics create` and `topics alter`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from octopi.cli.byte_size import ByteSize
from octopi.cli.duration import Duration

if TYPE_CHECKING:
    _AnyType = click.ParamType[Any]
else:  # older versions of click don't have generic types
    _AnyType = click.ParamType

_DEFAULT: Final = "default"
_BYTES_MAX: Final = 2**63 - 1
_SECONDS_MAX: Final = 100 * 365 * 24 * 3600.0
_F = TypeVar("_F", bound=Callable[..., Any])


class _OrDefault(_AnyType):
    """A value of another type, or ``default`` (None)."""

    def __init__(self, other: _AnyType, usual: str) -> None:
        self._other = other
        self.name = f"{usual}|{_DEFAULT}"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        return value if value == _DEFAULT else self._other.convert(value, param, ctx)


def topic_options(*, alters: bool) -> Callable[[_F], _F]:
    """The options of a topic.  *alters*: what is not given stays as it is, and ``default`` gives an
    option the value that brokers use for a topic that doesn't have it."""
    span: _AnyType = Duration(0.001, _SECONDS_MAX)
    size: _AnyType = ByteSize(1, _BYTES_MAX)
    if alters:
        span, size = _OrDefault(span, "TIME"), _OrDefault(size, "SIZE")
    time_name, size_name = ("TIME|default", "SIZE|default") if alters else ("TIME", "SIZE")
    options = (
        click.option(
            "--retention",
            type=span,
            metavar=time_name,
            help="Remove messages older than this, such as 7d or 12h.",
        ),
        click.option(
            "--retention-size",
            type=size,
            metavar=size_name,
            help="Remove the oldest messages of a partition beyond this size, such as 10GB.",
        ),
        click.option(
            "--segment-size",
            type=size,
            metavar=size_name,
            help="Begin a new segment file beyond this size.",
        ),
        click.option(
            "--flush-before-ack/--no-flush-before-ack",
            default=None,
            help="Acknowledge messages only after they are flushed to the disk.",
        ),
        click.option(
            "--min-insync",
            type=click.IntRange(min=1),
            default=None if alters else 1,
            show_default=not alters,
            help="Acknowledge messages only while this many replicas are in sync, leader included.",
        ),
        click.option(
            "--hold",
            type=span,
            metavar=time_name,
            help="Keep messages for subscriptions so much longer than --retention.",
        ),
        click.option(
            "--hold-size",
            type=size,
            metavar=size_name,
            help="Keep so much more of a partition for subscriptions.",
        ),
    )

    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def given_options(
    retention: float | str | None,
    retention_size: int | str | None,
    segment_size: int | str | None,
    flush_before_ack: bool | None,
    min_insync: int | None,
    hold: float | str | None,
    hold_size: int | str | None,
) -> dict[str, Any]:
    """The options that were given, as arguments of `octopi.Client.create_topic` and of
    `octopi.Client.alter_topic`."""
    given = {
        "retention": _time(retention),
        "retention_bytes": retention_size,
        "segment_bytes": segment_size,
        "flush_before_ack": flush_before_ack,
        "min_insync": min_insync,
        "hold": _time(hold),
        "hold_bytes": hold_size,
    }
    return {
        name: None if value == _DEFAULT else value
        for name, value in given.items()
        if value is not None
    }


def _time(seconds: float | str | None) -> timedelta | str | None:
    return timedelta(seconds=seconds) if isinstance(seconds, float) else seconds
