"""Writes the messages of a topic to a file: the work of `export`.

A file gets its name when it is complete and on the device, so a file that is there is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from octopi import Consumer, MessageBatch
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.message_format import as_json
from octopi.cli.rate_meter import RateMeter

if TYPE_CHECKING:
    from octopi.cli.parquet_files import ParquetWriter


class MessageWriter(Protocol):
    """Writes messages to a file."""

    def write(self, batch: MessageBatch) -> tuple[int, int]:
        """Write the messages of *batch*; return their number, and their size in bytes."""

    def close(self) -> None:
        """Write the end of the file."""


class JsonLinesWriter:
    """Writes messages to the file *path*, each as a JSON object on a line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, batch: MessageBatch) -> tuple[int, int]:
        """Write the messages of *batch*; return their number, and their size in bytes."""
        return len(batch.messages()), self._file.write(b"".join(map(as_json, batch)))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def parquet_writer(path: Path) -> ParquetWriter:
    """A writer of a Parquet file.

    Raises:
      CommandError: if what that needs is not installed.
    """
    require_pyarrow()
    from octopi.cli.parquet_files import ParquetWriter

    return ParquetWriter(path)


def require_pyarrow() -> None:
    """Check that Parquet files can be read and written.

    Raises:
      CommandError: if pyarrow or numpy is not installed.
    """
    try:
        import_module("numpy")
        import_module("pyarrow.parquet")
    except ImportError:
        raise CommandError(
            "Parquet files need pyarrow and numpy: install them with "
            "`pip install 'octopi-node[parquet]'`, or use --format jsonl",
            ExitCode.USAGE,
        ) from None


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path to write at, for the block; at its end the file there becomes *path*, durably.  If the
    block fails, the file is removed."""
    beside = path.with_name(f".{path.name}.part")
    try:
        yield beside
        with beside.open("rb") as written:
            os.fsync(written.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


async def export(
    consumer: Consumer, path: Path, open_writer: Callable[[Path], MessageWriter], meter: RateMeter
) -> None:
    """Write all messages of *consumer* to the file *path*, which is replaced if it exists.

    Raises:
      OctopiError: whatever the consumer raises.
      OSError: if writing fails.
    """
    with new_file(path) as beside:
        writer = open_writer(beside)
        meter.start()
        try:
            async for batch in consumer.batches():
                count, size_bytes = await trio.to_thread.run_sync(writer.write, batch)
                meter.add(count, size_bytes)
        finally:
            writer.close()
        meter.stop()
