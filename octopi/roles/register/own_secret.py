"""The join secret in the register's data directory: made once, and copied to brokers."""

from __future__ import annotations

from octopi.environment import Environment
from octopi.errors import InvalidOptionError, StorageError
from octopi.limits import JOIN_SECRET_BYTES
from octopi.logger import get_logger
from octopi.security.join_secret import SECRET_FILE, SecretSource, secret_text
from octopi.security.secret_file import SecretFile

_log = get_logger(__name__)


async def own_secret(
    environment: Environment, data_directory: str, *, is_first_start: bool
) -> SecretSource:
    """The secrets in the data directory; a register makes one at its first start.

    Raises:
      InvalidOptionError: if the file is damaged.
      StorageError: if it is gone, though brokers have copies of it; or it can't be written.
    """
    path = f"{data_directory}/{SECRET_FILE}"
    disk = environment.disk
    file = SecretFile(path, lambda: disk.read_file(path), environment.clock, "it was removed")
    try:
        found = file.load()
    except InvalidOptionError as error:
        raise InvalidOptionError(
            f"{error}, such as from a broker, or start with the copy itself: --join-secret FILE"
        ) from None
    if found.keys:
        return file
    if not is_first_start:
        raise StorageError(
            f"{path} is gone, and brokers join no register without it: start with a broker's copy "
            f"(--join-secret FILE), or, if there is none, make another one with `octopi-node "
            f"secret {path}` and copy it to all brokers"
        )
    try:
        text = secret_text(environment.randomness.token_bytes(JOIN_SECRET_BYTES))
        await disk.replace_file(path, text.encode())
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    _log.info(
        "join secret made",
        file=path,
        next="copy it to other machines with brokers, and name the copy there: --join-secret FILE",
    )
    file.load()
    return file
