"""Approval receipts: what was agreed to when a capsule was installed, out of any guest's reach.

One JSON file per (principal, capsule, content digest) under `etc/capsule-authority`.  The fields are those of
the published runtime (build-install.md 5.5); `entries`, `approved_requests` and `principal` are ours: with
the entries the content digest can be recomputed from what is installed and a damaged file can be named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.provenance import content_digest
from aos_runtime.errors import AosError, Corrupt
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, Digest, PrincipalName, parse_digest
from aos_runtime.store.files import list_folder, make_private_folder, read_optional, remove_file, write_atomic

RECEIPT_SCHEMA = 1
MAX_RECEIPT_BYTES = 16 * 1024 * 1024


class ApprovalSource(StrEnum):
    """Why an install was allowed."""

    LOCAL_BUILD = "local-runtime-build"
    EXPLICIT = "explicit-approval"
    BUNDLED = "bundled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentFile:
    """One file of an approved archive."""

    path: str
    size_bytes: int
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was approved for one content digest.

    `requests` are the things asked beyond the known capabilities, in the words shown at consent.
    """

    principal: PrincipalName
    capsule: CapsuleName
    version: str
    source: ApprovalSource
    content_digest: Digest
    manifest_digest: Digest
    capabilities: Capabilities
    requests: tuple[str, ...]
    wasm_digest: Digest | None
    signer: str | None
    signature: str | None
    entries: tuple[ContentFile, ...]

    def entry(self, path: str) -> ContentFile | None:
        """The approved file at `path`."""
        return next((entry for entry in self.entries if entry.path == path), None)


def write_receipt(home: Home, receipt: Receipt) -> None:
    """Record `receipt`, durably."""
    make_private_folder(home.receipts(receipt.principal, receipt.capsule))
    path = home.receipt(receipt.principal, receipt.capsule, receipt.content_digest)
    write_atomic(path, render_receipt(receipt))


def read_receipt(
    home: Home, principal: PrincipalName, capsule: CapsuleName, content: Digest
) -> Receipt | None:
    """The receipt of one content digest, None where there is none.  Corrupt `receipt-damaged`."""
    data = read_optional(home.receipt(principal, capsule, content), MAX_RECEIPT_BYTES)
    if data is None:
        return None
    receipt = parse_receipt(data)
    if (receipt.principal, receipt.capsule, receipt.content_digest) != (principal, capsule, content):
        raise _damaged(f"it was made for `{receipt.capsule}` of principal `{receipt.principal}`")
    return receipt


def remove_receipts(
    home: Home, principal: PrincipalName, capsule: CapsuleName, *, keep: Digest | None
) -> None:
    """Remove every receipt of a capsule but the one for `keep`."""
    for path in list_folder(home.receipts(principal, capsule)):
        if keep is None or path.name != f"{keep}.json":
            remove_file(path)


def render_receipt(receipt: Receipt) -> bytes:
    """The file's bytes; `parse_receipt` reads them back."""
    value: dict[str, object] = {
        "schema_version": RECEIPT_SCHEMA,
        "source": receipt.source.value,
        "principal": receipt.principal,
        "capsule_id": receipt.capsule,
        "version": receipt.version,
        "content_digest": receipt.content_digest,
        "manifest_digest": receipt.manifest_digest,
        "signer": receipt.signer,
        "signature": receipt.signature,
        "approved_capabilities": receipt.capabilities.to_json(),
        "approved_requests": list(receipt.requests),
        "wasm_hash_pinned": receipt.wasm_digest is not None,
        "approved_wasm_hash": receipt.wasm_digest,
        "entries": [[entry.path, entry.size_bytes, entry.digest] for entry in receipt.entries],
    }
    present = {key: item for key, item in value.items() if item is not None}
    return (json.dumps(present, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def parse_receipt(data: bytes) -> Receipt:
    """Read a receipt.  Corrupt `receipt-damaged` where it is not one, or contradicts itself."""
    try:
        receipt = _build(json.loads(data))
        digest = content_digest(receipt.entries)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, AosError) as error:
        raise _damaged(str(error) or type(error).__name__) from error
    if digest != receipt.content_digest:
        raise _damaged("its list of files does not give its content digest")
    return receipt


def _build(value: Mapping[str, object]) -> Receipt:
    if value["schema_version"] != RECEIPT_SCHEMA:
        raise ValueError(f"unknown schema version {value['schema_version']!r}")
    wasm = _optional_text(value, "approved_wasm_hash")
    rows = value["entries"]
    requests = value.get("approved_requests", [])
    if not isinstance(rows, list) or not isinstance(requests, list):
        raise TypeError("a list is not one")
    return Receipt(
        principal=PrincipalName(_text(value["principal"])),
        capsule=CapsuleName(_text(value["capsule_id"])),
        version=_text(value["version"]),
        source=ApprovalSource(_text(value["source"])),
        content_digest=parse_digest(_text(value["content_digest"])),
        manifest_digest=parse_digest(_text(value["manifest_digest"])),
        capabilities=Capabilities.from_json(value["approved_capabilities"]),
        requests=tuple(_text(item) for item in requests),
        wasm_digest=None if wasm is None else parse_digest(wasm),
        signer=_optional_text(value, "signer"),
        signature=_optional_text(value, "signature"),
        entries=tuple(_content_file(row) for row in rows),
    )


def _content_file(row: object) -> ContentFile:
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[1], int):
        raise TypeError("an entry is not [path, size, digest]")
    return ContentFile(path=_text(row[0]), size_bytes=row[1], digest=parse_digest(_text(row[2])))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text field is not text")
    return value


def _optional_text(value: Mapping[str, object], key: str) -> str | None:
    item = value.get(key)
    return None if item is None else _text(item)


def _damaged(reason: str) -> Corrupt:
    return Corrupt(
        "receipt-damaged",
        f"an approval receipt is damaged: {reason}",
        hint="install the capsule again from its archive; that records the approval anew",
    )
