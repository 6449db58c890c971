"""What nodes say about themselves, on standard error.

On a terminal in columns for people, otherwise one JSON object a line.  Each line carries
the role that is bound where a node's tasks begin, so that several nodes in one process
can be told apart.
"""

from __future__ import annotations

import logging
import sys

import structlog

from octopi.cli.config import LogSettings


def set_up_log(settings: LogSettings) -> None:
    """Have everything that is logged in this process come out as *settings* say."""
    stream = sys.stderr
    console = settings.format == "console" or (settings.format == "auto" and stream.isatty())
    rendering: list[structlog.typing.Processor]
    if console:
        rendering = [
            _without_control_characters,
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    else:
        rendering = [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.ExtraAdder(),
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(
                    fmt="%H:%M:%S.%f" if console else "iso", utc=not console
                ),
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    # Other libraries speak only when something is wrong.
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    logging.getLogger("octopi").setLevel(level)


def _without_control_characters(
    logger: object, method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """What strangers wrote must not move the cursor, colour the screen or begin a line.  JSON
    needs no such care."""
    return {
        key: printable(value) if isinstance(value, str) else value for key, value in event.items()
    }


def printable(text: str) -> str:
    """*text* with what is not to be seen in it, and line ends, as escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def bind_node(**facts: object) -> None:
    """Say *facts* on every line that this task, and tasks begun in it, log from here on."""
    structlog.contextvars.bind_contextvars(**facts)
