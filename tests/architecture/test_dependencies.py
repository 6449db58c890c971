"""No version with a fault that is known, and that a stranger could use, is allowed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

FIRST_SOUND = {
    "h11": (0, 16),  # CVE-2025-43859: lenient line ends in chunked bodies
    "pyjwt": (2, 12),  # CVE-2026-32597: unknown critical headers were accepted
    "cryptography": (44, 0, 1),  # CVE-2024-12797: OpenSSL took an unverified raw public key
}
"""The first version without the fault."""


def requirements() -> list[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"].values()
    return [*project["dependencies"], *(one for group in optional for one in group)]


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", text)))


@pytest.mark.parametrize("name", FIRST_SOUND)
def test_no_version_with_a_known_fault_is_allowed_or_chosen(name: str) -> None:
    allowed = [one for one in requirements() if re.match(rf"{name}\b", one)]
    assert allowed
    for one in allowed:
        bound = re.fullmatch(rf"{name}>=([0-9.]+)", one)
        assert bound is not None, one
        assert version(bound[1]) >= FIRST_SOUND[name], one
    chosen = [
        version(found)
        for path in (REPOSITORY / "requirements").glob("*.txt")
        for found in re.findall(rf"^{name}==([0-9.]+)", path.read_text(), re.MULTILINE)
    ]
    assert chosen
    assert min(chosen) >= FIRST_SOUND[name]
