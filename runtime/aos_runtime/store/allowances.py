"""What a person allowed for good, kept in the principal's profile: `approvals.command_always`.

The file is edited in place, so that comments and keys of a newer aos stay.  A row without a capsule (the
published form) covers nobody here: an always is given to one capsule (case ABI-33).  Whether a row covers a
request is decided in `policy.approval`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.errors import Corrupt, LimitExceeded, NotFound
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.files import read_optional
from aos_runtime.store.principals import MAX_PROFILE_BYTES, read_profile
from aos_runtime.store.profile_edits import change_profile, profiles_locked

MAX_GRANTS = 1024
_HOSTED, _WORKSPACE = "hosted", "astrid_workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysGrant:
    """One `approve_always`."""

    capsule: str
    action: str
    resource: str
    workspace: str | None

    @property
    def id(self) -> str:
        """A short name of this grant, stable as long as it says the same."""
        parts = "\0".join((self.capsule, self.action, self.resource, self.workspace or ""))
        return f"always-{bytes_digest(parts.encode())[:12]}"


def list_always(home: Home, principal: PrincipalName) -> tuple[AlwaysGrant, ...]:
    """The grants of a principal, in the order in which they were given.  Corrupt `profile-damaged`."""
    if read_profile(home, principal) is None:
        return ()
    return tuple(
        AlwaysGrant(
            capsule=str(row["capsule"]),
            action=str(row["command"]),
            resource=str(row.get("resource", row["command"])),
            workspace=str(row["workspace_root"]) if row.get("workspace_root") else None,
        )
        for row in _rows(_read(home, principal))
        if isinstance(row, dict) and "capsule" in row and "command" in row
    )


def add_always(home: Home, principal: PrincipalName, grant: AlwaysGrant) -> None:
    """Keep a grant, durably; one that is there already is kept once."""
    if grant in list_always(home, principal):
        return

    def add(document: Any) -> None:
        approvals = document.setdefault("approvals", tomlkit.table())
        rows = approvals.setdefault("command_always", tomlkit.aot())
        if len(rows) >= MAX_GRANTS:
            raise LimitExceeded(
                "always-grants",
                f"principal `{principal}` holds {MAX_GRANTS} standing approvals already",
                hint="revoke some: aos approve list",
                principal=principal,
            )
        row = {"command": grant.action, "capsule": grant.capsule, "resource": grant.resource}
        row["location"] = _HOSTED if grant.workspace is None else _WORKSPACE
        if grant.workspace is not None:
            row["workspace_root"] = grant.workspace
        rows.append(tomlkit.item(row))

    _edit(home, principal, add)


def revoke_always(home: Home, principal: PrincipalName, grant_id: str) -> AlwaysGrant:
    """Take a grant back; it holds for no request from now on.  NotFound `always-grant-unknown`."""
    found = next((one for one in list_always(home, principal) if one.id == grant_id), None)
    if found is None:
        raise NotFound(
            "always-grant-unknown",
            f"principal `{principal}` has no standing approval {grant_id[:40]!r}",
            hint="`aos approve list` shows them",
            principal=principal,
        )
    gone = found

    def remove(document: Any) -> None:
        rows = _rows(document)
        for index in reversed(range(len(rows))):
            row = rows[index]
            same = (row.get("capsule"), row.get("command"), row.get("workspace_root"))
            resource = row.get("resource", row.get("command"))
            if same == (gone.capsule, gone.action, gone.workspace) and resource == gone.resource:
                del rows[index]

    _edit(home, principal, remove)
    return gone


def _edit(home: Home, principal: PrincipalName, change: Callable[[Any], None]) -> None:
    """Change one profile under the lock of all.  Nothing is kept that would not be read again."""
    with profiles_locked(home):
        change_profile(home, principal, change)


def _read(home: Home, principal: PrincipalName) -> Any:
    path = home.profile(principal)
    data = read_optional(path, MAX_PROFILE_BYTES)
    try:
        return tomlkit.parse((data or b"").decode())
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise Corrupt(
            "profile-damaged",
            f"{path} is damaged: {error}",
            hint="correct the file; a principal without a readable profile is refused",
            path=str(path),
        ) from error


def _rows(document: Any) -> Any:
    approvals = document.get("approvals", {})
    rows = approvals.get("command_always", []) if isinstance(approvals, dict) else []
    return rows if isinstance(rows, list) else []
