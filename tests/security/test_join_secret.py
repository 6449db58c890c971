"""The join secret: what is in its file, and what a proof covers."""

from __future__ import annotations

import hashlib
import hmac
import itertools

import pytest

from octopi.environment import Environment
from octopi.errors import InvalidOptionError, StorageError
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.roles.register.own_secret import own_secret
from octopi.security.join_secret import JoinSecrets, ProofContext, Side, secret_text
from octopi.security.secret_file import SecretFile
from tests.kit.disk import MemoryDisk
from tests.kit.links import MemoryNet

KEY, OTHER = b"k" * 32, b"o" * 32
OPENING = ProofContext("/v1/follow", b"c" * 32, b"a" * 32)


def test_a_proof_is_the_documented_hash() -> None:
    text = b"octopi join proof 1\nconnecting\n/v1/follow\n" + b"c" * 32 + b"\n" + b"a" * 32
    expected = hmac.new(KEY, text, hashlib.sha256).digest()
    assert OPENING.proof(KEY, Side.CONNECTING) == expected


def test_a_proof_depends_on_everything_that_it_covers() -> None:
    openings = [
        OPENING,
        ProofContext("/v1/membership", b"c" * 32, b"a" * 32),
        ProofContext("/v1/follow", b"C" * 32, b"a" * 32),
        ProofContext("/v1/follow", b"c" * 32, b"A" * 32),
        ProofContext("/v1/follow", b"a" * 32, b"c" * 32),
    ]
    proofs = [
        opening.proof(key, side)
        for opening, key, side in itertools.product(openings, (KEY, OTHER), Side)
    ]
    assert len(set(proofs)) == len(proofs) == 20
    secrets = JoinSecrets((KEY,))
    proven = [OPENING.proven(secrets, Side.CONNECTING, [proof]) for proof in proofs]
    assert proven == [KEY, *[None] * 19]


def test_a_file_has_four_secrets_at_most() -> None:
    def text(count: int) -> str:
        return "".join(secret_text(bytes([number]) * 32) for number in range(count))

    assert len(JoinSecrets.parse(text(4), "FILE").keys) == 4
    with pytest.raises(InvalidOptionError, match="5 join secrets, at most 4 are allowed"):
        JoinSecrets.parse(text(5), "FILE")


@pytest.mark.parametrize("nonce", [b"", b"a" * 31, b"a" * 33])
def test_a_nonce_of_another_length_is_refused(nonce: bytes) -> None:
    opening = ProofContext("/v1/follow", b"c" * 32, nonce)
    proof = opening.proof(KEY, Side.ACCEPTING)
    assert opening.proven(JoinSecrets((KEY,)), Side.ACCEPTING, [proof]) is None


def test_a_written_secret_is_read_again_and_a_second_one_follows_the_first() -> None:
    first = secret_text(KEY)
    assert JoinSecrets.parse(first, "f").keys == (KEY,)
    assert first.startswith("#")
    both = secret_text(OTHER, first.rstrip())
    assert JoinSecrets.parse(both, "f").keys == (KEY, OTHER)
    assert JoinSecrets.parse(both + both, "f").keys == (KEY, OTHER)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no join secret in the file"),
        ("# nothing\n\n", "there is no join secret in the file"),
        (f"{KEY.hex()}\n{KEY.hex()[:-2]}", "line 2 is not a join secret of 64 hexadecimal"),
        (KEY.hex() + "00", "line 1 is not a join secret"),
        (KEY.hex()[:-1] + "x", "line 1 is not a join secret"),
        (" ".join(["6b"] * 32), "line 1 is not a join secret"),
        ("\n".join((bytes([n]) * 32).hex() for n in range(5)), "5 join secrets, at most 4 are"),
    ],
)
def test_an_invalid_secret_file_is_refused_by_an_error_that_does_not_repeat_its_content(
    text: str, why: str
) -> None:
    with pytest.raises(InvalidOptionError, match=why) as caught:
        JoinSecrets.parse(text, "the-file")
    assert str(caught.value).startswith("the-file: ")
    assert "6b6b" not in str(caught.value)


def test_a_secret_is_not_shown_by_accident() -> None:
    assert "kkkk" not in repr(JoinSecrets((KEY,)))
    assert KEY.hex() not in repr(JoinSecrets((KEY,)))


async def test_a_secret_file_that_becomes_unreadable_leaves_the_secrets_in_force() -> None:
    content: list[bytes | OSError] = [FileNotFoundError()]

    def read() -> bytes:
        found = content[-1]
        if isinstance(found, OSError):
            raise found
        return found

    file = SecretFile("f", read, SystemClock(), "copy it")
    assert file().keys == ()
    assert file().missing == "f is not there: copy it"
    content.append(b"nonsense")
    assert "line 1 is not a join secret" in file().missing
    with pytest.raises(InvalidOptionError):
        file.load()
    content.append(secret_text(KEY).encode())
    assert file().keys == (KEY,)
    for broken in (b"nonsense", FileNotFoundError(), OSError(24, "Too many open files")):
        content.append(broken)
        assert file().keys == (KEY,)
    content.append(secret_text(OTHER).encode())
    assert file().keys == (OTHER,)


# --- the register's own ------------------------------------------------------------------


def environment(disk: MemoryDisk) -> Environment:
    disk.make_directory("data")
    return Environment(SystemClock(), MemoryNet(), disk, SystemRandomness())


async def test_a_register_makes_a_secret_at_its_first_start_and_keeps_it() -> None:
    here = environment(MemoryDisk())
    made = (await own_secret(here, "data", is_first_start=True))()
    assert [len(key) for key in made.keys] == [32]
    for is_first_start in (True, False):
        again = await own_secret(here, "data", is_first_start=is_first_start)
        assert again() == made
    other = await own_secret(environment(MemoryDisk()), "data", is_first_start=True)
    assert other() != made


async def test_a_register_with_a_journal_makes_no_other_secret() -> None:
    with pytest.raises(StorageError, match="gone") as caught:
        await own_secret(environment(MemoryDisk()), "data", is_first_start=False)
    assert "--join-secret FILE" in str(caught.value)
    assert "octopi-node secret data/join-secret" in str(caught.value)


async def test_a_damaged_secret_of_the_register_is_left_as_it_is() -> None:
    disk = MemoryDisk()
    disk.make_directory("data")
    await disk.replace_file("data/join-secret", b"0123")
    for is_first_start in (True, False):
        with pytest.raises(InvalidOptionError, match="--join-secret FILE"):
            await own_secret(environment(disk), "data", is_first_start=is_first_start)
    assert disk.read_file("data/join-secret") == b"0123"
