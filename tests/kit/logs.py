"""The log lines of the library, as a list of events."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({})))


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            fields["exc_info"] = True
        level = record.levelname.lower()
        self.events.append({"event": record.getMessage(), "log_level": level, **fields})


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Every event of the library from here to the end of the block, oldest first."""
    logger, collector = logging.getLogger("octopi"), _Collector()
    level = logger.level
    logger.addHandler(collector)
    logger.setLevel(logging.DEBUG)
    try:
        yield collector.events
    finally:
        logger.removeHandler(collector)
        logger.setLevel(level)
