"""Every scenario file plays out as it is written."""

from pathlib import Path

import pytest

from tests.replication.stage import replay

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_each_scenario_file_plays_out_as_written(path: Path) -> None:
    text = path.read_text()
    assert replay(text) == text
