"""Identifiers that become paths, topics or keys: validated once, then carried as newtypes.

A value of one of these types has been checked; nothing in aos builds a path from an unchecked string.
"""

from __future__ import annotations

import re
from typing import NewType

from aos_runtime.errors import InvalidInput

CapsuleName = NewType("CapsuleName", str)
"""`[a-z0-9-]`, 1 to 128 characters (CapsuleId of the published runtime; the bound is ours)."""

PrincipalName = NewType("PrincipalName", str)
"""`[A-Za-z0-9_-]`, 1 to 64 characters."""

EnvKey = NewType("EnvKey", str)
"""`[A-Za-z_][A-Za-z0-9_]{0,127}`: names a file below `secrets/`."""

Digest = NewType("Digest", str)
"""A BLAKE3 digest: 64 lowercase hexadecimal digits."""

DEFAULT_PRINCIPAL = PrincipalName("default")
ANONYMOUS_PRINCIPAL = PrincipalName("anonymous")

_CAPSULE = re.compile(r"[a-z0-9-]{1,128}")
_PRINCIPAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def parse_capsule_name(text: str) -> CapsuleName:
    """Check a capsule name (seed capsule-forge section 6).  InvalidInput `capsule-name` otherwise."""
    if not _CAPSULE.fullmatch(text):
        raise InvalidInput(
            "capsule-name",
            f"invalid capsule name {text[:160]!r}",
            hint="use lowercase ASCII letters, digits and hyphens, at most 128 characters",
            name=text[:160],
        )
    return CapsuleName(text)


def parse_principal_name(text: str) -> PrincipalName:
    """Check a principal name (daemon-kernel.md 9.1).  InvalidInput `principal-name` otherwise."""
    if not _PRINCIPAL.fullmatch(text):
        raise InvalidInput(
            "principal-name",
            f"invalid principal name {text[:160]!r}",
            hint="use ASCII letters, digits, hyphens and underscores, at most 64 characters",
            name=text[:160],
        )
    return PrincipalName(text)


def parse_env_key(text: str) -> EnvKey:
    """Check the name of an `[env]` entry.  InvalidInput `env-key` otherwise."""
    if not _ENV_KEY.fullmatch(text):
        raise InvalidInput(
            "env-key",
            f"invalid env key {text[:160]!r}",
            hint="start with a letter or underscore; letters, digits and underscores, at most 128 characters",
            key=text[:160],
        )
    return EnvKey(text)


def parse_digest(text: str) -> Digest:
    """Check a BLAKE3 digest.  InvalidInput `digest` otherwise."""
    if not _DIGEST.fullmatch(text):
        raise InvalidInput(
            "digest",
            f"not a BLAKE3 digest: {text[:80]!r}",
            hint="a digest is 64 lowercase hexadecimal digits",
        )
    return Digest(text)
