"""Files with join secrets."""

from __future__ import annotations

from hypothesis import strategies as st

from octopi.errors import InvalidOptionError
from octopi.limits import JOIN_SECRET_BYTES, JOIN_SECRETS_MAX
from octopi.security.join_secret import JoinSecrets, secret_text
from tests.fuzz.target import Target

_ANOTHER = b"\xa5" * JOIN_SECRET_BYTES


def check(data: bytes) -> bool:
    text = data.decode("ascii", "replace")
    try:
        secrets = JoinSecrets.parse(text, "FILE")
    except InvalidOptionError as error:
        said = str(error)
        assert said.startswith("FILE: ")
        words = [word for word in text.split() if len(word) >= 16]
        assert not any(word in said for word in words), "the error repeats a secret"
        return any(len(word) == 2 * JOIN_SECRET_BYTES for word in text.split())
    assert 1 <= len(secrets.keys) <= JOIN_SECRETS_MAX
    assert len(set(secrets.keys)) == len(secrets.keys)
    assert all(len(key) == JOIN_SECRET_BYTES for key in secrets.keys)
    assert not any(key.hex() in repr(secrets) for key in secrets.keys), "it shows itself"
    if len(secrets.keys) < JOIN_SECRETS_MAX:
        more = JoinSecrets.parse(secret_text(_ANOTHER, text), "FILE")
        assert set(more.keys) == {*secrets.keys, _ANOTHER}, "one more changes the others"
    return True


_SECRETS = st.binary(min_size=JOIN_SECRET_BYTES, max_size=JOIN_SECRET_BYTES)

TARGET = Target(
    "secrets",
    "any file is refused without a word of what is in it, or has one to a few secrets, to which "
    "another can be added",
    st.lists(_SECRETS, min_size=1, max_size=JOIN_SECRETS_MAX, unique=True).map(
        lambda keys: ("# head\n" + "\n".join(key.hex() for key in keys) + "\n").encode()
    )
    | _SECRETS.map(lambda key: secret_text(key).encode()),
    check,
    ("octopi/security/join_secret.py",),
    words=(
        b"#",
        b"\n",
        b"\r\n",
        b"\x0b",
        b"\x1c",
        b" ",
        b"0x",
        b"\xef\xbb\xbf",
        b"\x00",
        b"aa" * 32,
    ),
)
