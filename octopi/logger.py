"""Loggers of the library: structured events through the standard library's logging.

A program that embeds Octopi decides by `logging` what becomes of them, as with any
library, and hears nothing it didn't ask for below warnings; ``octopi-node`` renders them as
columns or JSON.  The fields of an event are in the record's ``extra``.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog


def get_logger(name: str) -> Any:  # noqa: ANN401  # structlog's bound loggers are dynamic
    """The logger *name*: call it as ``log.info("what_happened", field=value)``."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.render_to_log_kwargs,
        ],
        cache_logger_on_first_use=True,
    )
