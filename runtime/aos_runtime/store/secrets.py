"""Secrets of a capsule: one 0600 file per key in a 0700 folder, raw bytes (build-install.md 5.15, 7.2).

A value leaves this room only through `read_secret`; no error, log line or listing of ours carries one.
"""

from __future__ import annotations

from aos_runtime.errors import InvalidInput, LimitExceeded
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, EnvKey, PrincipalName, parse_env_key
from aos_runtime.store.files import (
    list_folder,
    make_private_folder,
    read_optional,
    remove_file,
    sync_folder,
    write_atomic,
)

MAX_SECRET_BYTES = 64 * 1024


def read_secret(home: Home, principal: PrincipalName, capsule: CapsuleName, key: EnvKey) -> str | None:
    """The value of one secret, None where it is not set."""
    data = read_optional(home.secret(principal, capsule, key), MAX_SECRET_BYTES)
    return None if data is None else data.decode("utf-8", "replace")


def write_secret(home: Home, principal: PrincipalName, capsule: CapsuleName, key: EnvKey, value: str) -> None:
    """Set one secret, durably.  LimitExceeded `secret-too-large` over 64 KiB, InvalidInput `secret-empty`."""
    check_secret(key, value)
    make_private_folder(home.capsule_secrets(principal, capsule))
    write_atomic(home.secret(principal, capsule, key), value.encode("utf-8"))


def check_secret(key: EnvKey, value: str) -> None:
    """Whether `value` can be stored; raises as `write_secret`."""
    if not value:
        raise InvalidInput(
            "secret-empty",
            f"the value of secret `{key}` is empty",
            hint="give a value, or delete the secret",
            key=key,
        )
    if len(encode_text(key, value)) > MAX_SECRET_BYTES:
        raise LimitExceeded(
            "secret-too-large",
            f"the value of secret `{key}` is larger than 64 KiB",
            hint="keep large material in a file and store its path",
            key=key,
        )


def encode_text(key: EnvKey, value: str) -> bytes:
    """The bytes of a value.  InvalidInput `env-not-text` where it holds NUL or is not valid Unicode."""
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise InvalidInput(
            "env-not-text",
            f"the value of `{key}` holds a NUL character or is not valid UTF-8",
            hint="give text; keep other bytes in a file and store its path",
            key=key,
        )
    return data


def delete_secret(home: Home, principal: PrincipalName, capsule: CapsuleName, key: EnvKey) -> bool:
    """Remove one secret, durably; whether it was set."""
    path = home.secret(principal, capsule, key)
    if not remove_file(path):
        return False
    sync_folder(path.parent)
    return True


def list_secrets(home: Home, principal: PrincipalName, capsule: CapsuleName) -> tuple[EnvKey, ...]:
    """The keys that are set, by name; never a value."""
    names = (path.name for path in list_folder(home.capsule_secrets(principal, capsule)))
    return tuple(parse_env_key(name) for name in names if not name.startswith("."))
