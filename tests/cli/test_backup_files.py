"""The files of a backup: every cut and every changed byte is noticed."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from octopi.cli.backup_files import (
    FORMAT,
    MANIFEST,
    PIECE_BYTES,
    BackedUpLog,
    LogFile,
    Manifest,
    read_manifest,
)
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.restoring import check_files, check_starts, requests_of
from octopi.identifiers import ProducerEpoch, ProducerId, Sequence
from octopi.limits import RECORDS_PER_PRODUCE_MAX
from octopi.model import TopicOptions
from octopi.record import BatchBuilder, encode_opaque, request_id_v1, scan


def records_of(producer: int, values: list[bytes], first: int = 0) -> bytes:
    """Records of version 2."""
    builder = BatchBuilder()
    for value in values:
        builder.add(value, None, {}, 1_700_000_000_000)
    return bytes(
        builder.encode(ProducerId(bytes([producer]) * 16), ProducerEpoch(1), Sequence(first))
    )


def opaque(count: int) -> bytes:
    """Records of version 1."""
    return b"".join(encode_opaque(request_id_v1("h", 1, number), b"") for number in range(count))


LOG = records_of(1, [b"one", b"two"]) + opaque(2) + records_of(2, [b"three"])


def write(directory: Path, data: bytes, **changes: object) -> Manifest:
    """A backup of one log that has *data*; return its manifest."""
    fields = {
        "partition": 5,
        "start": 0,
        "end": len(data),
        "messages": scan(data).count,
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    log = BackedUpLog(**(fields | changes))  # type: ignore[arg-type]
    manifest = Manifest(FORMAT, "orders", "00" * 8, "2026-01-01", TopicOptions(), [log])
    (directory / log.file_name).write_bytes(data)
    (directory / MANIFEST).write_bytes(manifest.to_json())
    return manifest


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = write(tmp_path, LOG)
    assert read_manifest(tmp_path) == manifest
    check_files(manifest, tmp_path)
    check_starts(manifest)


def test_a_log_that_is_cut_anywhere_is_refused_with_what_is_sound(tmp_path: Path) -> None:
    manifest = write(tmp_path, LOG)
    whole = {0: 0}
    for position in range(1, len(LOG) + 1):
        found = scan(LOG[:position])
        if found.fault is None:
            whole[position] = found.count
    for length in range(len(LOG)):
        (tmp_path / "5.log").write_bytes(LOG[:length])
        sound = max(position for position in whole if position <= length)
        with pytest.raises(CommandError) as caught:
            check_files(manifest, tmp_path)
        assert caught.value.exit_code == ExitCode.DATA_FAULT
        assert (
            f"sound are the first {sound} of {len(LOG)} bytes, {whole[sound]} of 5 messages"
            in str(caught.value)
        )


def test_a_log_with_any_changed_byte_is_refused(tmp_path: Path) -> None:
    manifest = write(tmp_path, LOG)
    for position in range(len(LOG)):
        changed = bytearray(LOG)
        changed[position] ^= 1
        (tmp_path / "5.log").write_bytes(changed)
        with pytest.raises(CommandError, match="the backup is damaged, and nothing was restored"):
            check_files(manifest, tmp_path)


def test_sound_records_that_are_others_are_refused(tmp_path: Path) -> None:
    manifest = write(tmp_path, records_of(1, [b"one"]))
    (tmp_path / "5.log").write_bytes(records_of(1, [b"two"]))
    with pytest.raises(CommandError, match=r"its digest is another one.*sound are the first 0 of"):
        check_files(manifest, tmp_path)
    (tmp_path / "5.log").write_bytes(records_of(1, [b"one", b"two"]))
    with pytest.raises(CommandError, match="it has 120 bytes and not 60"):
        check_files(manifest, tmp_path)


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    manifest = write(tmp_path, LOG)
    (tmp_path / "5.log").unlink()
    with pytest.raises(CommandError, match=r"5\.log: No such file.*0 of 1 logs are as they were"):
        check_files(manifest, tmp_path)


def test_a_log_that_does_not_begin_at_0_is_refused_with_the_option_that_helps(
    tmp_path: Path,
) -> None:
    manifest = write(tmp_path, LOG, start=1000, end=1000 + len(LOG))
    check_files(manifest, tmp_path)
    with pytest.raises(CommandError, match=r"partition 5 begins at offset 1,000.*--new-offsets"):
        check_starts(manifest)


def test_a_directory_without_a_sound_manifest_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no complete backup: it has no backup\.json"):
        read_manifest(tmp_path)
    write(tmp_path, LOG)
    content: dict[str, Any] = json.loads((tmp_path / MANIFEST).read_text())
    wrong: list[object] = [
        {**content, "format": "octopi backup 2"},
        {**content, "topic": "../etc"},
        {**content, "logs": []},
        {**content, "logs": content["logs"] * 2},
        {**content, "logs": [{**content["logs"][0], "start": 10**9}]},
        {**content, "logs": [{**content["logs"][0], "partition": "../../etc/passwd"}]},
        {**content, "options": {**content["options"], "min_insync": 0}},
        {**content, "other": 1},
        [],
    ]
    for changed in wrong:
        (tmp_path / MANIFEST).write_text(json.dumps(changed))
        with pytest.raises(CommandError) as caught:
            read_manifest(tmp_path)
        assert caught.value.exit_code == ExitCode.DATA_FAULT
    (tmp_path / MANIFEST).write_text(json.dumps(content)[:-9])
    with pytest.raises(CommandError, match="is damaged"):
        read_manifest(tmp_path)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.binary(max_size=40), max_size=4)), max_size=8)
)
def test_requests_have_one_producer_each_and_are_the_log_together(
    runs: list[tuple[int, list[bytes]]],
) -> None:
    counts = [0, 0, 0, 0]
    data = b""
    for producer, values in runs:
        data += (
            opaque(len(values)) if not producer else records_of(producer, values, counts[producer])
        )
        counts[producer] += len(values)
    parts = list(requests_of(data, scan(data)))
    assert b"".join(parts) == data
    for part in parts:
        found = scan(part)
        assert found.fault is None
        assert len(found.runs) <= 1
        assert not (found.runs and found.requests)


def test_pieces_of_a_long_log_fit_one_request(tmp_path: Path) -> None:
    path = tmp_path / "5.log"
    large = records_of(1, [b"x" * (3 * PIECE_BYTES), b"y" * (PIECE_BYTES - 100)])
    path.write_bytes(opaque(30_000) + large + records_of(2, [b"z" * 300_000] * 9))
    file = LogFile(path)
    pieces = [(len(data), found.count) for data, found in file.pieces()]
    assert sum(size for size, _ in pieces) == path.stat().st_size == file.sound_bytes
    assert file.messages == sum(count for _, count in pieces) == 30_011
    assert max(count for _, count in pieces) < RECORDS_PER_PRODUCE_MAX
    assert sorted(size for size, _ in pieces)[-2] <= PIECE_BYTES
