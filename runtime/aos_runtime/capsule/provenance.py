"""Who built an archive: the content digest over its files and the signature over that digest.

The encodings are the published ones (build-install.md 2.12), so that a capsule that was signed here is
recognised there and the other way round.  This room makes and checks signatures with a seed that it is
handed; it never finds, stores or creates a key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from aos_runtime.errors import Corrupt
from aos_runtime.names import Digest

PROVENANCE_FILE = "Capsule.provenance.json"
PROVENANCE_SCHEMA = 1
PROVENANCE_ALGORITHM = "ed25519-blake3-tree-v1"
MAX_PROVENANCE_BYTES = 64 * 1024

_CONTENT_DOMAIN = b"astrid:capsule-content:v1\0"
_SIGNATURE_DOMAIN = b"astrid:capsule-provenance:v1\0"
_MANIFEST_DOMAIN = b"astrid:capsule-manifest:v1\0"


class ContentEntry(Protocol):
    """A file as the content digest sees it: `digest` is the BLAKE3 of its bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def digest(self) -> Digest: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """`Capsule.provenance.json`.  `signer` is the public key in hex, `signature` its 64 bytes."""

    schema_version: int = PROVENANCE_SCHEMA
    algorithm: str = PROVENANCE_ALGORITHM
    content_digest: Digest
    signer: str
    signature: bytes

    @property
    def signature_text(self) -> str:
        """The signature as it is published: standard base64."""
        return base64.b64encode(self.signature).decode("ascii")


def bytes_digest(data: bytes) -> Digest:
    """BLAKE3 of `data`."""
    return Digest(blake3(data).hexdigest())


def manifest_digest(manifest: bytes) -> Digest:
    """BLAKE3 of the manifest's bytes under its own domain, as receipts record it (build-install.md 5.5)."""
    return Digest(blake3(_MANIFEST_DOMAIN + manifest).hexdigest())


def content_digest(entries: Iterable[ContentEntry]) -> Digest:
    """The digest over every regular file but the provenance file: path and length are hashed with the bytes.

    Folders, modes and times take no part (build-install.md 2.12).  Paths are ordered as UTF-8 bytes.
    """
    hasher = blake3(_CONTENT_DOMAIN)
    files = [(entry.path.encode("utf-8"), entry) for entry in entries if entry.path != PROVENANCE_FILE]
    for path, entry in sorted(files, key=lambda pair: pair[0]):
        hasher.update(len(path).to_bytes(8, "little") + path)
        hasher.update(entry.size_bytes.to_bytes(8, "little") + bytes.fromhex(entry.digest))
    return Digest(hasher.hexdigest())


def sign_content(digest: Digest, seed: bytes) -> Provenance:
    """Sign `digest` with the 32 secret bytes `seed` (Ed25519 over the domain and the hex text)."""
    key = SigningKey(seed)
    signature = key.sign(_signed_message(digest)).signature
    return Provenance(content_digest=digest, signer=bytes(key.verify_key).hex(), signature=signature)


def verify_provenance(provenance: Provenance, digest: Digest) -> None:
    """Check that `provenance` is about `digest` and that its signer signed it.

    Corrupt `provenance-mismatch` or `provenance-signature`.
    """
    if provenance.content_digest != digest:
        raise Corrupt(
            "provenance-mismatch",
            "the archive's files are not the ones that were signed",
            hint="get the archive again from who built it, or build it yourself",
            signed=provenance.content_digest,
            found=digest,
        )
    try:
        VerifyKey(bytes.fromhex(provenance.signer)).verify(_signed_message(digest), provenance.signature)
    except (BadSignatureError, ValueError) as error:
        raise Corrupt(
            "provenance-signature",
            "the archive's signature is not from the signer that it names",
            hint="get the archive again from who built it, or build it yourself",
            signer=provenance.signer,
        ) from error


def render_provenance(provenance: Provenance) -> bytes:
    """The file's bytes: pretty JSON in the published key order, without a final line break."""
    fields = {
        "schema_version": provenance.schema_version,
        "algorithm": provenance.algorithm,
        "content_digest": provenance.content_digest,
        "signer": base64.b64encode(bytes.fromhex(provenance.signer)).decode("ascii"),
        "signature": provenance.signature_text,
    }
    return json.dumps(fields, indent=2).encode("ascii")


def parse_provenance(data: bytes) -> Provenance:
    """Read `Capsule.provenance.json`.  Corrupt `provenance-damaged` or `provenance-unknown` otherwise."""
    if len(data) > MAX_PROVENANCE_BYTES:
        raise _damaged(f"is larger than {MAX_PROVENANCE_BYTES} bytes")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise _damaged("is not JSON") from error
    if not isinstance(value, Mapping):
        raise _damaged("is not a JSON object")
    schema, algorithm = value.get("schema_version"), value.get("algorithm")
    if schema != PROVENANCE_SCHEMA or isinstance(schema, bool) or algorithm != PROVENANCE_ALGORITHM:
        raise Corrupt(
            "provenance-unknown",
            f"`{PROVENANCE_FILE}` has a schema or algorithm that this version does not know",
            hint="install a newer aos, or ask who built the archive for one with schema 1",
        )
    return Provenance(
        content_digest=_digest_field(value.get("content_digest")),
        signer=_base64_field(value, "signer", 32).hex(),
        signature=_base64_field(value, "signature", 64),
    )


def _signed_message(digest: Digest) -> bytes:
    return _SIGNATURE_DOMAIN + digest.encode("ascii")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Two readers may differ on which of two equal keys counts, so neither is accepted."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate key")
    return value


def _digest_field(value: object) -> Digest:
    if not isinstance(value, str) or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise _damaged("has no `content_digest` of 64 lowercase hexadecimal digits")
    return Digest(value)


def _base64_field(fields: Mapping[str, object], name: str, size_bytes: int) -> bytes:
    value = fields.get(name)
    try:
        data = base64.b64decode(value) if isinstance(value, str) else b""
    except ValueError:
        data = b""
    if len(data) != size_bytes or base64.b64encode(data).decode("ascii") != value:
        raise _damaged(f"has no `{name}` of {size_bytes} bytes in base64")
    return data


def _damaged(what: str) -> Corrupt:
    return Corrupt(
        "provenance-damaged",
        f"`{PROVENANCE_FILE}` {what}",
        hint="get the archive again from who built it, or build it yourself",
    )
