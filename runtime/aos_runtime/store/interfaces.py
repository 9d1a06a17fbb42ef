"""What an installed capsule imports that nobody exports, and what it exports that others export too.

Informational (build-install.md 5.14): neither stops an install.  Pure over what `installed` has read.
"""

from __future__ import annotations

from collections.abc import Iterable

from aos_runtime.capsule.manifest import Export, Manifest
from aos_runtime.capsule.version import Requirement, Version
from aos_runtime.names import CapsuleName
from aos_runtime.store.installed import Broken, Installed


def missing_imports(manifest: Manifest, entries: Iterable[Installed | Broken]) -> list[dict[str, str]]:
    """`{namespace, interface, requirement}` of each required import that no installed version satisfies."""
    exports = [row for entry in entries if isinstance(entry, Installed) for row in entry.manifest.exports]
    exports += manifest.exports
    return [
        {"namespace": row.namespace, "interface": row.interface, "requirement": row.requirement}
        for row in manifest.imports
        if not row.optional
        and not any(_satisfies(one, row.namespace, row.interface, row.requirement) for one in exports)
    ]


def export_conflicts(manifest: Manifest, entries: Iterable[Installed | Broken]) -> list[dict[str, str]]:
    """`{namespace, interface, capsule}` of each interface that another installed capsule exports as well."""
    own = {(row.namespace, row.interface) for row in manifest.exports}
    return [
        {"namespace": row.namespace, "interface": row.interface, "capsule": CapsuleName(entry.name)}
        for entry in entries
        if isinstance(entry, Installed) and entry.name != manifest.name
        for row in entry.manifest.exports
        if (row.namespace, row.interface) in own
    ]


def _satisfies(export: Export, namespace: str, interface: str, requirement: str) -> bool:
    if (export.namespace, export.interface) != (namespace, interface):
        return False
    return Requirement.parse(requirement).matches(Version.parse(export.version))
