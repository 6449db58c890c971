"""The disk format of topics, partitions and the generations of a register.

Journal entries, checkpoints and state files have these maps.  The keys and their order are the
format, which golden tests check (``tests/roles/test_stored_bytes.py``).  A new field of a class of
`octopi.model` is stored only if it is added here.  It needs a default, since older files don't have
it.
"""

from __future__ import annotations

from typing import Any

from octopi.generation_record import Generation
from octopi.model import (
    PartitionRecord,
    RegisterGeneration,
    RelaySetRecord,
    StreamDefinition,
    TopicOptions,
    TopicRecord,
)


def options_fields(options: TopicOptions) -> dict[str, Any]:
    """The map that is stored for *options*."""
    fields = {
        "retention_ms": options.retention_ms,
        "retention_bytes": options.retention_bytes,
        "segment_bytes": options.segment_bytes,
        "flush_before_ack": options.flush_before_ack,
        "min_insync": options.min_insync,
        "hold_ms": options.hold_ms,
        "hold_bytes": options.hold_bytes,
    }
    bounds = {
        "buffer_bytes": options.buffer_bytes,
        "buffer_count": options.buffer_count,
        "buffer_age_ms": options.buffer_age_ms,
    }
    return fields | {name: bound for name, bound in bounds.items() if bound is not None}


def topic_fields(record: TopicRecord) -> dict[str, Any]:
    """What is stored of *record*."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "topic_id": record.topic_id,
        "partitions": list(record.partitions),
        "options": options_fields(record.options),
        "seal": record.seal,
        "replaces": list(record.replaces),
    }
    if record.stream is not None:
        fields["stream"] = stream_fields(record.stream)
    if record.version:
        fields |= {"generation": record.generation, "version": record.version}
    if record.is_relay:
        fields["kind"] = record.kind
    if record.generations:
        fields["generations"] = [generation_fields(one) for one in record.generations]
    return fields


def generation_fields(generation: Generation) -> dict[str, Any]:
    """What is stored of *generation*."""
    return {
        "number": generation.number,
        "partitions": list(generation.partitions),
        "state": generation.state,
        "sealed": list(generation.sealed),
    }


def relay_set_fields(record: RelaySetRecord) -> dict[str, Any]:
    """What is stored of *record*."""
    fields = {
        "partition": record.partition,
        "version": record.version,
        "members": list(record.members),
        "in_force": record.in_force,
        "size": record.size,
    }
    return {**fields, "pinned": True} if record.pinned else fields


def stream_fields(stream: StreamDefinition) -> dict[str, Any]:
    """What is stored of *stream*."""
    return {
        "content_type": stream.content_type,
        "ttl_s": stream.ttl_s,
        "expires_at_ms": stream.expires_at_ms,
        "forked_from": stream.forked_from,
    }


def partition_fields(record: PartitionRecord) -> dict[str, Any]:
    """What is stored of *record*."""
    return {
        "partition": record.partition,
        "epoch": record.epoch,
        "version": record.version,
        "leader": record.leader,
        "leader_incarnation": record.leader_incarnation,
        "replicas": list(record.replicas),
        "in_sync": list(record.in_sync),
        "lost": list(record.lost),
        "recovered_epoch": record.recovered_epoch,
        "seal": record.seal,
    }


def register_fields(life: RegisterGeneration) -> dict[str, Any]:
    """The map that is stored for the generation *life*."""
    return {"generation": life.generation, "nonce": life.nonce, "seal": life.seal}
