"""Every program in the document about clients runs as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.cluster import running_cluster

DOCUMENT = Path(__file__).parents[2] / "docs/clients.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


def test_the_document_has_programs() -> None:
    assert len(PROGRAMS) >= 4


@pytest.mark.parametrize("program", PROGRAMS, ids=range(1, len(PROGRAMS) + 1))
async def test_the_program_runs(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = "trio.run(main)\n"
    assert program.endswith(ending)
    async with running_cluster(tmp_path) as cluster:
        names: dict[str, object] = {}
        source = program.removesuffix(ending).replace("ws://127.0.0.1:7000", cluster.register.url)
        exec(compile(source, str(DOCUMENT), "exec"), names)
        await names["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out
