"""The order in which a principal's capsules come up: uplinks first, then providers before who imports them.

Pure, and stable: what no import orders keeps the order of names.  A cycle does not stop a boot; its members
come up in the order of their names, and the cycle is named.  Source: daemon-kernel.md 6.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aos_runtime.capsule.manifest import Export, Import, Manifest
from aos_runtime.capsule.version import Requirement, Version
from aos_runtime.names import CapsuleName

Graph = Mapping[CapsuleName, frozenset[CapsuleName]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootOrder:
    """`names` is the order; `notes` are sentences about what is odd."""

    names: tuple[CapsuleName, ...]
    notes: tuple[str, ...] = ()


def boot_order(manifests: Mapping[CapsuleName, Manifest]) -> BootOrder:
    """Order what is installed.  Every capsule comes up, whatever it misses."""
    needs = {name: _providers(name, manifest, manifests) for name, manifest in manifests.items()}
    uplinks = sorted(name for name, manifest in manifests.items() if is_uplink(manifest))
    others = sorted(name for name in manifests if name not in uplinks)
    done: list[CapsuleName] = []
    notes: list[str] = []
    for group in (uplinks, others):
        left = list(group)
        while left:
            ready = [name for name in left if not needs[name] & frozenset(left)]
            if not ready:
                notes.append(f"import cycle: {' -> '.join(_cycle(needs, left))}")
                ready = left
            done += ready
            left = [name for name in left if name not in ready]
    return BootOrder(names=tuple(done), notes=(*notes, *_missing(manifests), *_shared(manifests)))


def is_uplink(manifest: Manifest) -> bool:
    """Whether a capsule brings the outside in and so comes up first."""
    return manifest.capabilities.uplink or bool(manifest.uplinks)


def _providers(
    name: CapsuleName, manifest: Manifest, manifests: Mapping[CapsuleName, Manifest]
) -> frozenset[CapsuleName]:
    """The other capsules that export something it imports, all of them."""
    return frozenset(
        other
        for other, provider in manifests.items()
        if other != name
        and any(satisfies(export, wanted) for wanted in manifest.imports for export in provider.exports)
    )


def satisfies(export: Export, wanted: Import) -> bool:
    """Whether an export is what an import asks for."""
    if (export.namespace, export.interface) != (wanted.namespace, wanted.interface):
        return False
    return Requirement.parse(wanted.requirement).matches(Version.parse(export.version))


def _cycle(needs: Graph, left: list[CapsuleName]) -> list[CapsuleName]:
    """One cycle among `left`, each of which needs another of them; the first name is repeated at the end."""
    path = [left[0]]
    while True:
        following = min(needs[path[-1]] & frozenset(left))
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)


def _missing(manifests: Mapping[CapsuleName, Manifest]) -> Iterable[str]:
    exports = [export for manifest in manifests.values() for export in manifest.exports]
    for name, manifest in sorted(manifests.items()):
        for wanted in manifest.imports:
            if not wanted.optional and not any(satisfies(export, wanted) for export in exports):
                asked = f"{wanted.namespace}/{wanted.interface} {wanted.requirement}"
                yield f"capsule {name} imports {asked}, which nothing here exports"


def _shared(manifests: Mapping[CapsuleName, Manifest]) -> Iterable[str]:
    """Interfaces that several capsules export: who imports one depends on all of them."""
    exporters: dict[tuple[str, str], list[CapsuleName]] = {}
    for name, manifest in sorted(manifests.items()):
        for export in manifest.exports:
            exporters.setdefault((export.namespace, export.interface), []).append(name)
    for (namespace, interface), names in sorted(exporters.items()):
        if len(names) > 1:
            yield f"{namespace}/{interface} is exported by {', '.join(names)}"
