"""Making and ending principals: what a new one starts with, and that a deleted one leaves nothing.

A new principal inherits nothing (SEC-13).  Where a source is named, exactly its installed capsules are
copied, each with its receipt, its env values and its secrets; never keys, stored data or logs.  Deleting
takes the profile away first, so that whatever a kill leaves behind belongs to nobody who could connect; a
name whose files are still there cannot be made again before they are gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from aos_runtime.errors import AosError, Conflict
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.bundled import read_removed, record_removed
from aos_runtime.store.files import (
    make_link,
    make_private_folder,
    open_regular,
    read_optional,
    remove_file,
    remove_tree,
    sync_folder,
    write_atomic,
)
from aos_runtime.store.installed import Broken, Installed, list_installed
from aos_runtime.store.kv import KvStore
from aos_runtime.store.names_index import rebuild
from aos_runtime.store.receipts import write_receipt
from aos_runtime.store.secrets import list_secrets, read_secret, write_secret
from aos_runtime.store.shown_wit import show_wit
from aos_runtime.store.tree import sync_tree, walk_files

MAX_ENV_BYTES = 16 * 1024 * 1024
_OWNER_MODE = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """What deleting a principal took away: relative paths and `kv:N`; `errors` are what stayed, and why."""

    what: tuple[str, ...]
    errors: tuple[str, ...]


def check_no_leftovers(home: Home, principal: PrincipalName, state: KvStore) -> None:
    """Conflict `principal-leftovers` where files or data of a former principal of that name are there.

    A new principal would inherit them.
    """
    found = [str(path.relative_to(home.state)) for path in _own_paths(home, principal) if _is_there(path)]
    found += ["stored data"] if state.stored_bytes(principal) else []
    if found:
        raise Conflict(
            "principal-leftovers",
            f"a new principal '{principal}' would inherit what is there under its name: {', '.join(found)}",
            hint=f"remove it with `aos agent delete {principal}`, or choose another name",
            principal=principal,
        )


def copy_capsules(home: Home, source: PrincipalName, target: PrincipalName) -> tuple[CapsuleName, ...]:
    """Copy every capsule of `source`, with env values and secrets, to `target`, which has none.

    Capsules that cannot be read are not copied: what was agreed for them cannot be told.
    """
    copied = []
    for entry in list_installed(home, source):
        if not isinstance(entry, Broken):
            _copy_capsule(home, entry, target)
            copied.append(entry.name)
    for name in read_removed(home, source):
        record_removed(home, target, name, removed=True)
    show_wit(home, target)
    rebuild(home)
    return tuple(copied)


def reclaim(home: Home, principal: PrincipalName, state: KvStore) -> Reclaimed:
    """(profiles lock held) Remove everything that belongs to a principal, its profile first.

    Never raises for what cannot be removed: it is named, and the rest goes on.
    """
    done: list[str] = []
    errors: list[str] = []

    def attempt(what: str, remove: Callable[[], bool]) -> None:
        try:
            if remove():
                done.append(what)
        except AosError as error:
            errors.append(f"{what}: {error.message}")

    attempt("profile", lambda: _remove_profile(home, principal))
    for path in _own_paths(home, principal):
        attempt(str(path.relative_to(home.state)), lambda path=path: remove_tree(path))  # type: ignore[misc]
    entries = state.forget(principal)
    if entries:
        done.append(f"kv:{entries}")
    for name in read_removed(home, principal):
        record_removed(home, principal, name, removed=False)
    rebuild(home)
    return Reclaimed(what=tuple(done), errors=tuple(errors))


def _remove_profile(home: Home, principal: PrincipalName) -> bool:
    if not remove_file(home.profile(principal)):
        return False
    sync_folder(home.profiles)
    return True


def _own_paths(home: Home, principal: PrincipalName) -> Iterator[Path]:
    """Where a principal's files lie, its key first; the profile apart."""
    yield home.principal_key(principal)
    yield home.secrets / principal
    yield home.principal(principal)
    yield home.all_receipts(principal)
    if home.log_folder(principal) != home.log:
        yield home.log_folder(principal)
    yield home.tools_file(principal)
    yield home.identities(principal)


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def _copy_capsule(home: Home, installed: Installed, target: PrincipalName) -> None:
    """Copy one capsule; its link, which makes it installed, is the last thing written."""
    name, folder = installed.name, installed.generation
    generation = home.generations(target, name) / folder.name
    for inside, path in walk_files(folder):
        _copy_file(path, generation / inside)
    make_private_folder(generation)
    sync_tree(generation)
    write_receipt(home, replace(installed.receipt, principal=target))
    env = read_optional(home.env_file(installed.principal, name), MAX_ENV_BYTES)
    if env is not None:
        make_private_folder(home.env_file(target, name).parent)
        write_atomic(home.env_file(target, name), env)
    for key in list_secrets(home, installed.principal, name):
        value = read_secret(home, installed.principal, name, key)
        if value is not None:
            write_secret(home, target, name, key, value)
    make_private_folder(home.installed(target))
    make_link(home.capsule(target, name), f"../generations/{name}/{folder.name}")
    sync_folder(home.installed(target))


def _copy_file(source: Path, target: Path) -> None:
    make_private_folder(target.parent)
    with open_regular(source) as file:
        mode = os.fstat(file.fileno()).st_mode & _OWNER_MODE
        data = file.read()
    write_atomic(target, data, mode=mode, sync=False)
