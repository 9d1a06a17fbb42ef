"""Staging an archive: copied once, checked on those very bytes, unpacked aside, and nothing else written.

What a person is asked to agree to (`asks`, `requests`, signer, digest) is computed here from the staged
bytes; `store.commit` installs exactly them.  Staging never asks, runs or installs anything.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aos_runtime import HOST_VERSION
from aos_runtime.capsule.archive import Inventory, iter_member_pieces, scan_archive
from aos_runtime.capsule.archive_limits import DEFAULT_LIMITS
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.manifest import Manifest, check_host_version, parse_manifest
from aos_runtime.capsule.provenance import PROVENANCE_FILE, bytes_digest
from aos_runtime.errors import Corrupt, InvalidInput, LimitExceeded, NotFound
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, Digest, PrincipalName
from aos_runtime.store.bundled import BundledCapsule, read_catalogue
from aos_runtime.store.component_check import check_component
from aos_runtime.store.env import NO_CHANGES, EnvChanges, check_changes
from aos_runtime.store.files import explain, explained, open_regular, write_all, write_atomic
from aos_runtime.store.installed import Installed, read_installed
from aos_runtime.store.layout import open_home
from aos_runtime.store.origin import Phase, Provenances, classify, decide_phase, find_wishes
from aos_runtime.store.receipts import ContentFile
from aos_runtime.store.staging import capsule_lock, claim_folder, find_folder, read_staged, sweep_staging
from aos_runtime.store.sweep import sweep_capsule
from aos_runtime.store.tree import blob_name, first_difference, unpack

__all__ = ["Expected", "Phase", "Provenances", "Stage", "open_stage", "stage_source"]

ARCHIVE_FILE = "archive.capsule"
TREE_FOLDER = "tree"
BLOB_FOLDER = "blobs"
RECORD_FILE = "stage.json"
ENV_FILE = "env.json"
MAX_RECORD_BYTES = 64 * 1024
MAX_ENV_BYTES = 64 * 1024 * 1024
LOCK_WAIT_S = 30.0
"""How long an install waits for another one of the same capsule before it says `busy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a source promised to be, checked against what it is (INS-02, INS-23).  None: no promise."""

    name: CapsuleName | None = None
    version: str | None = None
    content_digest: Digest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Everything about a staged archive that is fixed by its bytes and the home at the time of staging."""

    inventory: Inventory
    manifest: Manifest
    entries: tuple[ContentFile, ...]
    wasm_digest: Digest | None
    provenance_class: Provenances
    previous: Installed | None


class Stage:
    """One staged archive: a context manager that drops it on leaving, committed or not.

    While a stage from `stage_source` lives, this process holds the capsule's lock; one from `open_stage` only
    looks at the files.  `asks` are the capabilities, `requests` the other wishes beyond what this capsule's
    receipt holds.
    After a commit `repaired` names stored binaries that were damaged and have been replaced.
    """

    __slots__ = ("_facts", "_resources", "folder", "home", "now", "principal", "repaired")

    def __init__(
        self,
        home: Home,
        principal: PrincipalName,
        folder: Path,
        facts: _Facts,
        *,
        now: datetime,
        resources: ExitStack,
    ) -> None:
        self.home = home
        self.principal = principal
        self.folder = folder
        self.now = now
        self.repaired: tuple[Digest, ...] = ()
        self._facts = facts
        self._resources = resources

    @property
    def id(self) -> str:
        """The token under which `open_stage` finds this stage while it lives."""
        return self.folder.name

    @property
    def name(self) -> CapsuleName:
        """The capsule that the archive holds."""
        return self._facts.manifest.name

    @property
    def manifest(self) -> Manifest:
        return self._facts.manifest

    @property
    def inventory(self) -> Inventory:
        return self._facts.inventory

    @property
    def entries(self) -> tuple[ContentFile, ...]:
        """Every file that the content digest covers."""
        return self._facts.entries

    @property
    def content_digest(self) -> Digest:
        return self._facts.inventory.content_digest

    @property
    def wasm_digest(self) -> Digest | None:
        """BLAKE3 of the component, None for a capsule that has none."""
        return self._facts.wasm_digest

    @property
    def provenance_class(self) -> Provenances:
        return self._facts.provenance_class

    @property
    def signer(self) -> str | None:
        """The public key in hex whose signature was verified, None for an unsigned archive."""
        provenance = self._facts.inventory.provenance
        return None if provenance is None else provenance.signer

    @property
    def previous(self) -> Installed | None:
        """What is installed now; None also where that is too damaged to be read."""
        return self._facts.previous

    @property
    def phase(self) -> Phase:
        return decide_phase(self._facts.manifest, self._facts.previous)

    @property
    def asks(self) -> Capabilities:
        """Capabilities beyond those that this capsule's receipt holds."""
        return find_wishes(self.provenance_class, self.manifest, self.previous).capabilities

    @property
    def requests(self) -> tuple[str, ...]:
        """What else is asked beyond the receipt, in words with the author's text in them: escape them."""
        return find_wishes(self.provenance_class, self.manifest, self.previous).requests

    @property
    def needs_consent(self) -> bool:
        """Whether a person has to agree: an origin that is not trusted, or a wish that is not granted yet."""
        trusted = self.provenance_class in (Provenances.LOCAL, Provenances.BUNDLED)
        return not trusted or not self.asks.is_empty() or bool(self.requests)

    @property
    def tree(self) -> Path:
        """The unpacked files, binaries apart."""
        return self.folder / TREE_FOLDER

    def read_binary(self, digest: Digest) -> bytes:
        """One of the archive's `*.wasm` files.  Corrupt `stage-damaged` where it is not what was scanned."""
        return _read_binary(self.folder, digest)

    def read_wasm(self) -> bytes | None:
        """The component, None for a capsule that has none."""
        return None if self.wasm_digest is None else self.read_binary(self.wasm_digest)

    def verify(self) -> None:
        """Check that what is unpacked still is what was scanned.  Corrupt `stage-damaged` otherwise."""
        difference = first_difference(self.tree, self.entries, self.read_binary)
        if difference is not None:
            raise _damaged(difference)

    def offer_env(self, changes: EnvChanges) -> None:
        """Show values that are to be set at commit to whoever activates this stage."""
        check_changes(changes)
        value = {"values": dict(changes.values), "secrets": dict(changes.secrets), "removed": changes.removed}
        write_atomic(self.folder / ENV_FILE, json.dumps(value).encode("utf-8"), sync=False)

    def read_offered_env(self) -> EnvChanges:
        """What `offer_env` left, nothing where it was not called."""
        if not (self.folder / ENV_FILE).is_file():
            return NO_CHANGES
        value = json.loads(read_staged(self.folder, ENV_FILE, MAX_ENV_BYTES))
        return EnvChanges(values=value["values"], secrets=value["secrets"], removed=tuple(value["removed"]))

    def close(self) -> None:
        """Drop the staged files and free the capsule's lock; nothing on the second call."""
        self._resources.close()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def stage_source(
    home: Home,
    principal: PrincipalName,
    source: Path,
    *,
    now: datetime,
    expected: Expected | None = None,
    catalogue: tuple[BundledCapsule, ...] | None = None,
    wait_s: float = LOCK_WAIT_S,
) -> Stage:
    """Copy the archive `source` into a private folder, check everything about it and unpack it there.

    Raises before anything outside that folder is written: NotFound `source-missing`, InvalidInput for what is
    no capsule or not the expected one, LimitExceeded, Corrupt, Conflict `busy` after `wait_s` seconds.
    """
    open_home(home, create=True)
    sweep_staging(home)
    with ExitStack() as resources:
        held = claim_folder(home)
        resources.callback(held.release)
        _copy_source(source, held.path / ARCHIVE_FILE)
        inventory, manifest = _scan(held.path)
        _check_expected(expected or Expected(), manifest, inventory)
        lock = capsule_lock(home, principal, manifest.name)
        lock.acquire(wait_s)
        resources.callback(lock.release)
        sweep_staging(home, held=(principal, manifest.name))
        sweep_capsule(home, principal, manifest.name)
        _unpack(held.path, inventory)
        offered = read_catalogue() if catalogue is None else catalogue
        facts = _find_facts(home, principal, held.path, inventory, manifest, offered)
        _write_record(held.path, principal, inventory, now)
        kept = resources.pop_all()
    return Stage(home, principal, held.path, facts, now=now, resources=kept)


def open_stage(
    home: Home,
    principal: PrincipalName,
    stage_id: str,
    *,
    catalogue: tuple[BundledCapsule, ...] | None = None,
) -> Stage:
    """The live stage that another process holds, scanned and verified anew; closing it leaves it in place.

    NotFound `stage-unknown`, Corrupt `stage-damaged`.  `stage_id` may come from a client.
    """
    folder = find_folder(home, stage_id)
    record = json.loads(read_staged(folder, RECORD_FILE, MAX_RECORD_BYTES))
    inventory, manifest = _scan(folder)
    if record["principal"] != principal or record["content_digest"] != inventory.content_digest:
        raise _damaged("it belongs to another principal or holds another archive")
    offered = read_catalogue() if catalogue is None else catalogue
    facts = _find_facts(home, principal, folder, inventory, manifest, offered)
    now = datetime.fromisoformat(record["now"])
    stage = Stage(home, principal, folder, facts, now=now, resources=ExitStack())
    stage.verify()
    return stage


def content_files(inventory: Inventory) -> tuple[ContentFile, ...]:
    """The files that the content digest covers, in the order of the archive."""
    return tuple(
        ContentFile(path=entry.path, size_bytes=entry.size_bytes, digest=entry.digest)
        for entry in inventory.entries
        if entry.path != PROVENANCE_FILE
    )


def _copy_source(source: Path, target: Path) -> None:
    """Copy at most one byte more than an archive may have, from one open descriptor of a regular file."""
    try:
        file = open_regular(source.resolve(strict=True))
    except (FileNotFoundError, NotADirectoryError, RuntimeError) as error:
        raise NotFound(
            "source-missing",
            f"there is no file {source}",
            hint="name a .capsule file or a project folder",
            source=str(source),
        ) from error
    except Corrupt as error:
        raise _not_a_file(source, is_folder=source.is_dir()) from error
    except OSError as error:
        raise explain(error, source) from error
    with file, explained(target):
        data = file.read(DEFAULT_LIMITS.packed_bytes + 1)
        if len(data) > DEFAULT_LIMITS.packed_bytes:
            raise LimitExceeded(
                "source-too-large",
                f"{source} is larger than the {DEFAULT_LIMITS.packed_bytes} bytes that an archive may have",
                hint="a capsule is smaller than that; look at what the file holds",
                source=str(source),
            )
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            write_all(out, data)
        finally:
            os.close(out)


def _scan(folder: Path) -> tuple[Inventory, Manifest]:
    try:
        with (folder / ARCHIVE_FILE).open("rb") as file:
            inventory = scan_archive(file)
    except FileNotFoundError as error:
        raise NotFound(
            "stage-unknown", "the staged install has ended", hint="run the install again"
        ) from error
    manifest = parse_manifest(inventory.manifest)
    check_host_version(manifest, HOST_VERSION)
    return inventory, manifest


def _unpack(folder: Path, inventory: Inventory) -> None:
    with (folder / ARCHIVE_FILE).open("rb") as file:
        unpack(iter_member_pieces(file, inventory), folder / TREE_FOLDER, folder / BLOB_FOLDER)


def _find_facts(
    home: Home,
    principal: PrincipalName,
    folder: Path,
    inventory: Inventory,
    manifest: Manifest,
    catalogue: tuple[BundledCapsule, ...],
) -> _Facts:
    entries = content_files(inventory)
    return _Facts(
        inventory=inventory,
        manifest=manifest,
        entries=entries,
        wasm_digest=check_component(manifest, entries, lambda digest: _read_binary(folder, digest)),
        provenance_class=classify(home, inventory, manifest, catalogue),
        previous=_read_previous(home, principal, manifest.name),
    )


def _read_binary(folder: Path, digest: Digest) -> bytes:
    data = read_staged(folder / BLOB_FOLDER, blob_name(digest), DEFAULT_LIMITS.unpacked_bytes)
    if bytes_digest(data) != digest:
        raise _damaged(f"the binary {digest} was changed")
    return data


def _read_previous(home: Home, principal: PrincipalName, name: CapsuleName) -> Installed | None:
    """What is installed; a damaged version holds nothing and is replaced, a foreign link is not."""
    try:
        return read_installed(home, principal, name)
    except NotFound:
        return None
    except Corrupt as error:
        if error.code == "capsule-link-foreign":
            raise
        return None


def _write_record(folder: Path, principal: PrincipalName, inventory: Inventory, now: datetime) -> None:
    value = {
        "principal": principal,
        "content_digest": inventory.content_digest,
        "now": now.astimezone(UTC).isoformat(),
    }
    write_atomic(folder / RECORD_FILE, json.dumps(value).encode("utf-8"), sync=False)


def _check_expected(expected: Expected, manifest: Manifest, inventory: Inventory) -> None:
    found = (manifest.name, manifest.version, inventory.content_digest)
    wanted = (expected.name, expected.version, expected.content_digest)
    for what, want, have in zip(("name", "version", "content digest"), wanted, found, strict=True):
        if want is not None and want != have:
            raise InvalidInput(
                "archive-identity",
                f"the archive's {what} is {have}, but {want} was asked for",
                hint="check where the archive comes from; it is not the one that was named",
                expected=want,
                found=have,
            )


def _not_a_file(source: Path, *, is_folder: bool) -> InvalidInput:
    hint = "build the folder first: aos capsule build" if is_folder else "name a .capsule file"
    what = "a folder" if is_folder else "not a regular file"
    return InvalidInput("source-not-a-file", f"{source} is {what}", hint=hint, source=str(source))


def _damaged(reason: str) -> Corrupt:
    return Corrupt("stage-damaged", f"the staged install is damaged: {reason}", hint="run the install again")
