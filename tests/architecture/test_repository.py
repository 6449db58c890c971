"""What must hold for the files of the repository, whatever is in them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

# In pieces, so that this file does not name them either.
REGISTRY_HOSTS = [
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
    )
]


# Made by tools, in a checkout as in an unpacked archive, which has no git to ask.
MADE_HERE = re.compile(
    r"\.git|\.venv|\.bench|\.tools|dist|__pycache__|\.hypothesis|\..*_cache|\.coverage"
)


def project_files(folder: Path = REPOSITORY) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if MADE_HERE.fullmatch(path.name):
            continue
        if path.is_dir():
            yield from project_files(path)
        else:
            yield path


def lock_files() -> list[Path]:
    return sorted((REPOSITORY / "requirements").glob("*.txt"))


def test_the_lock_files_are_there() -> None:
    names = ["bench", "browser", "conformance", "dev", "docs", "examples", "runtime", "spark"]
    assert [path.stem for path in lock_files()] == names


@pytest.mark.parametrize("lock_file", lock_files(), ids=lambda path: path.name)
def test_a_lock_file_has_hashes_and_names_no_host(lock_file: Path) -> None:
    text = lock_file.read_text()
    requirements = re.findall(r"^[a-z].*?==.*?(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    assert len(requirements) > 10
    assert [entry for entry in requirements if "--hash=sha256:" not in entry] == []
    assert "://" not in text
    assert "-index" not in text
    assert "--find-links" not in text


def test_all_lock_files_choose_the_same_versions() -> None:
    versions = {
        path.name: dict(re.findall(r"^([a-z][\w.-]*)==([^\s;]+)", path.read_text(), re.MULTILINE))
        for path in lock_files()
    }
    for name in ("bench.txt", "conformance.txt", "dev.txt"):
        assert versions["runtime.txt"].items() <= versions[name].items()
    for name in ("browser.txt", "docs.txt", "examples.txt", "spark.txt"):
        assert versions["dev.txt"].items() <= versions[name].items()


def test_no_file_names_a_package_registry() -> None:
    naming = {
        str(path.relative_to(REPOSITORY)): host
        for path in project_files()
        for host in REGISTRY_HOSTS
        if host.encode() in path.read_bytes()
    }
    assert naming == {}
