"""The id that a capsule's messages carry: it changes with every binary, so no build can pose as another.

Source: daemon-kernel.md 3.1, host-abi.md 1.14.
"""

from __future__ import annotations

import uuid

from aos_runtime.names import CapsuleName, Digest

_NAMESPACE = uuid.UUID("310714d5-9c6d-4c94-8187-75258f393bb6")


def source_id(name: CapsuleName, wasm_digest: Digest) -> str:
    """UUIDv5 of name, NUL and the BLAKE3 digest of the wasm, as text."""
    return str(uuid.uuid5(_NAMESPACE, f"{name}\0{wasm_digest}"))
