"""Each kind of damage does what it says, and only to files that are there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.damage import KINDS, Harm, damage, keep_copy


def broker(tmp_path: Path) -> Path:
    """A data directory with one log of three segments."""
    data_dir = tmp_path / "broker"
    log = data_dir / "logs/0/orders"
    log.mkdir(parents=True)
    for base in (0, 100, 200):
        (log / f"{base:020}.log").write_bytes(bytes(range(100)))
    for path in (log / "checkpoint", data_dir / "replicas", data_dir / "identity"):
        path.write_bytes(b"something")
    (data_dir / "lock").touch()
    return data_dir


def contents(data_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data_dir)): path.read_bytes()
        for path in data_dir.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_of_damage_changes_a_file_and_says_what_it_did(
    kind: Harm, tmp_path: Path
) -> None:
    data_dir, copy = broker(tmp_path), tmp_path / "older"
    keep_copy(data_dir, copy)
    (data_dir / "logs/0/orders/checkpoint").write_bytes(b"something newer")
    before = contents(data_dir)
    assert kind(random.Random(1), data_dir, copy)
    after = contents(data_dir)
    assert after != before
    assert after["lock"] == b""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_damage_to_an_empty_directory_does_nothing(kind: Harm, tmp_path: Path) -> None:
    assert kind(random.Random(1), tmp_path, tmp_path / "older") == ""
    assert damage(random.Random(1), tmp_path, tmp_path / "older") == ""


def test_every_kind_of_damage_is_drawn(tmp_path: Path) -> None:
    seen = set()
    for seed in range(60):
        folder = tmp_path / str(seed)
        data_dir = broker(folder)
        keep_copy(data_dir, folder / "older")
        (data_dir / "identity").write_bytes(b"newer")
        (data_dir / "logs/0/orders/checkpoint").write_bytes(b"newer")
        done = damage(random.Random(seed), data_dir, folder / "older")
        seen.add(" ".join(word for word in done.split() if word.isalpha()))
    assert len(seen) >= 6


def test_the_segment_that_is_lost_is_one_in_the_middle(tmp_path: Path) -> None:
    data_dir = broker(tmp_path)
    [lose] = [kind for kind in KINDS if kind.__name__ == "lose_segment"]
    lose(random.Random(1), data_dir, tmp_path / "older")
    assert sorted(path.stem for path in data_dir.rglob("*.log")) == [f"{0:020}", f"{200:020}"]
