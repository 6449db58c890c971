"""Whether a log can be used: it may be closed, damaged, or read-only because its disk failed."""

from __future__ import annotations

from octopi.errors import CorruptLogError, LogReadOnlyError, StorageError


class LogCondition:
    """Why the log in *directory* can't be read or written, if it can't."""

    __slots__ = ("_directory", "damage", "failure", "is_closed")

    def __init__(
        self, directory: str, damage: CorruptLogError | None, failure: LogReadOnlyError | None
    ) -> None:
        self._directory = directory
        self.damage = damage
        """Where the sound part of the log ends, if damage was found when it was opened."""
        self.failure = failure
        """What the disk failed to do; None: it has not failed."""
        self.is_closed = False

    @property
    def fault(self) -> StorageError | None:
        """Why nothing can be appended."""
        return self.damage or self.failure

    def check_open(self) -> None:
        """Raise `StorageError` if the log is closed."""
        if self.is_closed:
            raise StorageError(f"the log in {self._directory} is closed")

    def check_writable(self) -> None:
        """Raise the exception that says why nothing can be appended, if there is one."""
        self.check_open()
        if (fault := self.damage or self.failure) is not None:
            raise fault.with_traceback(None)

    def check_flushable(self) -> None:
        """Raise the exception that says why nothing can be made durable, if there is one.  A
        damaged log can be flushed."""
        self.check_open()
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def fail(self, doing: str, error: OSError) -> LogReadOnlyError:
        """Make the log read-only; return the exception to raise."""
        self.failure = LogReadOnlyError(
            f"the log in {self._directory} is read-only: {doing} failed: {error.strerror}; "
            "look at the disk, then restart the broker"
        )
        return self.failure
