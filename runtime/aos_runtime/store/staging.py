"""Private folders for installs under way: made, held while their process lives, swept when it died.

A folder is owned by a lock on the folder itself, so its owner's death frees it and no process id can be
mistaken for another.  Before a commit touches env values it leaves an undo record here; whoever sweeps a
folder whose commit never happened puts the old values back.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from aos_runtime.errors import AosError, Corrupt, NotFound
from aos_runtime.home import Home
from aos_runtime.names import (
    CapsuleName,
    PrincipalName,
    parse_capsule_name,
    parse_principal_name,
)
from aos_runtime.store.env import EnvBefore, restore
from aos_runtime.store.files import (
    PRIVATE_FOLDER,
    FileLock,
    explained,
    list_folder,
    make_private_folder,
    read_bounded,
    read_optional,
    remove_tree,
    write_atomic,
)
from aos_runtime.store.installed import read_pointer

UNDO_FILE = "undo.json"
MAX_UNDO_BYTES = 64 * 1024 * 1024
_STAGE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """What puts env values back unless `generation` became the live one."""

    principal: PrincipalName
    capsule: CapsuleName
    generation: str
    before: EnvBefore


class StageFolder:
    """A staging folder held by this process until `release`."""

    __slots__ = ("_handle", "path")

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle: int | None = handle

    @property
    def stage_id(self) -> str:
        """The token under which another process of this user finds the folder."""
        return self.path.name

    def release(self) -> None:
        """Remove the folder and stop holding it."""
        if self._handle is None:
            return
        try:
            remove_tree(self.path)
        finally:
            os.close(self._handle)
            self._handle = None


def claim_folder(home: Home) -> StageFolder:
    """Make a new folder that no sweeper takes for abandoned."""
    make_private_folder(home.staging)
    while True:
        path = home.staging / secrets.token_hex(16)
        with explained(path):
            path.mkdir(PRIVATE_FOLDER)
        handle = _try_hold(path)
        if handle is not None:
            return StageFolder(path, handle)


def find_folder(home: Home, stage_id: str) -> Path:
    """The folder of a stage that another process holds.  NotFound `stage-unknown`; the id may be hostile."""
    path = home.staging / stage_id
    if not _STAGE_ID.fullmatch(stage_id) or not path.is_dir() or path.is_symlink():
        raise NotFound(
            "stage-unknown",
            f"there is no staged install {stage_id[:64]!r}",
            hint="run the install again",
        )
    return path


def write_undo(folder: Path, undo: Undo) -> None:
    """Leave the undo record, durably, before anything that it undoes is written."""
    value = {
        "principal": undo.principal,
        "capsule": undo.capsule,
        "generation": undo.generation,
        "text": undo.before.text,
        "secrets": dict(undo.before.secrets),
    }
    write_atomic(folder / UNDO_FILE, json.dumps(value).encode("utf-8"))


def sweep_staging(home: Home, *, held: tuple[PrincipalName, CapsuleName] | None = None) -> None:
    """Remove the folders of dead installs, undoing their env changes.

    `held` names the capsule whose lock the caller holds.  A folder whose undo concerns a capsule that
    somebody else is changing is left to the next writer.
    """
    for path in list_folder(home.staging):
        handle = _try_hold(path)
        if handle is None:
            continue
        try:
            if _undo(home, path, held):
                remove_tree(path)
        finally:
            os.close(handle)


def _undo(home: Home, folder: Path, held: tuple[PrincipalName, CapsuleName] | None) -> bool:
    """Apply the undo record of a dead install, if it left one; whether the folder may go."""
    data = read_optional(folder / UNDO_FILE, MAX_UNDO_BYTES)
    if data is None:
        return True
    undo = _parse_undo(data)
    if undo is None:
        return True
    if (undo.principal, undo.capsule) == held:
        _restore_unless_live(home, undo)
        return True
    lock = capsule_lock(home, undo.principal, undo.capsule)
    if not lock.try_acquire():
        return False
    with lock:
        _restore_unless_live(home, undo)
    return True


def capsule_lock(home: Home, principal: PrincipalName, capsule: CapsuleName) -> FileLock:
    """The lock that every writer of one installed capsule takes; its folder exists on return."""
    path = home.install_lock(principal, capsule)
    make_private_folder(path.parent)
    return FileLock(path)


def _restore_unless_live(home: Home, undo: Undo) -> None:
    try:
        pointer = read_pointer(home, undo.principal, undo.capsule)
    except Corrupt:
        pointer = None
    if pointer is None or pointer.folder.name != undo.generation:
        restore(home, undo.principal, undo.capsule, undo.before)


def _parse_undo(data: bytes) -> Undo | None:
    """The record, None where it is not one of ours: then nothing can be put back from it."""
    try:
        value = json.loads(data)
        return Undo(
            principal=parse_principal_name(value["principal"]),
            capsule=parse_capsule_name(value["capsule"]),
            generation=value["generation"],
            before=EnvBefore(text=value["text"], secrets=value["secrets"]),
        )
    except (ValueError, KeyError, TypeError, AosError):
        return None


def _try_hold(path: Path) -> int | None:
    """Lock a folder without waiting: the descriptor, None where it is held or gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino == os.fstat(handle).st_ino:  # noqa: PTH116 - compared with the descriptor's
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None


def read_staged(folder: Path, name: str, limit_bytes: int) -> bytes:
    """A file of a staging folder.  NotFound `stage-unknown` where the install that made it has ended."""
    try:
        return read_bounded(folder / name, limit_bytes)
    except FileNotFoundError as error:
        raise NotFound(
            "stage-unknown",
            "the staged install has ended",
            hint="run the install again",
        ) from error
