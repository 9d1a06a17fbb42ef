"""Which installed capsules would lose what they import if one were removed (build-install.md 6.3)."""

from __future__ import annotations

from aos_runtime.errors import Conflict
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.installed import Installed, list_installed


def find_dependents(
    home: Home, principal: PrincipalName, name: CapsuleName
) -> tuple[tuple[CapsuleName, str], ...]:
    """(capsule, `namespace:interface`) for every import that only `name` satisfies; optional ones count."""
    entries = [entry for entry in list_installed(home, principal) if isinstance(entry, Installed)]
    own = {interface for entry in entries if entry.name == name for interface in _exports(entry)}
    others = {interface for entry in entries if entry.name != name for interface in _exports(entry)}
    sole = own - others
    return tuple(
        (entry.name, f"{row.namespace}:{row.interface}")
        for entry in entries
        if entry.name != name
        for row in entry.manifest.imports
        if (row.namespace, row.interface) in sole
    )


def check_no_dependents(home: Home, principal: PrincipalName, name: CapsuleName) -> None:
    """Conflict `capsule-needed` where another capsule imports what only `name` exports."""
    dependents = find_dependents(home, principal, name)
    if dependents:
        users = ", ".join(f"`{capsule}` ({interface})" for capsule, interface in dependents)
        raise Conflict(
            "capsule-needed",
            f"capsule `{name}` is the only one that exports what others import: {users}",
            hint="remove those first, or pass --force",
            name=name,
            dependents=[capsule for capsule, _ in dependents],
        )


def _exports(entry: Installed) -> set[tuple[str, str]]:
    return {(row.namespace, row.interface) for row in entry.manifest.exports}
