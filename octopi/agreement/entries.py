"""What an acceptor has on its device before it answers, and the bytes of it.

An entry is a CBOR map (RFC 8949).  A ballot is the list of its round, broker and incarnation; an
acceptor the list of broker and directory.  The keys and their order are the format, which golden
tests check (``tests/agreement/test_stored_entries.py``).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
import cbor2

from octopi.identifiers import BrokerId, DirectoryId, Incarnation, InstanceId
from octopi.wire.agreement import AcceptorId, AgreedValue, Ballot


@attrs.frozen
class DirectoryEntry:
    """The first entry of a journal: the directory by which its acceptors are known.  It lies beside
    the promises, so an acceptor without them has another identity."""

    directory: DirectoryId


@attrs.frozen
class PromiseEntry:
    """The acceptor promised a ballot."""

    instance: InstanceId
    ballot: Ballot


@attrs.frozen
class AcceptEntry:
    """The acceptor accepted a value in a ballot, and promised the successor of that."""

    instance: InstanceId
    ballot: Ballot
    successor: Ballot
    value: AgreedValue


@attrs.frozen
class LeftEntry:
    """The acceptor left the instance: it has forgotten the value, and never votes for its old group
    again."""

    instance: InstanceId
    ballot: Ballot
    """The ballot of the chosen value that says so."""
    successors: tuple[AcceptorId, ...]


AcceptorEntry: TypeAlias = PromiseEntry | AcceptEntry | LeftEntry
"""An entry about one instance."""


def encode_entry(entry: DirectoryEntry | AcceptorEntry) -> bytes:
    """The bytes of *entry*."""
    if isinstance(entry, DirectoryEntry):
        return cbor2.dumps({"directory": entry.directory, "entry": "directory"})
    fields: dict[str, Any] = {
        "instance": entry.instance,
        "ballot": list(attrs.astuple(entry.ballot)),
    }
    match entry:
        case PromiseEntry():
            fields["entry"] = "promise"
        case AcceptEntry(successor=successor, value=value):
            fields |= {
                "entry": "accept",
                "successor": list(attrs.astuple(successor)),
                "change": value.change,
                "acceptors": _group_fields(value.acceptors),
                "previous": _group_fields(value.previous),
                "content": value.content,
            }
        case LeftEntry(successors=successors):
            fields |= {"entry": "left", "successors": _group_fields(successors)}
    return cbor2.dumps(fields)


def decode_entry(data: bytes) -> DirectoryEntry | AcceptorEntry:
    """The entry with the bytes *data*.

    Raises:
      ValueError: if there is none.
    """
    try:
        fields = cbor2.loads(data)
    except Exception as error:  # cbor2 lets several classes through
        raise ValueError("it is no CBOR") from error
    match fields:
        case {"directory": str(directory), "entry": "directory"} if len(fields) == 2:
            return DirectoryEntry(DirectoryId(directory))
        case {"instance": int(number), "ballot": ballot, "entry": "promise"} if len(fields) == 3:
            return PromiseEntry(InstanceId(number), _ballot(ballot))
        case {
            "instance": int(number),
            "ballot": ballot,
            "entry": "accept",
            "successor": successor,
            "change": int(change),
            "acceptors": acceptors,
            "previous": previous,
            "content": bytes(content),
        } if len(fields) == 8:
            value = AgreedValue(change, _group(acceptors), _group(previous), content)
            if why := value.fault():
                raise ValueError(why)
            return AcceptEntry(InstanceId(number), _ballot(ballot), _ballot(successor), value)
        case {
            "instance": int(number),
            "ballot": ballot,
            "entry": "left",
            "successors": successors,
        } if len(fields) == 4:
            return LeftEntry(InstanceId(number), _ballot(ballot), _group(successors))
    raise ValueError("it is no entry of an acceptor")


def _group_fields(group: tuple[AcceptorId, ...]) -> list[list[object]]:
    return [[one.broker, one.directory] for one in group]


def _ballot(fields: object) -> Ballot:
    match fields:
        case [int(number), int(broker), int(incarnation)]:
            return Ballot(number, BrokerId(broker), Incarnation(incarnation))
    raise ValueError(f"it has no ballot, but {fields!r}")


def _group(fields: object) -> tuple[AcceptorId, ...]:
    if not isinstance(fields, list):
        raise ValueError(f"it has no list of acceptors, but {fields!r}")
    return tuple(_acceptor(one) for one in fields)


def _acceptor(fields: object) -> AcceptorId:
    match fields:
        case [int(broker), str(directory)]:
            return AcceptorId(BrokerId(broker), DirectoryId(directory))
    raise ValueError(f"it has no acceptor, but {fields!r}")
