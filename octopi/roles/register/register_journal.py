"""The register's journal: the form of its entries, and the steps that are traced of it."""

from __future__ import annotations

from typing import Final

from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.cbor2 import make_converter
from cattrs.strategies import configure_tagged_union

from octopi.coordination.journal_entries import BrokerRegistered, Entry
from octopi.environment import Environment, Trace
from octopi.identifiers import Offset
from octopi.limits import BATCH_BYTES_MAX, JOURNAL_SNAPSHOT_ENTRIES
from octopi.model import PartitionRecord, RegisterGeneration, RelaySetRecord, TopicRecord
from octopi.storage.journal import Journal, JournalFormat
from octopi.stored import partition_fields, register_fields, relay_set_fields, topic_fields
from octopi.tracing import steps

_CONVERTER: Final = make_converter(forbid_extra_keys=True)
_CONVERTER.register_unstructure_hook(TopicRecord, topic_fields)
_CONVERTER.register_unstructure_hook(PartitionRecord, partition_fields)
_CONVERTER.register_unstructure_hook(RegisterGeneration, register_fields)
_CONVERTER.register_unstructure_hook(
    BrokerRegistered,
    make_dict_unstructure_fn(BrokerRegistered, _CONVERTER, host=override(omit_if_default=True)),
)
_CONVERTER.register_unstructure_hook(RelaySetRecord, relay_set_fields)
configure_tagged_union(Entry, _CONVERTER, tag_name="entry")


def encode(entry: Entry) -> bytes:
    """The bytes of *entry*: a CBOR map."""
    data: bytes = _CONVERTER.dumps(entry, unstructure_as=Entry)
    return data


def decode(data: bytes) -> Entry:
    """The entry with these bytes.

    Raises:
      Exception: of any class, if there is none.
    """
    entry: Entry = _CONVERTER.loads(data, Entry)  # type: ignore[arg-type]
    return entry


REGISTER_ENTRIES: Final = JournalFormat(
    encode,
    decode,
    entry_bytes_max=BATCH_BYTES_MAX // 1000,
    owner="the register",
    if_unknown="put it back from a copy, or move that directory away, and the register learns from "
    "its brokers",
)


class JournalTracer:
    """Traces what the register's journal does."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def appending(self, entries: list[Entry]) -> None:
        self._trace(steps.R2Appending(entries=entries))

    def appended(self, entries: list[Entry]) -> None:
        self._trace(steps.R2Appended(entries=entries))

    def flushing(self, end: Offset) -> None:
        self._trace(steps.R3Flushing(log_end=end))

    def flushed(self, end: Offset) -> None:
        self._trace(steps.R3Flushed(log_end=end))

    def replacing(self, entries: list[Entry]) -> None:
        self._trace(steps.R4Snapshot(entries=entries))

    def switched(self) -> None:
        self._trace(steps.R4Switched())

    def replaced(self) -> None:
        self._trace(steps.R4Replaced())


async def open_register_journal(
    environment: Environment,
    directory: str,
    *,
    snapshot_entries: int = JOURNAL_SNAPSHOT_ENTRIES,
) -> tuple[Journal[Entry], list[Entry]]:
    """Open or begin the register's journal in *directory*, which exists: see `Journal.open`."""
    trace = environment.trace
    return await Journal.open(
        environment,
        directory,
        REGISTER_ENTRIES,
        snapshot_entries=snapshot_entries,
        observer=JournalTracer(trace) if trace is not None else None,
    )
