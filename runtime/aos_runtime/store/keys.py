"""Ed25519 keys: the runtime's and the principals', 32 raw secret bytes each (daemon-kernel.md 1.2).

A seed leaves this room only to sign or to be derived from; the raw runtime seed never becomes another key by
being reused as one.  No key is ever replaced here: a key that is there is read, or refused where it is
damaged.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from blake3 import blake3
from nacl.signing import SigningKey

from aos_runtime.errors import Corrupt, Denied, NotFound
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.files import make_private_folder, read_optional, write_once
from aos_runtime.store.layout import open_home

SEED_BYTES = 32
CACHE_KEY_CONTEXT = "aos 2026-08 precompiled code cache trailer v1"


def load_runtime_seed(home: Home, *, create: bool) -> bytes:
    """The seed of this home's runtime key; with `create`, made on first use.

    NotFound `runtime-key-missing`, Corrupt `key-damaged`, Denied `key-exposed` where others can read it.
    """
    return _load(home, home.runtime_key, create=create, name="runtime")


def principal_seed(home: Home, principal: PrincipalName, *, create: bool) -> bytes:
    """The seed of a principal's own key, with which its clients authenticate.

    Errors as `load_runtime_seed`.
    """
    return _load(home, home.principal_key(principal), create=create, name=principal)


def public_hex(seed: bytes) -> str:
    """The public key of `seed` as 64 hexadecimal digits."""
    return SigningKey(seed).verify_key.encode().hex()


def cache_key(seed: bytes) -> bytes:
    """The 32-byte key for trailers of precompiled code, derived from the runtime seed."""
    return blake3(seed, derive_key_context=CACHE_KEY_CONTEXT).digest()


def _load(home: Home, path: Path, *, create: bool, name: str) -> bytes:
    seed = _read(path)
    if seed is not None:
        return seed
    if not create:
        raise NotFound(
            "key-missing",
            f"this home has no key for `{name}`",
            hint="run `aos start` once; it makes the keys of a home",
            path=str(path),
        )
    open_home(home, create=True)
    make_private_folder(path.parent)
    fresh = os.urandom(SEED_BYTES)
    if write_once(path, fresh):
        return fresh
    return _load(home, path, create=False, name=name)


def _read(path: Path) -> bytes | None:
    seed = read_optional(path, SEED_BYTES * 64)
    if seed is None:
        return None
    if len(seed) != SEED_BYTES:
        raise Corrupt(
            "key-damaged",
            f"{path} holds {len(seed)} bytes where a key has {SEED_BYTES}",
            hint="restore the file from a backup; a new key would not be recognised as yours",
            path=str(path),
        )
    facts = path.stat()
    if facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise Denied(
            "key-exposed",
            f"{path} can be read by other users",
            hint=f"run `chmod 600 {path}`; if others may have read it, replace the key",
            path=str(path),
        )
    return seed
