"""What a capsule's binary must be before an install may go on (CMP-10, INS-27).

It is looked at, never compiled: the host does that when it activates the stage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from aos_runtime.capsule.manifest import Component, Manifest
from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.capsule.wasm import WasmKind, kind_of
from aos_runtime.errors import Corrupt, InvalidInput
from aos_runtime.names import Digest
from aos_runtime.store.receipts import ContentFile
from aos_runtime.store.tree import is_binary

_KIND_PROBLEMS: Mapping[WasmKind, str] = {
    WasmKind.CORE: "is a core module, not a component; run `aos capsule build`",
    WasmKind.EMPTY: "is empty",
    WasmKind.TEXT: "is text, not a WebAssembly binary",
    WasmKind.ELF: "is a native ELF program, or precompiled code that is not portable",
    WasmKind.PRECOMPILED: "is precompiled code, which is not portable",
    WasmKind.HTML: "is an HTML page, probably a download that failed",
    WasmKind.UNKNOWN: "is not a WebAssembly binary",
}


def check_component(
    manifest: Manifest, entries: tuple[ContentFile, ...], read_binary: Callable[[Digest], bytes]
) -> Digest | None:
    """The digest of the component that the manifest names; None for a capsule without one.

    InvalidInput `component-missing`, `component-name`, `component-kind`; Corrupt `component-hash`.
    """
    for component in manifest.components:
        _check_one(component, entries, read_binary)
    first = manifest.component
    return None if first is None else _entry(first, entries).digest


def _check_one(
    component: Component, entries: tuple[ContentFile, ...], read_binary: Callable[[Digest], bytes]
) -> None:
    data = read_binary(_entry(component, entries).digest)
    problem = _KIND_PROBLEMS.get(kind_of(data))
    if problem is not None:
        raise InvalidInput(
            "component-kind",
            f"`{component.file}` {problem}",
            hint="build the capsule with `aos capsule build` and install the file that it writes",
            file=component.file,
        )
    if component.hash is not None and not _matches(component.hash, data):
        raise Corrupt(
            "component-hash",
            f"`{component.file}` does not match the `hash` that its manifest promises",
            hint="get the archive again from its author, or build it anew",
            file=component.file,
            expected=component.hash,
        )


def _entry(component: Component, entries: tuple[ContentFile, ...]) -> ContentFile:
    entry = next((entry for entry in entries if entry.path == component.file), None)
    if entry is None:
        raise InvalidInput(
            "component-missing",
            f"the manifest names `{component.file}`, which is not in the archive",
            hint="build the capsule again with `aos capsule build`",
            file=component.file,
        )
    if not is_binary(component.file):
        raise InvalidInput(
            "component-name",
            f"the component `{component.file}` does not end in `.wasm`",
            hint="name the component's file with the ending .wasm",
            file=component.file,
        )
    return entry


def _matches(promised: str, data: bytes) -> bool:
    algorithm, _, digits = promised.partition(":")
    found = hashlib.sha256(data).hexdigest() if algorithm == "sha256" else bytes_digest(data)
    return algorithm in ("sha256", "blake3") and digits.lower() == found
