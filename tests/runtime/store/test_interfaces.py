"""aos_runtime.store.interfaces: imports that nobody satisfies, exports that two capsules offer."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.manifest import Manifest, parse_manifest
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, Digest
from aos_runtime.store.installed import Broken, Installed
from aos_runtime.store.interfaces import export_conflicts, missing_imports
from aos_runtime.store.metadata import Meta
from aos_runtime.store.receipts import ApprovalSource, Receipt
from tests.support.capsules import manifest_text


def manifest(name: str, extra: str) -> Manifest:
    return parse_manifest(manifest_text(name, extra=extra).encode())


def entry(name: str, extra: str) -> Installed:
    receipt = Receipt(
        principal=DEFAULT_PRINCIPAL,
        capsule=CapsuleName(name),
        version="0.1.0",
        source=ApprovalSource.EXPLICIT,
        content_digest=Digest("0" * 64),
        manifest_digest=Digest("0" * 64),
        capabilities=Capabilities(),
        requests=(),
        wasm_digest=None,
        signer=None,
        signature=None,
        entries=(),
    )
    return Installed(
        name=CapsuleName(name),
        principal=DEFAULT_PRINCIPAL,
        generation=Path("/"),
        manifest=manifest(name, extra),
        meta=Meta(version="0.1.0", installed_at="", updated_at=""),
        receipt=receipt,
        bundled=False,
    )


GIVER = entry("giver", '\n[exports]\n"acme:notes" = "1.4.0"\n')
BROKEN = Broken(name="torn", principal=DEFAULT_PRINCIPAL, reason="torn")


@pytest.mark.parametrize(
    ("requirement", "missing"),
    [("^1.0", []), ("^2.0", [{"namespace": "acme", "interface": "notes", "requirement": "^2.0"}])],
)
def test_an_import_is_missing_where_no_version_fits(requirement: str, missing: list[object]) -> None:
    taker = manifest("taker", f'\n[imports]\n"acme:notes" = "{requirement}"\n')
    assert missing_imports(taker, [GIVER, BROKEN]) == missing


def test_without_anybody_it_is_missing_unless_optional() -> None:
    required = manifest("taker", '\n[imports]\n"acme:notes" = "^1.0"\n')
    optional = manifest("taker", '\n[imports]\n"acme:notes" = { version = "^1.0", optional = true }\n')
    assert len(missing_imports(required, [])) == 1
    assert missing_imports(optional, []) == []


def test_an_export_of_two_is_told_with_the_other() -> None:
    twin = manifest("twin", '\n[exports]\n"acme:notes" = "1.0.0"\n"acme:other" = "1.0.0"\n')
    assert export_conflicts(twin, [GIVER, BROKEN]) == [
        {"namespace": "acme", "interface": "notes", "capsule": "giver"}
    ]
    assert export_conflicts(GIVER.manifest, [GIVER]) == []
