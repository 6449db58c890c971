"""The log of nodes, on standard error.

The log has columns on a terminal, and otherwise one JSON object per line.  Each line has the role
that is bound where a node's tasks begin, which tells apart several nodes in one process.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from octopi.cli.config import LogSettings
from octopi.printable import printable

_COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"
_EVENT_COLUMNS: Final = 30

_OF_EVERY_RECORD: Final = frozenset(
    vars(logging.makeLogRecord({})) | {"message": "", "asctime": "", "taskName": ""}
)
"""The attributes of each `logging` record; all others are fields of the event."""


def is_for_people(settings: LogSettings) -> bool:
    """Whether standard error has columns, rather than JSON."""
    return settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())


def set_up_log(settings: LogSettings) -> None:
    """Log in this process as *settings* say."""
    stream = sys.stderr
    console = is_for_people(settings)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Columns(colours=stream.isatty()) if console else _JsonLines())
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    # Log only the warnings and errors of other libraries.
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    logging.getLogger("octopi").setLevel(level)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"event": record.getMessage(), **_fields(record), "level": _level(record)}
        line["timestamp"] = datetime.fromtimestamp(record.created, UTC).isoformat()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Columns(logging.Formatter):
    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        level = _level(record)
        event = f"{printable(record.getMessage()):<{_EVENT_COLUMNS}}"
        name = f"{level:<8}"
        if self._colours:
            name = f"{_COLOURS.get(level, '')}{name}{_PLAIN}"
            event = f"{_BOLD}{event}{_PLAIN}"
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")
        fields = (f"{key}={_shown(value)}" for key, value in sorted(_fields(record).items()))
        line = " ".join([time, name, event, *fields]).rstrip()
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            line = "\n".join([line, *map(printable, trace.split("\n"))])
        return line


def _level(record: logging.LogRecord) -> str:
    return record.levelname.lower()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: one for key, one in vars(record).items() if key not in _OF_EVERY_RECORD}


def _shown(value: object) -> str:
    """*value* as one word; in quotation marks if it isn't one."""
    text = printable(str(value))
    return text if text and " " not in text else repr(text)
