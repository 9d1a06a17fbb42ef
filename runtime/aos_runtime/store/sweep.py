"""Removing what killed writers left: invisible to every reader, so it may wait for the next writer.

Everything here runs under the lock of what it touches, and removes only what no live link names.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from aos_runtime.errors import AosError, Corrupt, InvalidInput
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName, parse_capsule_name, parse_principal_name
from aos_runtime.store.content import collect_content, sweep_content
from aos_runtime.store.files import list_folder, remove_tree, sweep_temporaries
from aos_runtime.store.installed import Broken, list_installed, read_pointer
from aos_runtime.store.receipts import remove_receipts
from aos_runtime.store.staging import capsule_lock, sweep_staging


def sweep(home: Home) -> None:
    """Remove every leftover in the home; what another process is changing is left alone."""
    sweep_staging(home)
    for folder in (home.etc, home.profiles, home.keys, home.run, home.var, home.tools):
        sweep_temporaries(folder)
    sweep_content(home)
    is_quiet = True
    for principal in list_principal_folders(home):
        sweep_temporaries(home.shown_wit(principal))
        for name in _known_capsules(home, principal):
            lock = capsule_lock(home, principal, name)
            if lock.try_acquire():
                with lock, contextlib.suppress(AosError):
                    sweep_capsule(home, principal, name)
            else:
                is_quiet = False
    live = _live_content(home)
    if is_quiet and live is not None:
        collect_content(home, live, time.time())


def sweep_capsule(home: Home, principal: PrincipalName, name: CapsuleName) -> None:
    """Remove generations, receipts and temporary files that the live version does not use.

    The caller holds the capsule's lock.  A link that is not ours keeps everything as it is.
    """
    try:
        pointer = read_pointer(home, principal, name)
    except Corrupt:
        return
    for folder in list_folder(home.generations(principal, name)):
        if pointer is None or folder != pointer.folder:
            remove_tree(folder)
    remove_receipts(home, principal, name, keep=None if pointer is None else pointer.content)
    sweep_temporaries(home.env_file(principal, name).parent)
    sweep_temporaries(home.capsule_secrets(principal, name))
    if pointer is None:
        _remove_if_empty(home.generations(principal, name))
        _remove_if_empty(home.receipts(principal, name))


def list_principal_folders(home: Home) -> tuple[PrincipalName, ...]:
    """The principals that have a folder below `home/`."""
    found: list[PrincipalName] = []
    for path in list_folder(home.principals):
        with contextlib.suppress(InvalidInput):
            found.append(parse_principal_name(path.name))
    return tuple(found)


def _live_content(home: Home) -> frozenset[str] | None:
    """The digest of every stored file that an installed capsule names; None where one cannot be read."""
    live: set[str] = set()
    for principal in list_principal_folders(home):
        for found in list_installed(home, principal):
            if isinstance(found, Broken):
                return None
            live.update(entry.digest for entry in found.receipt.entries)
            live.update(found.meta.wit_files.values())
    return frozenset(live)


def _known_capsules(home: Home, principal: PrincipalName) -> tuple[CapsuleName, ...]:
    folders = (home.installed(principal), home.all_generations(principal), home.all_receipts(principal))
    names = {path.name for folder in folders for path in list_folder(folder)}
    found: list[CapsuleName] = []
    for name in sorted(names):
        with contextlib.suppress(InvalidInput):
            found.append(parse_capsule_name(name))
    return tuple(found)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
