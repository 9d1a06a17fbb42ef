"""The `[env]` values of an installed capsule: what is stored, what a change does, what a guest is given.

Text goes to `.config/env/<capsule>.env.json`, secrets to `secrets/`, where the JSON keeps an empty
placeholder (build-install.md 5.15).  Values come back byte for byte: a URL has no JSON quotes (ABI-09).
Nobody is asked for anything here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from aos_runtime.capsule.manifest import EnvRow, Manifest
from aos_runtime.capsule.manifest_values import RESERVED_ENV_KEY
from aos_runtime.errors import Corrupt, LimitExceeded
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, EnvKey, PrincipalName
from aos_runtime.store.files import make_private_folder, read_optional, remove_file, sync_folder, write_atomic
from aos_runtime.store.secrets import (
    check_secret,
    delete_secret,
    encode_text,
    list_secrets,
    read_secret,
    write_secret,
)

MAX_ENV_FILE_BYTES = 16 * 1024 * 1024
MAX_TEXT_BYTES = 1024 * 1024
SECRET_PLACEHOLDER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvChanges:
    """Values to set and keys to forget.  `values` hold JSON values, `secrets` text."""

    values: Mapping[EnvKey, object] = field(default_factory=dict)
    secrets: Mapping[EnvKey, str] = field(default_factory=dict)
    removed: tuple[EnvKey, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.values or self.secrets or self.removed)


NO_CHANGES = EnvChanges()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEnv:
    """What a capsule runs with.  `missing` rows need a value before it can start."""

    values: Mapping[str, str]
    missing: tuple[EnvRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvBefore:
    """The state that a change replaces, to put it back: the file's text and each touched secret, None if
    unset.
    """

    text: str | None
    secrets: Mapping[str, str | None]


def read_env(home: Home, principal: PrincipalName, capsule: CapsuleName) -> dict[str, object]:
    """The stored values; secrets appear as empty text.  Corrupt `env-damaged`."""
    data = read_optional(home.env_file(principal, capsule), MAX_ENV_FILE_BYTES)
    if data is None:
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(home, principal, capsule, str(error)) from error
    if not isinstance(value, dict):
        raise _damaged(home, principal, capsule, "it is not an object")
    return value


def read_secrets(home: Home, principal: PrincipalName, capsule: CapsuleName) -> dict[str, str]:
    """Every secret of a capsule with its value; for the host alone."""
    found = {
        key: read_secret(home, principal, capsule, key) for key in list_secrets(home, principal, capsule)
    }
    return {key: value for key, value in found.items() if value is not None}


def write_env(
    home: Home, principal: PrincipalName, capsule: CapsuleName, values: Mapping[str, object]
) -> None:
    """Replace the stored values, durably.  LimitExceeded `env-too-large` over 1 MiB for one value."""
    for key, value in values.items():
        check_value(EnvKey(key), value)
    path = home.env_file(principal, capsule)
    make_private_folder(path.parent)
    text = json.dumps(dict(sorted(values.items())), indent=2, ensure_ascii=False)
    write_atomic(path, f"{text}\n".encode())


def check_value(key: EnvKey, value: object) -> None:
    """Whether `value` can be stored under `key`; raises as `write_env`."""
    if len(encode_text(key, render_value(value))) > MAX_TEXT_BYTES:
        raise LimitExceeded(
            "env-too-large",
            f"the value of `{key}` is larger than 1 MiB",
            hint="keep large material in a file and store its path",
            key=key,
        )


def apply_changes(
    home: Home, principal: PrincipalName, capsule: CapsuleName, changes: EnvChanges
) -> EnvBefore:
    """Make `changes` and return what they replaced.  The caller holds the capsule's lock.

    A failure part way puts everything back before it is raised.
    """
    check_changes(changes)
    before = capture(home, principal, capsule, changes)
    try:
        _apply(home, principal, capsule, changes)
    except BaseException:
        restore(home, principal, capsule, before)
        raise
    return before


def check_changes(changes: EnvChanges) -> None:
    """Whether every value can be stored; raises for the first that cannot."""
    for key, value in changes.values.items():
        check_value(key, value)
    for key, secret in changes.secrets.items():
        check_secret(key, secret)


def capture(home: Home, principal: PrincipalName, capsule: CapsuleName, changes: EnvChanges) -> EnvBefore:
    """What `changes` would replace."""
    data = read_optional(home.env_file(principal, capsule), MAX_ENV_FILE_BYTES)
    touched = (*changes.secrets, *changes.removed)
    return EnvBefore(
        text=None if data is None else data.decode("utf-8", "surrogateescape"),
        secrets={key: read_secret(home, principal, capsule, key) for key in touched},
    )


def restore(home: Home, principal: PrincipalName, capsule: CapsuleName, before: EnvBefore) -> None:
    """Put back what `capture` saw."""
    path = home.env_file(principal, capsule)
    if before.text is not None:
        make_private_folder(path.parent)
        write_atomic(path, before.text.encode("utf-8", "surrogateescape"))
    elif remove_file(path):
        sync_folder(path.parent)
    for key, value in before.secrets.items():
        if value is None:
            delete_secret(home, principal, capsule, EnvKey(key))
        else:
            write_secret(home, principal, capsule, EnvKey(key), value)


def resolve_env(manifest: Manifest, stored: Mapping[str, object], secrets: Mapping[str, str]) -> ResolvedEnv:
    """The values that a capsule runs with (build-install.md 4.7).

    Stored value, else nothing where there is a choice to make (more than one enum value), else the default.
    """
    values: dict[str, str] = {}
    missing: list[EnvRow] = []
    for row in manifest.env:
        if row.key == RESERVED_ENV_KEY:
            continue
        value = _stored(row, stored, secrets)
        if value is None and len(row.enum_values) <= 1 and row.default is not None:
            value = row.default
        if value is None:
            missing.append(row)
        else:
            values[row.key] = render_value(value)
    return ResolvedEnv(values=values, missing=tuple(missing))


def render_value(value: object) -> str:
    """A value as the guest reads it: text as it is, anything else as compact JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _stored(row: EnvRow, stored: Mapping[str, object], secrets: Mapping[str, str]) -> object:
    if row.is_secret:
        return secrets.get(row.key) or stored.get(row.key) or None
    return stored.get(row.key)


def _apply(home: Home, principal: PrincipalName, capsule: CapsuleName, changes: EnvChanges) -> None:
    values = read_env(home, principal, capsule)
    for key in changes.removed:
        values.pop(key, None)
        delete_secret(home, principal, capsule, key)
    for key, secret in changes.secrets.items():
        write_secret(home, principal, capsule, key, secret)
        values[key] = SECRET_PLACEHOLDER
    values.update({str(key): value for key, value in changes.values.items()})
    if changes:
        write_env(home, principal, capsule, values)


def _damaged(home: Home, principal: PrincipalName, capsule: CapsuleName, reason: str) -> Corrupt:
    path = home.env_file(principal, capsule)
    return Corrupt(
        "env-damaged",
        f"{path} is damaged: {reason}",
        hint=f"correct the file or move it away, then set the values of `{capsule}` again",
        path=str(path),
    )
