"""Where an archive comes from and what it asks beyond what is held: the facts that a consent is about.

Computed from scanned bytes, receipts and keys; nothing here asks a person or grants anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from aos_runtime.capsule.archive import Inventory
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.manifest import Manifest
from aos_runtime.capsule.provenance import verify_provenance
from aos_runtime.capsule.topics import reads_all_tools
from aos_runtime.capsule.version import Version
from aos_runtime.errors import NotFound
from aos_runtime.home import Home
from aos_runtime.store.bundled import BundledCapsule
from aos_runtime.store.installed import Installed
from aos_runtime.store.keys import load_runtime_seed, public_hex


class Provenances(StrEnum):
    """Who vouches for an archive."""

    LOCAL = "local"
    FOREIGN = "foreign"
    UNSIGNED = "unsigned"
    BUNDLED = "bundled"


class Phase(StrEnum):
    """What committing would be; a reinstall is neither install nor upgrade for lifecycle hooks (INS-25)."""

    INSTALL = "install"
    UPGRADE = "upgrade"
    REINSTALL = "reinstall"
    DOWNGRADE = "downgrade"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a capsule asks beyond what it holds.  `requests` are sentences with the author's text in them."""

    capabilities: Capabilities
    requests: tuple[str, ...]


def classify(
    home: Home, inventory: Inventory, manifest: Manifest, catalogue: Iterable[BundledCapsule]
) -> Provenances:
    """Who vouches for these bytes.  Corrupt where the archive carries a signature that does not hold."""
    provenance = inventory.provenance
    if provenance is not None:
        verify_provenance(provenance, inventory.content_digest)
    facts = (manifest.name, inventory.content_digest)
    if any((row.name, row.content_digest) == facts for row in catalogue):
        return Provenances.BUNDLED
    if provenance is None:
        return Provenances.UNSIGNED
    return Provenances.LOCAL if provenance.signer == _own_key(home) else Provenances.FOREIGN


def decide_phase(manifest: Manifest, previous: Installed | None) -> Phase:
    """What installing `manifest` over `previous` is."""
    if previous is None:
        return Phase.INSTALL
    new, old = Version.parse(manifest.version), Version.parse(previous.version)
    if new == old:
        return Phase.REINSTALL
    return Phase.UPGRADE if new > old else Phase.DOWNGRADE


def all_requests(manifest: Manifest) -> tuple[str, ...]:
    """What a manifest asks that no capability expresses, for a person to read."""
    unknown = (
        f"the capability `{name}`, which this aos does not know" for name in manifest.unknown_capabilities
    )
    servers = (
        f"run the MCP server `{server.id}`: {shlex.join((server.command or server.type, *server.args))}"
        for server in manifest.mcp_servers
    )
    watched = (
        f"read the tool calls of every capsule of its principal (it subscribes to {pattern})"
        for pattern in manifest.subscribe_patterns
        if reads_all_tools(pattern)
    )
    return (*unknown, *servers, *watched)


def find_wishes(origin: Provenances, manifest: Manifest, previous: Installed | None) -> Wishes:
    """What is asked beyond what this capsule's receipt holds.

    What a bundled capsule hears and knows is the wheel's to say; its capabilities are asked like any other's.
    """
    held = Capabilities() if previous is None else previous.receipt.capabilities
    granted = () if previous is None else previous.receipt.requests
    return Wishes(
        capabilities=manifest.capabilities.beyond(held),
        requests=()
        if origin is Provenances.BUNDLED
        else tuple(wish for wish in all_requests(manifest) if wish not in granted),
    )


def _own_key(home: Home) -> str | None:
    try:
        return public_hex(load_runtime_seed(home, create=False))
    except NotFound:
        return None
