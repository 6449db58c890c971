"""A history as lines of JSON, one for each event, to keep a failed run and check it again.

Each line is an object.  ``event`` is the name of the event's class in
`octopi.simulation.history.events`, and the other keys are its fields.  A log is a list of topic and
partition.  Bytes are text in Latin-1, so each character stands for the byte with its number.
Fields with their default value are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, get_args

from octopi.identifiers import PartitionId
from octopi.simulation.history.events import Event, History, HistoryError, LogName, StoredMessage


def dump(history: History) -> Iterator[str]:
    """The lines of *history*, without line ends."""
    for event in history.events:
        yield json.dumps({"event": type(event).__name__, **_fields_out(event)})


def load(lines: Iterable[str]) -> History:
    """The history in *lines*, as `dump` writes it; empty lines are skipped.

    Raises:
      HistoryError: if a line is no event; the text says which line, and why.
    """
    history = History()
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                history.note(_event_in(line))
            except (ValueError, KeyError, TypeError) as error:
                raise HistoryError(
                    f"line {number} is no event of a history ({error!r}): {line.strip()[:80]!r}"
                ) from error
    return history


def _fields_out(event: Event | StoredMessage) -> dict[str, object]:
    defaults = event._field_defaults
    return {
        name: _out(value)
        for name, value in zip(event._fields, event, strict=True)
        if name not in defaults or value != defaults[name]
    }


def _out(value: object) -> object:
    match value:
        case bytes():
            return value.decode("latin-1")
        case StoredMessage():
            return _fields_out(value)
        case Mapping():
            return {name: _out(one) for name, one in value.items()}
        case tuple():
            return [_out(one) for one in value]
        case _:
            return value


def _event_in(line: str) -> Event:
    fields = _object(json.loads(line))
    make = _EVENTS[_text(fields.pop("event"))]
    return make(**_fields_in(fields))


def _fields_in(fields: dict[str, object]) -> dict[str, object]:
    return {name: _FIELDS[name](value) for name, value in fields.items()}


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} should be an object")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} should be a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} should be text")
    return value


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} should be an integer")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} should be a number")
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} should be true or false")
    return value


def _bytes(value: object) -> bytes:
    return _text(value).encode("latin-1")


def _log(value: object) -> LogName:
    topic, partition = _list(value)
    return LogName(_text(topic), PartitionId(_integer(partition)))


_FIELDS: Final[dict[str, Callable[[object], object]]] = {
    **dict.fromkeys(("producer", "consumer", "topic", "why"), _text),
    **dict.fromkeys(("offset", "next_offset", "epoch", "highwater", "start", "end"), _integer),
    **dict.fromkeys(("at", "since"), _seconds),
    "log": _log,
    "partition": lambda value: None if value is None else _integer(value),
    "value": _bytes,
    "key": lambda value: None if value is None else _bytes(value),
    "headers": lambda value: {name: _bytes(one) for name, one in _object(value).items()},
    **dict.fromkeys(("duplicate", "forked"), _truth),
    "messages": lambda value: tuple(_message(one) for one in _list(value)),
}
"""The function that reads each field.  A name means the same in every event."""
_EVENTS: Final[dict[str, Callable[..., Event]]] = {kind.__name__: kind for kind in get_args(Event)}


def _message(value: object) -> StoredMessage:
    make: Callable[..., StoredMessage] = StoredMessage
    return make(**_fields_in(_object(value)))
