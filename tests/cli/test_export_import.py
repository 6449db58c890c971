"""`export` and `import` of JSON lines through real nodes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Consume, Program, command, produce

pytestmark = pytest.mark.process

CONTENT = rb"%k|%h|%T|%v\0".decode()


def test_an_exported_topic_is_imported_as_the_same_messages(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    assert program("topics", "create", topic, "--partitions", "2").exit_code == 0
    assert program("produce", topic, "a", "b\nb", "-k", "k", "-H", "n=1").exit_code == 0
    produce(program, tmp_path, topic, b"\xff\xfe\n\n")
    file = tmp_path / "messages.jsonl"
    exported = program("export", topic, str(file))
    assert exported.exit_code == 0
    assert exported.stdout == ""
    assert exported.stderr.startswith("4 messages, ")
    assert f" in {file}\n" in exported.stderr
    imported = program("import", f"{topic}-copy", str(file))
    assert imported.exit_code == 0
    assert imported.stderr.startswith(f"created topic {topic}-copy; there is {topic}, too\n4 mess")
    copied = consume(f"{topic}-copy", "-e", "-f", CONTENT)
    assert sorted(copied.split(b"\0")) == sorted(consume(topic, "-e", "-f", CONTENT).split(b"\0"))


def test_standard_output_and_input_are_files_too(consume: Consume, topic: str) -> None:
    subprocess.run(command("produce", topic, "1", "2", "3"), capture_output=True, check=True)
    exported = subprocess.run(command("export", topic), capture_output=True, check=True)
    assert [json.loads(line)["value"] for line in exported.stdout.splitlines()] == ["1", "2", "3"]
    subprocess.run(
        command("import", f"{topic}-copy", "-", "--skip", "1"),
        input=exported.stdout,
        capture_output=True,
        check=True,
    )
    assert consume(f"{topic}-copy", "-e") == b"2\n3\n"


def test_a_directory_gets_a_file_with_the_name_of_the_topic(
    program: Program, tmp_path: Path, topic: str
) -> None:
    assert program("produce", topic, "a").exit_code == 0
    assert program("export", topic, str(tmp_path)).exit_code == 0
    assert sorted(os.listdir(tmp_path)) == [f"{topic}.jsonl"]


def test_part_of_a_topic_can_be_exported(program: Program, tmp_path: Path, topic: str) -> None:
    assert program("topics", "create", topic, "--on", "2,5").exit_code == 0
    for partition in ("2", "5"):
        assert program("produce", topic, "a", f"b{partition}", "-p", partition).exit_code == 0
    file = tmp_path / "part.jsonl"
    assert program("export", topic, str(file), "-p", "5", "-o", "-1").exit_code == 0
    assert [json.loads(line)["value"] for line in file.read_text().splitlines()] == ["b5"]


def test_a_file_that_exists_is_replaced_only_if_that_is_asked_for(
    program: Program, tmp_path: Path, topic: str
) -> None:
    assert program("produce", topic, "a").exit_code == 0
    file = tmp_path / "messages.jsonl"
    file.write_text("mine")
    refused = program("export", topic, str(file))
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert file.read_text() == "mine"
    assert program("export", topic, str(file), "--force").exit_code == 0
    assert json.loads(file.read_text())["value"] == "a"


def test_an_export_that_fails_leaves_no_file(program: Program, tmp_path: Path, topic: str) -> None:
    file = tmp_path / "messages.jsonl"
    assert program("export", topic, str(file)).exit_code == 4
    assert program("produce", topic, "a").exit_code == 0
    assert program("export", topic, str(file), "-o", "7777777").exit_code == 4
    assert os.listdir(tmp_path) == []
    assert program("export", topic, str(tmp_path / "missing" / "file")).exit_code == 1


def test_a_line_that_is_no_message_is_named_and_the_import_goes_on_behind_it(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text('{"value": "1"}\n{"vlaue": "2"}\n{"value": "3"}\n')
    failed = program("import", topic, str(file))
    assert failed.exit_code == 1
    assert "line 2 is no message: it has a field 'vlaue'" in failed.stderr
    assert "--skip 1, or leave this line out with --skip 2" in failed.stderr
    assert program("import", topic, str(file), "--skip", "2", "--no-create").exit_code == 0
    assert consume(topic, "-e") == b"1\n3\n"


def test_an_interrupted_import_says_how_to_go_on(
    consume: Consume, program: Program, tmp_path: Path, topic: str
) -> None:
    assert program("topics", "create", topic).exit_code == 0
    file = tmp_path / "messages.jsonl"
    file.write_text("".join(f'{{"value": "{number}"}}\n' for number in range(1000)))
    with subprocess.Popen(
        command("import", topic, str(file), "--rate", "20"), stderr=subprocess.PIPE, text=True
    ) as process:
        assert consume(topic, "-n", "3") == b"0\n1\n2\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "is the first that was not acknowledged: --skip " in stderr
    skip = stderr.partition("--skip ")[2].split()[0]
    stored = consume(topic, "-e").splitlines()
    assert int(skip) <= len(stored) < 1000


def test_parquet_without_pyarrow_names_what_to_install(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    file = tmp_path / "messages.parquet"
    file.write_bytes(b"PAR1")
    for arguments in (["export", topic, str(file), "--force"], ["import", topic, str(file)]):
        failed = program(*arguments)
        assert failed.exit_code == 2
        assert "pip install 'octopi-node[parquet]'" in failed.stderr


def test_parquet_is_not_written_to_standard_output(program: Program) -> None:
    failed = program("export", "orders", "--format", "parquet")
    assert failed.exit_code == 2
    assert "Parquet needs a FILE" in failed.stderr
