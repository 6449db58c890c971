"""Small programs, each with a bug that shows only when something fails, and the right version."""

from __future__ import annotations

from typing import Final

from tests.testing.programs import (
    acknowledged_too_soon,
    double_charge,
    forgotten_resume_position,
    lost_timer,
    lost_update,
    poison_message,
    read_then_write,
    stale_cache,
    two_members,
    zombie_writer,
)

BUGS: Final = (
    lost_update.BUG,
    double_charge.BUG,
    zombie_writer.BUG,
    poison_message.BUG,
    stale_cache.BUG,
    forgotten_resume_position.BUG,
    read_then_write.BUG,
    acknowledged_too_soon.BUG,
    two_members.BUG,
    lost_timer.BUG,
)
