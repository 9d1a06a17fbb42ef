"""Key pairs of the operator: `keys/local/NAME.{ed25519,pub.hex,meta.toml}` (cli-ux.md 1.2).

They belong to no principal until their public key stands in a profile.  The key of each principal itself,
`keys/PRINCIPAL.key`, is listed beside them and changed by nobody but the principal's own making and deleting.
"""

from __future__ import annotations

import base64
import os
import re
import struct
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

import tomlkit

from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.errors import AosError, Conflict, Corrupt, InvalidInput, NotFound
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName, parse_principal_name
from aos_runtime.store.files import (
    list_folder,
    make_private_folder,
    read_optional,
    remove_file,
    sync_folder,
    write_atomic,
    write_once,
)
from aos_runtime.store.keys import SEED_BYTES, principal_seed, public_hex
from aos_runtime.store.layout import open_home
from aos_runtime.store.principals import list_profiles, read_profile

SECRET_SUFFIX, PUBLIC_SUFFIX, META_SUFFIX = ".ed25519", ".pub.hex", ".meta.toml"
BACKEND = "file"
MAX_NOTE_CHARS = 512
_MAX_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SSH_KIND = b"ssh-ed25519"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """One key pair.  `public_key` has 64 hexadecimal digits, `created_at_epoch` seconds."""

    name: str
    public_key: str
    created_at_epoch: int
    note: str | None
    bound_principal: PrincipalName | None
    is_local: bool
    """False for the key of a principal, which is not for this room to change."""

    @property
    def fingerprint(self) -> str:
        """The id under which a profile has the public key: 16 hexadecimal digits."""
        return bytes_digest(bytes.fromhex(self.public_key))[:16]

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "created_at_epoch": self.created_at_epoch,
            "backend": BACKEND,
            "note": self.note,
            "bound_principal": self.bound_principal,
        }


def generate_keypair(home: Home, name: str | None, *, note: str | None, replace: bool) -> KeyPair:
    """Make a key pair; without a name one is chosen.

    Conflict `keypair-exists` unless `replace`, and also where a principal or another pair has that name.
    """
    open_home(home, create=True)
    chosen = _check_name(name) if name is not None else f"key-{os.urandom(4).hex()}"
    if note is not None and (len(note) > MAX_NOTE_CHARS or not note.isprintable()):
        raise InvalidInput(
            "keypair-note",
            f"a note is one printable line of at most {MAX_NOTE_CHARS} characters",
            hint="shorten it",
        )
    _check_free(home, chosen, replace=replace)
    seed, now = os.urandom(SEED_BYTES), int(time.time())
    make_private_folder(home.keypairs)
    path = home.keypairs / f"{chosen}{SECRET_SUFFIX}"
    if replace:
        write_atomic(path, seed)
    elif not write_once(path, seed):
        raise _taken(chosen)
    meta: dict[str, object] = {"created_at_epoch": now} | ({} if note is None else {"note": note})
    write_atomic(home.keypairs / f"{chosen}{META_SUFFIX}", tomlkit.dumps(meta).encode("utf-8"))
    write_atomic(home.keypairs / f"{chosen}{PUBLIC_SUFFIX}", f"{public_hex(seed)}\n".encode())
    return read_keypair(home, chosen)


def list_keypairs(home: Home) -> tuple[KeyPair, ...]:
    """The operator's pairs and the principals' own, by name."""
    bound = _bindings(home)
    names = [path.name.removesuffix(SECRET_SUFFIX) for path in list_folder(home.keypairs)]
    local = [_read(home, name, bound) for name in names if _NAME.fullmatch(name)]
    found = [pair for pair in local if pair is not None]
    return tuple(sorted((*found, *_principal_pairs(home)), key=lambda pair: (pair.name, pair.is_local)))


def read_keypair(home: Home, name: str) -> KeyPair:
    """One pair.  NotFound `keypair-unknown`, Corrupt `key-damaged`."""
    pair = _read(home, _check_name(name), _bindings(home))
    if pair is None:
        pair = next((one for one in _principal_pairs(home) if one.name == name), None)
    if pair is None:
        raise NotFound(
            "keypair-unknown",
            f"there is no key pair '{name}'",
            hint="`aos keypair list` shows them",
            name=name,
        )
    return pair


def delete_keypair(home: Home, name: str) -> KeyPair:
    """Delete a pair for good.  Conflict `keypair-of-principal` for the key of a principal."""
    pair = read_keypair(home, name)
    if not pair.is_local:
        raise Conflict(
            "keypair-of-principal",
            f"'{name}' is the key of a principal, which could not connect without it",
            hint=f"delete the principal with `aos agent delete {name}`",
            name=name,
        )
    for suffix in (SECRET_SUFFIX, PUBLIC_SUFFIX, META_SUFFIX):
        remove_file(home.keypairs / f"{name}{suffix}")
    sync_folder(home.keypairs)
    return pair


def openssh_text(pair: KeyPair) -> str:
    """The public key as a line of `authorized_keys`."""
    blob = b"".join(
        struct.pack(">I", len(part)) + part for part in (_SSH_KIND, bytes.fromhex(pair.public_key))
    )
    return f"{_SSH_KIND.decode()} {base64.b64encode(blob).decode()} {pair.name}"


def wire_text(pair: KeyPair) -> str:
    """The 32 bytes of the public key in base64."""
    return base64.b64encode(bytes.fromhex(pair.public_key)).decode()


def _principal_pairs(home: Home) -> Iterator[KeyPair]:
    for principal in list_profiles(home):
        try:
            public = public_hex(principal_seed(home, principal, create=False))
        except AosError:
            continue
        yield KeyPair(
            name=principal,
            public_key=public,
            created_at_epoch=int(home.principal_key(principal).stat().st_mtime),
            note=None,
            bound_principal=principal,
            is_local=False,
        )


def _read(home: Home, name: str, bound: dict[str, PrincipalName]) -> KeyPair | None:
    seed = read_optional(home.keypairs / f"{name}{SECRET_SUFFIX}", _MAX_BYTES)
    if seed is None:
        return None
    if len(seed) != SEED_BYTES:
        raise Corrupt(
            "key-damaged",
            f"the key pair '{name}' holds {len(seed)} bytes where a key has {SEED_BYTES}",
            hint="delete it and make a new one",
            name=name,
        )
    data = read_optional(home.keypairs / f"{name}{META_SUFFIX}", _MAX_BYTES) or b""
    try:
        meta = tomllib.loads(data.decode("utf-8"))
    except ValueError:
        meta = {}
    created, note, public = meta.get("created_at_epoch"), meta.get("note"), public_hex(seed)
    return KeyPair(
        name=name,
        public_key=public,
        created_at_epoch=created if isinstance(created, int) else 0,
        note=note if isinstance(note, str) else None,
        bound_principal=bound.get(public),
        is_local=True,
    )


def _bindings(home: Home) -> dict[str, PrincipalName]:
    """Which principal's profile has which public key."""
    found: dict[str, PrincipalName] = {}
    for principal in list_profiles(home):
        try:
            profile = read_profile(home, principal)
        except AosError:
            continue
        for key in () if profile is None else profile.public_keys:
            found.setdefault(key.public_key, principal)
    return found


def _check_free(home: Home, name: str, *, replace: bool) -> None:
    for path in list_folder(home.keypairs):
        other = path.name.removesuffix(SECRET_SUFFIX)
        if path.name.endswith(SECRET_SUFFIX) and other.lower() == name.lower():
            if other != name:
                raise Conflict(
                    "keypair-case",
                    f"key pairs '{other}' and '{name}' differ only in case",
                    hint="choose another name",
                    name=name,
                )
            if not replace:
                raise _taken(name)
    if read_profile(home, parse_principal_name(name)) is not None:
        raise Conflict(
            "keypair-of-principal",
            f"'{name}' is the key of a principal, which could not connect without it",
            hint="choose another name",
            name=name,
        )


def _taken(name: str) -> Conflict:
    return Conflict(
        "keypair-exists",
        f"a key pair '{name}' exists already",
        hint="choose another --name, or replace it with --force",
        name=name,
    )


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "keypair-name",
            f"invalid name of a key pair {name[:160]!r}",
            hint="use ASCII letters, digits, hyphens and underscores, at most 64 characters",
            name=name[:160],
        )
    return name
