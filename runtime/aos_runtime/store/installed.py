"""Reading what is installed, and checking it against what was approved.

A capsule is a symbolic link to its live generation (`home.capsule`).  A reader resolves the link once and
reads everything from the folder that it named; where an upgrade swept that folder meanwhile, it starts again.
Readers write nothing and repair nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aos_runtime.capsule.manifest import MANIFEST_FILE, Manifest, parse_manifest
from aos_runtime.capsule.manifest_text import MAX_MANIFEST_BYTES
from aos_runtime.capsule.provenance import manifest_digest
from aos_runtime.errors import AosError, Corrupt, NotFound
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, Digest, PrincipalName, parse_capsule_name
from aos_runtime.store.content import read_blob
from aos_runtime.store.files import explained, list_folder, read_bounded
from aos_runtime.store.metadata import MAX_META_BYTES, META_FILE, Meta, parse_meta
from aos_runtime.store.receipts import ApprovalSource, Receipt, read_receipt
from aos_runtime.store.tree import first_difference

_ATTEMPTS = 16
_TARGET = re.compile(
    r"\.\./generations/(?P<name>[a-z0-9-]+)/(?P<folder>(?P<digest>[0-9a-f]{64})\.[0-9a-f]{16})"
)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One installed capsule, read from one generation.  `bundled`: its authority is the wheel's catalogue."""

    name: CapsuleName
    principal: PrincipalName
    generation: Path
    manifest: Manifest
    meta: Meta
    receipt: Receipt
    bundled: bool

    @property
    def version(self) -> str:
        """The version that was approved."""
        return self.receipt.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An entry among the installed capsules that cannot be read.

    `reason` is one sentence without a period.
    """

    name: str
    principal: PrincipalName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """Where a capsule's link leads: the folder, and the digest whose receipt belongs to it."""

    folder: Path
    content: Digest


def list_installed(home: Home, principal: PrincipalName) -> tuple[Installed | Broken, ...]:
    """Every capsule of `principal` by name; what cannot be read is in its place with the reason (LST-01)."""
    found: list[Installed | Broken] = []
    for path in list_folder(home.installed(principal)):
        if path.name.startswith("."):
            continue
        try:
            found.append(read_installed(home, principal, parse_capsule_name(path.name)))
        except NotFound:
            continue
        except AosError as error:
            found.append(Broken(name=path.name, principal=principal, reason=error.message))
    return tuple(found)


def list_names(home: Home, principal: PrincipalName) -> tuple[CapsuleName, ...]:
    """The names under which something is installed, from the links alone."""
    found = list_folder(home.installed(principal))
    return tuple(
        CapsuleName(path.name) for path in found if not path.name.startswith(".") and path.is_symlink()
    )


def read_installed(home: Home, principal: PrincipalName, name: CapsuleName) -> Installed:
    """Read one installed capsule.

    NotFound `capsule-not-installed`; Corrupt where manifest, `meta.json` or receipt are damaged or missing.
    Files and binary are not hashed here: `check_installed` does that.
    """
    return _retry(home, principal, name, lambda pointer: _read(home, principal, name, pointer))


def check_installed(home: Home, installed: Installed) -> None:
    """Compare what is on disk with what was approved; Corrupt names the first difference.

    Compared are the manifest's capabilities, the binary's BLAKE3 and the content digest over every file of
    the archive: the receipt's list of files gives that digest (checked when it is read), and every file must
    be as listed.  The manifest's own digest was compared when it was read.  So a flipped bit anywhere is
    refused, whoever made it.
    """
    receipt = installed.receipt
    damaged = _Damage(installed.name, installed.principal)
    if not installed.manifest.capabilities.beyond(receipt.capabilities).is_empty():
        raise damaged.error("its manifest asks for more than was approved")
    component = installed.manifest.component
    if installed.meta.wasm_hash != receipt.wasm_digest:
        raise damaged.error(f"`{META_FILE}` names another binary than the one that was approved")
    if component is not None:
        entry = receipt.entry(component.file)
        if entry is None or entry.digest != receipt.wasm_digest:
            raise damaged.error(f"`{component.file}` is not the binary that was approved")
    difference = first_difference(
        installed.generation, receipt.entries, lambda digest: read_blob(home, digest)
    )
    if difference is not None:
        raise damaged.error(difference)


def load_installed(home: Home, principal: PrincipalName, name: CapsuleName) -> tuple[Installed, bytes | None]:
    """Read and check a capsule and return it with its binary, whatever upgrade runs meanwhile."""

    def load(pointer: Pointer) -> tuple[Installed, bytes | None]:
        installed = _read(home, principal, name, pointer)
        check_installed(home, installed)
        digest = installed.receipt.wasm_digest
        return installed, None if digest is None else read_blob(home, digest)

    return _retry(home, principal, name, load)


def read_pointer(home: Home, principal: PrincipalName, name: CapsuleName) -> Pointer | None:
    """Where the capsule's link leads; None where there is none.  Corrupt where it is no link of ours."""
    path = home.capsule(principal, name)
    with explained(path):
        try:
            target = os.readlink(path)  # noqa: PTH115 - Path.readlink cannot tell a plain folder from an error
        except FileNotFoundError:
            return None
        except OSError:
            if not os.path.lexists(path):
                return None
            target = ""
    match = _TARGET.fullmatch(target)
    if match is None or match["name"] != name:
        raise Corrupt(
            "capsule-link-foreign",
            f"{path} was not put there by an install",
            hint=f"move it away, then install `{name}` from its archive",
            path=str(path),
        )
    folder = home.generations(principal, name) / match["folder"]
    return Pointer(folder=folder, content=Digest(match["digest"]))


def generation_name(content: Digest, nonce: str) -> str:
    """The folder of a generation, which names its receipt; `nonce` is 16 hexadecimal digits."""
    return f"{content}.{nonce}"


def pointer_target(name: CapsuleName, folder: str) -> str:
    """The text of a capsule's link."""
    return f"../generations/{name}/{folder}"


def _retry(
    home: Home, principal: PrincipalName, name: CapsuleName, read: Callable[[Pointer], _Result]
) -> _Result:
    """Run `read` on the live generation, again where that generation was replaced under it."""
    pointer = _live(home, principal, name)
    for _ in range(_ATTEMPTS):
        try:
            return read(pointer)
        except Corrupt:
            now = _live(home, principal, name)
            if now == pointer:
                raise
            pointer = now
    return read(pointer)


def _live(home: Home, principal: PrincipalName, name: CapsuleName) -> Pointer:
    pointer = read_pointer(home, principal, name)
    if pointer is None:
        raise NotFound(
            "capsule-not-installed",
            f"capsule `{name}` is not installed for principal `{principal}`",
            hint="run `aos capsule list` to see what is",
            name=name,
            principal=principal,
        )
    return pointer


def _read(home: Home, principal: PrincipalName, name: CapsuleName, pointer: Pointer) -> Installed:
    damaged = _Damage(name, principal)
    receipt = read_receipt(home, principal, name, pointer.content)
    if receipt is None:
        raise damaged.error("nothing records that it was approved")
    try:
        text = read_bounded(pointer.folder / MANIFEST_FILE, MAX_MANIFEST_BYTES)
        meta_text = read_bounded(pointer.folder / META_FILE, MAX_META_BYTES)
    except FileNotFoundError as error:
        raise damaged.error(f"`{Path(str(error.filename)).name}` is missing") from error
    if manifest_digest(text) != receipt.manifest_digest:
        raise damaged.error(f"`{MANIFEST_FILE}` was changed after it was approved")
    try:
        manifest = parse_manifest(text)
    except AosError as error:
        raise damaged.error(f"this aos cannot read its `{MANIFEST_FILE}`: {error.message}") from error
    if (manifest.name, manifest.version) != (receipt.capsule, receipt.version):
        raise damaged.error("its manifest names another capsule or version than was approved")
    return Installed(
        name=name,
        principal=principal,
        generation=pointer.folder,
        manifest=manifest,
        meta=parse_meta(meta_text),
        receipt=receipt,
        bundled=receipt.source is ApprovalSource.BUNDLED,
    )


@dataclass(frozen=True, slots=True)
class _Damage:
    name: CapsuleName
    principal: PrincipalName

    def error(self, reason: str) -> Corrupt:
        return Corrupt(
            "capsule-damaged",
            f"capsule `{self.name}` is damaged: {reason}",
            hint="install it again: aos capsule install <file>.capsule, or aos init for what came with aos",
            name=self.name,
            principal=self.principal,
        )
