"""Where everything lives: path arithmetic over one root, nothing else.

Layout of build-install.md 7.2 (the published 0.10.4 layout) below `$AOS_HOME/runtime`.  Every path is built
from validated names.  This module reads and writes no file; `store.layout` decides whether a home may be
used.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aos_runtime.errors import InvalidInput
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, Digest, EnvKey, PrincipalName

HOME_VARIABLE = "AOS_HOME"
LAYOUT_VERSION = "aos-1"
WORKSPACE_STATE_DIR = ".aos"
SOCKET_PATH_MAX_BYTES = 103 if sys.platform == "darwin" else 107
"""Longest path that `bind` takes (MEASURED: 107 bytes bind on Linux, 108 fail)."""


@dataclass(frozen=True, slots=True)
class Home:
    """The root of one aos home (`$AOS_HOME`, default `~/.aos`), absolute."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "runtime"

    # etc: operator configuration and what was approved
    @property
    def etc(self) -> Path:
        return self.state / "etc"

    @property
    def config_file(self) -> Path:
        return self.etc / "config.toml"

    @property
    def layout_file(self) -> Path:
        return self.etc / "layout-version"

    @property
    def profiles(self) -> Path:
        return self.etc / "profiles"

    @property
    def profiles_lock(self) -> Path:
        """Held by whoever changes a profile, a group or a key."""
        return self.var / "lock" / "profiles.lock"

    @property
    def groups_file(self) -> Path:
        """The operator's own groups."""
        return self.etc / "groups.toml"

    def profile(self, principal: PrincipalName) -> Path:
        return self.profiles / f"{principal}.toml"

    @property
    def approvals_file(self) -> Path:
        """The operator's rules for approvals when nobody can be asked."""
        return self.etc / "approvals.toml"

    @property
    def bundled_file(self) -> Path:
        """JSON: which bundled capsules the operator removed, so that they stay removed."""
        return self.etc / "bundled.json"

    def receipts(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        """Approval receipts of one installed capsule, a file per content digest; out of any guest's reach."""
        return self.all_receipts(principal) / capsule

    def all_receipts(self, principal: PrincipalName) -> Path:
        return self.etc / "capsule-authority" / principal

    def receipt(self, principal: PrincipalName, capsule: CapsuleName, content: Digest) -> Path:
        return self.receipts(principal, capsule) / f"{content}.json"

    # run: nothing durable
    @property
    def run(self) -> Path:
        return self.state / "run"

    @property
    def socket(self) -> Path:
        """The daemon's socket; a short per-user folder in /tmp where the path is too long to bind."""
        path = self.run / "system.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES:
            return path
        short = hashlib.blake2s(os.fsencode(self.root), digest_size=10).hexdigest()
        return Path("/tmp") / f"aos-{os.getuid()}-{short}" / "system.sock"

    def capsule_socket(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        """Where a capsule listens for clients of its own: beside the daemon's socket, its path no longer."""
        digest = hashlib.blake2s(f"{principal}\0{capsule}".encode(), digest_size=7).digest()
        return self.socket.with_name(f"c{base64.b32encode(digest)[:10].decode().lower()}")

    @property
    def token_file(self) -> Path:
        return self.run / "system.token"

    @property
    def ready_file(self) -> Path:
        return self.run / "system.ready"

    @property
    def pid_file(self) -> Path:
        return self.run / "system.pid"

    @property
    def lock_file(self) -> Path:
        return self.run / "system.lock"

    @property
    def children(self) -> Path:
        """What tells the programs of capsules that a daemon started (`store.children`)."""
        return self.run / "children"

    @property
    def all_scratch(self) -> Path:
        return self.run / "scratch"

    def scratch(self, principal: PrincipalName) -> Path:
        """What a guest calls `/tmp`; emptied when a daemon starts."""
        return self.all_scratch / principal

    # log
    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def daemon_log(self) -> Path:
        return self.log / "_daemon.log"

    def capsule_log(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        return self.log_folder(principal) / f"{capsule}.log"

    def log_folder(self, principal: PrincipalName) -> Path:
        return self.log if principal == DEFAULT_PRINCIPAL else self.log / principal

    # keys and secrets
    @property
    def keys(self) -> Path:
        return self.state / "keys"

    @property
    def runtime_key(self) -> Path:
        return self.keys / "runtime.key"

    def principal_key(self, principal: PrincipalName) -> Path:
        return self.keys / f"{principal}.key"

    @property
    def keypairs(self) -> Path:
        """Key pairs that the operator made, which belong to no principal yet."""
        return self.keys / "local"

    @property
    def secrets(self) -> Path:
        return self.state / "secrets"

    def capsule_secrets(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        return self.secrets / principal / capsule

    def secret(self, principal: PrincipalName, capsule: CapsuleName, key: EnvKey) -> Path:
        return self.capsule_secrets(principal, capsule) / key

    # content
    @property
    def blobs(self) -> Path:
        return self.state / "bin"

    def blob(self, digest: Digest) -> Path:
        return self.blobs / f"{digest}.wasm"

    @property
    def wit_store(self) -> Path:
        return self.state / "wit" / "store"

    @property
    def code_cache(self) -> Path:
        """Precompiled code; only the activator writes here."""
        return self.state / "cache"

    # state
    @property
    def var(self) -> Path:
        return self.state / "var"

    @property
    def state_db(self) -> Path:
        return self.var / "state.db"

    @property
    def audit_db(self) -> Path:
        """The audit trail; `store.audit` is its only writer."""
        return self.var / "audit.db"

    def identities(self, principal: PrincipalName) -> Path:
        """The people that a principal's capsules know."""
        return self.var / "identity" / principal

    def identity_db(self, principal: PrincipalName) -> Path:
        return self.identities(principal) / "identity.db"

    @property
    def staging(self) -> Path:
        return self.var / "staging"

    def install_lock(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        return self.var / "lock" / f"{principal}.{capsule}.lock"

    @property
    def names_index(self) -> Path:
        """Names for shell completion, one `kind<TAB>name` a line; rebuilt by whoever changes them."""
        return self.var / "names.tsv"

    @property
    def tools(self) -> Path:
        return self.var / "tools"

    def tools_file(self, principal: PrincipalName) -> Path:
        """JSON: which tools the capsules of a principal described last."""
        return self.tools / f"{principal}.json"

    # per principal
    @property
    def principals(self) -> Path:
        return self.state / "home"

    def principal(self, principal: PrincipalName) -> Path:
        return self.principals / principal

    def installed(self, principal: PrincipalName) -> Path:
        return self.principal(principal) / ".local" / "capsules"

    def capsule(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        """A symbolic link to the live generation; swapping it is the commit of an install."""
        return self.installed(principal) / capsule

    def generations(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        return self.all_generations(principal) / capsule

    def all_generations(self, principal: PrincipalName) -> Path:
        return self.principal(principal) / ".local" / "generations"

    def shown_wit(self, principal: PrincipalName) -> Path:
        """The interfaces that a guest sees at `home://wit`."""
        return self.principal(principal) / "wit"

    def shown_wit_lock(self, principal: PrincipalName) -> Path:
        return self.var / "lock" / "wit" / f"{principal}.lock"

    def env_file(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        return self.principal(principal) / ".config" / "env" / f"{capsule}.env.json"


def resolve_home(environ: Mapping[str, str]) -> Home:
    """The home that this environment names: `$AOS_HOME`, else `$HOME/.aos`.  `ASTRID_HOME` is ignored.

    InvalidInput `home-unset` or `home-relative` where that is not an absolute path without `..`.
    """
    text = environ.get(HOME_VARIABLE, "")
    if not text:
        user = environ.get("HOME", "")
        if not user:
            raise InvalidInput(
                "home-unset",
                "cannot tell where the aos home is: neither AOS_HOME nor HOME is set",
                hint="set AOS_HOME to an absolute path",
            )
        text = os.path.join(user, ".aos")  # noqa: PTH118 - joins text that is checked below
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts or "\0" in text:
        raise InvalidInput(
            "home-relative",
            f"the aos home must be an absolute path without `..`: {text!r}",
            hint="set AOS_HOME to an absolute path",
            path=text,
        )
    return Home(path)
