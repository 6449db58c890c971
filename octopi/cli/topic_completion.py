"""Completes the names of topics in a shell: `octopi-node completion`.

A shell waits for the answer while a person types.  So the cluster has a short time to answer, and
nothing is said if it doesn't, or if a setting is wrong.
"""

from __future__ import annotations

from typing import Final

import click

from octopi.identifiers import is_system_topic

COMPLETION_S: Final = 1.5
"""How long the cluster may take to tell its topics."""


def complete_topics(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """The topics, as far as the token may know of them, whose names begin with *incomplete*; none
    if no cluster answers in time.  For the argument ``shell_complete`` of click."""
    import trio

    from octopi.cli.client_request import connected
    from octopi.cli.config import ClientSettings
    from octopi.cli.invocation import Invocation

    async def names() -> list[str]:
        found: list[str] = []
        with trio.move_on_after(COMPLETION_S):
            async with connected(settings) as client:
                found = [info.topic for info in await client.topics()]
        return found

    try:
        settings = (
            context.ensure_object(Invocation)
            .configuration()
            .section(ClientSettings, server=context.params.get("server"), timeout_s=COMPLETION_S)
        )
        given = context.params.get(parameter.name or "") or ()
        return [
            name
            for name in trio.run(names)
            if name.startswith(incomplete)
            and name not in given
            and (not is_system_topic(name) or incomplete.startswith("_"))
        ]
    except Exception:  # a message would disturb the line that is typed
        return []
