"""The memory of tasks that wait on behalf of a client."""

from __future__ import annotations

from octopi.errors import RefusedError, Status
from octopi.limits import WAITING_TASK_MEMORY_BYTES
from octopi.transport.connection import Connection


class WaitingTasks:
    """Charges the account of a client for the tasks that wait for its connection."""

    connection: Connection

    def charge_task(self, kind: str) -> None:
        """Take the memory for a waiting task; `release_task` gives it back when the task ends.

        Raises:
          RefusedError: with TOO_MANY.
        """
        account = self.connection.memory.tasks
        if not account.room(WAITING_TASK_MEMORY_BYTES, WAITING_TASK_MEMORY_BYTES):
            raise RefusedError(
                f"the broker has no memory left for more {kind} of this client (--memory-budget)",
                Status.TOO_MANY,
            )
        account.charge(kind, WAITING_TASK_MEMORY_BYTES)

    def release_task(self, kind: str) -> None:
        """Give back the memory that `charge_task` took."""
        self.connection.memory.tasks.release(kind, WAITING_TASK_MEMORY_BYTES)
