"""docs/protocol.md has a row for each message, as it is declared."""

import re
from pathlib import Path

from octopi.wire import messages as m

DOCUMENT = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
RECIPIENTS = {
    m.TO_CLIENT: "client",
    m.CLIENT_TO_DECIDER: "register",
    m.MEMBER_TO_DECIDER: "register",
    m.CLIENT_TO_LEADER: "broker",
    m.DECIDER_TO_MEMBER: "broker",
    m.FOLLOWER_TO_LEADER: "leader",
    m.LEADER_TO_FOLLOWER: "follower",
    m.PEER_TO_DECIDER: "register",
    m.PEER_TO_LEADER: "broker",
    m.DECIDER_TO_PEER: "broker",
    m.REGISTER_TO_REGISTER: "register",
    m.BROKER_TO_BROKER: "broker",
    m.BROKER_TO_BROKER_BACK: "broker",
    m.RELAY_TO_RELAY: "broker",
    m.RELAY_TO_RELAY_BACK: "broker",
}


def recipients(declaration: m.Declaration) -> set[str]:
    return {RECIPIENTS[route] for route in declaration.routes}


def needs(permission: m.Permission | None) -> str:
    """What the table has in the column "needs"."""
    if permission is None:
        return "none"
    if permission.verb is None:
        return "any verb on its topic" if permission.on_its_topic else "any token"
    if permission.verb is m.Verb.CONSUME:
        also = "" if permission.also is None else f", `{permission.also.value}` on its topic"
        return f"`consume` on its subscription{also}"
    return f"`{permission.verb.value}` on " + ("its topic" if permission.on_its_topic else "`*`")


def test_each_message_has_a_row_as_it_is_declared() -> None:
    section = DOCUMENT.partition("\n## All messages\n")[2].partition("\n## ")[0]
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \| .+ \|$", section, re.MULTILINE
    )
    found = {name: (kind, set(to.split(", ")), permission) for name, kind, to, permission in rows}
    declared = {
        one.name: (one.kind.value, recipients(one), needs(one.needs))
        for one in m.DECLARATIONS.values()
        if one.kind is not m.MessageKind.CONNECTION
    }
    missing = sorted(one.name for one in m.DECLARATIONS.values() if one.name not in found)
    assert missing == [], 'docs/protocol.md, "All messages", needs a row for each of these'
    assert len(rows) == len(m.DECLARATIONS)
    assert {name: row for name, row in found.items() if name in declared} == declared


def test_messages_of_the_connection_itself_have_rows() -> None:
    """They have no routes; the table says which side sends them."""
    for declaration in m.DECLARATIONS.values():
        if declaration.kind is m.MessageKind.CONNECTION:
            assert f"\n| `{declaration.name}` | connection | " in DOCUMENT
