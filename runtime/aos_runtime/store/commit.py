"""Making a staged archive the installed version, and taking an installed one away.

Everything a version consists of is written and synced where no reader looks; then one rename of a symbolic
link makes it the live one.  A kill before that rename leaves the old version, one after it the new.  Each
change here runs under the capsule's lock.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aos_runtime.capsule.provenance import manifest_digest
from aos_runtime.errors import AosError, Corrupt, Denied, NotFound, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, EnvKey, PrincipalName
from aos_runtime.store.bundled import read_catalogue, record_removed
from aos_runtime.store.content import MAX_WIT_BYTES, put_blob, put_wit
from aos_runtime.store.dependents import check_no_dependents
from aos_runtime.store.env import (
    NO_CHANGES,
    EnvBefore,
    EnvChanges,
    apply_changes,
    capture,
    check_changes,
    read_env,
    restore,
)
from aos_runtime.store.files import (
    make_link,
    make_private_folder,
    remove_file,
    remove_tree,
    rename,
    sync_folder,
    write_atomic,
)
from aos_runtime.store.installed import (
    Installed,
    generation_name,
    pointer_target,
    read_installed,
    read_pointer,
)
from aos_runtime.store.kv import KvStore
from aos_runtime.store.layout import open_home
from aos_runtime.store.metadata import META_FILE, Meta, render_meta, render_time
from aos_runtime.store.names_index import rebuild
from aos_runtime.store.origin import Provenances, all_requests
from aos_runtime.store.receipts import ApprovalSource, Receipt, write_receipt
from aos_runtime.store.secrets import list_secrets
from aos_runtime.store.shown_wit import show_wit
from aos_runtime.store.stage import LOCK_WAIT_S, Stage
from aos_runtime.store.staging import UNDO_FILE, Undo, capsule_lock, claim_folder, sweep_staging, write_undo
from aos_runtime.store.sweep import sweep, sweep_capsule
from aos_runtime.store.tree import is_binary, sync_tree

__all__ = ["Approval", "Removed", "change_env", "commit", "remove_installed", "sweep"]

WIT_FOLDER = "wit/"
WIT_SUFFIX = ".wit"
LINK_NAME = "link"

_ALLOWED = {
    ApprovalSource.LOCAL_BUILD: (Provenances.LOCAL,),
    ApprovalSource.BUNDLED: (Provenances.BUNDLED,),
    ApprovalSource.EXPLICIT: tuple(Provenances),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The yes to one stage.  It holds for the bytes that were staged and for nothing else."""

    source: ApprovalSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What `remove_installed` took away.  `version` is None where only leftovers of a capsule were purged."""

    name: CapsuleName
    version: str | None
    env_keys: tuple[str, ...]
    secret_keys: tuple[EnvKey, ...]
    kv_entries: int


def commit(
    stage: Stage,
    *,
    approval: Approval,
    env: EnvChanges = NO_CHANGES,
    source_text: str | None,
    confirm: Callable[[], None] | None = None,
) -> Installed:
    """Make `stage` the installed version, in one step and as the last one.

    `source_text` is recorded as where it came from (an absolute path).  Whatever fails before that step
    leaves the old version and the old env values; Denied `approval-mismatch` where the approval does not fit
    the origin.  `confirm` is called while the old version is there beside the new one, if there was one;
    where it raises, the old one is put back.
    """
    if stage.provenance_class not in _ALLOWED[approval.source]:
        raise Denied(
            "approval-mismatch",
            f"the approval `{approval.source}` does not cover an archive that is {stage.provenance_class}",
            hint="ask for an explicit approval of this archive",
        )
    check_changes(env)
    stage.verify()
    _put_content(stage)
    write_atomic(stage.tree / META_FILE, render_meta(_meta(stage, source_text)), sync=False)
    folder = generation_name(stage.content_digest, secrets.token_hex(8))
    _publish(stage, _receipt(stage, approval), env, folder, confirm)
    _after_commit(stage)
    return read_installed(stage.home, stage.principal, stage.name)


def change_env(
    home: Home,
    principal: PrincipalName,
    name: CapsuleName,
    changes: EnvChanges,
    *,
    wait_s: float = LOCK_WAIT_S,
) -> None:
    """Set or forget env values of an installed capsule.  Errors as for `commit`, Conflict `busy`."""
    open_home(home, create=True)
    check_changes(changes)
    lock = capsule_lock(home, principal, name)
    lock.acquire(wait_s)
    with lock:
        sweep_staging(home, held=(principal, name))
        _change_alone(home, principal, name, changes)


def remove_installed(
    home: Home,
    principal: PrincipalName,
    name: CapsuleName,
    *,
    purge: bool,
    force: bool = False,
    wait_s: float = LOCK_WAIT_S,
) -> Removed:
    """Take a capsule away; its env values, secrets and stored data only with `purge` (INS-09).

    NotFound `capsule-not-installed`; Conflict `capsule-needed` where another capsule imports what only this
    one exports, unless `force`; Conflict `busy`.
    """
    open_home(home, create=False)
    if read_pointer(home, principal, name) is None and not (purge and _has_leftovers(home, principal, name)):
        raise _not_installed(principal, name)
    lock = capsule_lock(home, principal, name)
    lock.acquire(wait_s)
    with lock:
        sweep_staging(home, held=(principal, name))
        version = _unlink(home, principal, name, force=force)
        removed = _purge(home, principal, name, version) if purge else _removed(name, version)
    _tell_changed(home, principal)
    return removed


def _change_alone(home: Home, principal: PrincipalName, name: CapsuleName, changes: EnvChanges) -> None:
    """Change env values outside an install; taking the undo record away is the commit."""
    folder = claim_folder(home)
    try:
        before = capture(home, principal, name, changes)
        write_undo(folder.path, Undo(principal=principal, capsule=name, generation="", before=before))
        apply_changes(home, principal, name, changes)
        remove_file(folder.path / UNDO_FILE)
    finally:
        folder.release()


def _put_content(stage: Stage) -> None:
    """Blobs and WIT files, durable before anything names them; `stage.repaired` tells of damaged ones."""
    for entry in stage.entries:
        if is_binary(entry.path):
            stored = put_blob(stage.home, stage.read_binary(entry.digest))
            stage.repaired += (stored.digest,) if stored.repaired else ()
    for path in _wit_paths(stage):
        put_wit(stage.home, (stage.tree / path).read_bytes())


def _publish(
    stage: Stage, receipt: Receipt, env: EnvChanges, folder: str, confirm: Callable[[], None] | None
) -> None:
    home, principal, name = stage.home, stage.principal, stage.name
    generation = home.generations(principal, name) / folder
    make_private_folder(generation.parent)
    make_private_folder(home.installed(principal))
    sync_tree(stage.tree)
    rename(stage.tree, generation)
    before: EnvBefore | None = None
    try:
        write_receipt(home, receipt)
        before = _change_env(stage, env, folder)
        make_link(stage.folder / LINK_NAME, pointer_target(name, folder))
        _swap(stage, generation)
        if confirm is not None and stage.previous is not None:
            _confirm(stage, stage.previous, confirm)
    except BaseException:
        if before is not None:
            restore(home, principal, name, before)
        with contextlib.suppress(AosError):
            sweep_capsule(home, principal, name)
        raise


def _change_env(stage: Stage, env: EnvChanges, folder: str) -> EnvBefore | None:
    if not env:
        return None
    home, principal, name = stage.home, stage.principal, stage.name
    before = capture(home, principal, name, env)
    write_undo(stage.folder, Undo(principal=principal, capsule=name, generation=folder, before=before))
    apply_changes(home, principal, name, env)
    return before


def _swap(stage: Stage, generation: Path) -> None:
    """The commit.

    A failure to sync after the rename does not undo it: readers see the new version already.
    """
    try:
        rename(stage.folder / LINK_NAME, stage.home.capsule(stage.principal, stage.name))
    except Unavailable:
        pointer = read_pointer(stage.home, stage.principal, stage.name)
        if pointer is None or pointer.folder != generation:
            raise


def _confirm(stage: Stage, previous: Installed, confirm: Callable[[], None]) -> None:
    """Ask whether the new version may stay; else readers see the old one again."""
    try:
        confirm()
    except BaseException:
        make_link(stage.folder / LINK_NAME, pointer_target(stage.name, previous.generation.name))
        rename(stage.folder / LINK_NAME, stage.home.capsule(stage.principal, stage.name))
        raise


def _after_commit(stage: Stage) -> None:
    """Tidy up; nothing here can take the new version back."""
    with contextlib.suppress(AosError):
        sweep_capsule(stage.home, stage.principal, stage.name)
    with contextlib.suppress(AosError):
        record_removed(stage.home, stage.principal, stage.name, removed=False)
    _tell_changed(stage.home, stage.principal)


def _tell_changed(home: Home, principal: PrincipalName) -> None:
    """Bring up to date what is made from what is installed; the next change or start does it otherwise."""
    with contextlib.suppress(AosError):
        show_wit(home, principal)
    with contextlib.suppress(AosError):
        rebuild(home)


def _meta(stage: Stage, source_text: str | None) -> Meta:
    now = render_time(stage.now)
    provenance = stage.inventory.provenance
    return Meta(
        version=stage.manifest.version,
        installed_at=now if stage.previous is None else stage.previous.meta.installed_at,
        updated_at=now,
        source=source_text,
        imports=stage.manifest.imports_json(),
        exports=stage.manifest.exports_json(),
        wasm_hash=stage.wasm_digest,
        wit_files={path.removeprefix(WIT_FOLDER): digest for path, digest in _wit_paths(stage).items()},
        signer=None if provenance is None else provenance.signer,
        signature=None if provenance is None else provenance.signature_text,
    )


def _wit_paths(stage: Stage) -> dict[str, str]:
    """The WIT files that go to the shared store (build-install.md 5.10): path and digest."""
    return {
        entry.path: entry.digest
        for entry in stage.entries
        if entry.path.startswith(WIT_FOLDER)
        and entry.path.endswith(WIT_SUFFIX)
        and entry.size_bytes <= MAX_WIT_BYTES
    }


def _receipt(stage: Stage, approval: Approval) -> Receipt:
    provenance = stage.inventory.provenance
    return Receipt(
        principal=stage.principal,
        capsule=stage.name,
        version=stage.manifest.version,
        source=approval.source,
        content_digest=stage.content_digest,
        manifest_digest=manifest_digest(stage.inventory.manifest),
        capabilities=stage.manifest.capabilities,
        requests=all_requests(stage.manifest),
        wasm_digest=stage.wasm_digest,
        signer=None if provenance is None else provenance.signer,
        signature=None if provenance is None else provenance.signature_text,
        entries=stage.entries,
    )


def _unlink(home: Home, principal: PrincipalName, name: CapsuleName, *, force: bool) -> str | None:
    """Take the link away, which is the removal; the rest is sweeping.  The version that was there."""
    if read_pointer(home, principal, name) is None:
        return None
    version = "unknown"
    bundled = False
    with contextlib.suppress(Corrupt):
        installed = read_installed(home, principal, name)
        version, bundled = installed.version, installed.bundled
    if not force:
        check_no_dependents(home, principal, name)
    if bundled or any(row.name == name for row in read_catalogue()):
        record_removed(home, principal, name, removed=True)
    remove_file(home.capsule(principal, name))
    sync_folder(home.installed(principal))
    sweep_capsule(home, principal, name)
    return version


def _purge(home: Home, principal: PrincipalName, name: CapsuleName, version: str | None) -> Removed:
    """Erase what a removal keeps.  The env file goes last: while it is there a purge can be repeated."""
    env_path = home.env_file(principal, name)
    secret_keys = list_secrets(home, principal, name)
    env_keys = _env_keys(home, principal, name, secret_keys)
    kv_entries = 0
    if home.state_db.exists():
        with KvStore(home.state_db) as store:
            kv_entries = store.space(principal, name).clear_prefix("")
    if remove_tree(home.capsule_secrets(principal, name)):
        sync_folder(home.capsule_secrets(principal, name).parent)
    if remove_file(env_path):
        sync_folder(env_path.parent)
    return Removed(
        name=name, version=version, env_keys=env_keys, secret_keys=secret_keys, kv_entries=kv_entries
    )


def _env_keys(
    home: Home, principal: PrincipalName, name: CapsuleName, secret_keys: tuple[EnvKey, ...]
) -> tuple[str, ...]:
    try:
        stored = read_env(home, principal, name)
    except Corrupt:
        return ()
    return tuple(sorted(key for key in stored if key not in secret_keys))


def _has_leftovers(home: Home, principal: PrincipalName, name: CapsuleName) -> bool:
    return home.env_file(principal, name).exists() or bool(list_secrets(home, principal, name))


def _removed(name: CapsuleName, version: str | None) -> Removed:
    return Removed(name=name, version=version, env_keys=(), secret_keys=(), kv_entries=0)


def _not_installed(principal: PrincipalName, name: CapsuleName) -> NotFound:
    return NotFound(
        "capsule-not-installed",
        f"capsule `{name}` is not installed for principal `{principal}`",
        hint="run `aos capsule list` to see what is",
        name=name,
        principal=principal,
    )
