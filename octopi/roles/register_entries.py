"""The form of the entries of a register's journal, which a register that hands its cluster over
sends to brokers as well."""

from __future__ import annotations

from typing import Final

from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.cbor2 import make_converter
from cattrs.strategies import configure_tagged_union

from octopi.coordination.journal_entries import BrokerRegistered, Entry
from octopi.model import PartitionRecord, RegisterGeneration, RelaySetRecord, TopicRecord
from octopi.stored import partition_fields, register_fields, relay_set_fields, topic_fields

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
