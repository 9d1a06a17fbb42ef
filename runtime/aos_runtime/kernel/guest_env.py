"""The `[env]` values that a running capsule reads, of its principal alone.

A secret is read from its 0600 file at each call and kept nowhere: what lives as long as the capsule holds
none.  Everything else is as it was when the capsule was loaded; a change of it loads the capsule again.  A
capsule that may listen on a Unix socket finds the path of its own under the name that the SDK looks up.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from aos_runtime.capsule.manifest import EnvRow, Manifest
from aos_runtime.capsule.manifest_values import RESERVED_ENV_KEY
from aos_runtime.errors import InvalidInput
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, EnvKey, PrincipalName, parse_env_key
from aos_runtime.store.env import read_env, read_secrets, resolve_env
from aos_runtime.store.secrets import read_secret


class GuestEnv:
    """`get` is the port of `sys.get-config`.  `missing` rows need a value before the capsule can start."""

    __slots__ = (
        "_before_block",
        "_capsule",
        "_home",
        "_keys",
        "_principal",
        "_secrets",
        "_values",
        "missing",
    )

    def __init__(
        self,
        home: Home,
        principal: PrincipalName,
        capsule: CapsuleName,
        manifest: Manifest,
        before_block: Callable[[], None],
    ) -> None:
        stored = read_env(home, principal, capsule)
        secrets = read_secrets(home, principal, capsule)
        self.missing: tuple[EnvRow, ...] = resolve_env(manifest, stored, secrets).missing
        self._values = dict(resolve_env(manifest, stored, {}).values)
        if any(entry.startswith("unix:") for entry in manifest.capabilities.net_bind):
            self._values[RESERVED_ENV_KEY] = os.fspath(home.capsule_socket(principal, capsule))
        self._secrets = frozenset(row.key for row in manifest.env if row.is_secret)
        self._keys = tuple(row.key for row in manifest.env)
        self._home = home
        self._principal = principal
        self._capsule = capsule
        self._before_block = before_block

    def get(self, key: str) -> str | None:
        """The value of `key`; of a secret what its file holds now, else its default."""
        if key not in self._secrets:
            return self._values.get(key)
        return self._secret(key) or self._values.get(key)

    def values(self) -> dict[str, str]:
        """Every key that has a value, for the environment of a program."""
        found = {key: self.get(key) for key in self._keys}
        return {key: value for key, value in found.items() if value is not None}

    def placeholder(self, key: str) -> str | None:
        """What stands for `{{secret:KEY}}`; None where it is not set, KeyError where it is no secret."""
        if key not in self._secrets:
            raise KeyError(key)
        return self.get(key)

    def has_secret(self, key: str) -> bool:
        """Whether a secret is kept under `key`, declared or asked for by a hook."""
        try:
            return bool(self._secret(parse_env_key(key)))
        except InvalidInput:
            return False

    def _secret(self, key: str) -> str | None:
        self._before_block()
        return read_secret(self._home, self._principal, self._capsule, EnvKey(key))
