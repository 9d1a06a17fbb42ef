"""A folder that guests reach into, walked so that nothing leads out of it.

Every name is opened below the folder before it and never through a link: a link is read, its target is worked
out in text, and the walk starts again from the root.  So it does not matter who swaps which name meanwhile:
what is opened lies below the root (cases ABI-02, ABI-05).  Which places a capsule may use is not known here;
an operation asks `admit` with the place that the walk came to, before it has an effect.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self

MAX_TURNS = 256
"""Links, and steps up in their texts, on the way of one path."""

Parts = tuple[str, ...]
"""Names from the root down."""
Admit = Callable[[Parts], None]
"""Raises FileRefused where the capsule may not use the place that a path led to."""
Grow = Callable[[int], None]
"""Raises FileRefused where there is no room for so many bytes; 0 for a name alone."""

PRIVATE_UMASK = 0o077
"""Of the daemon's own files."""

_PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY)
_ROOT = _PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ROOT | os.O_NOFOLLOW
LISTED_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP)


class FileCase(StrEnum):
    """The arms of the error of `astrid:fs/host@1.0.0`."""

    NOT_FOUND = "not-found"
    ACCESS = "access"
    CAPABILITY_DENIED = "capability-denied"
    BOUNDARY_ESCAPE = "boundary-escape"
    INVALID_PATH = "invalid-path"
    WOULD_BLOCK = "would-block"
    IS_DIRECTORY = "is-directory"
    NOT_DIRECTORY = "not-directory"
    NOT_EMPTY = "not-empty"
    TOO_LARGE = "too-large"
    QUOTA = "quota"
    CROSS_VFS = "cross-vfs"
    ALREADY_EXISTS = "already-exists"
    CLOSED = "closed"
    UNKNOWN = "unknown"


class FileRefused(Exception):
    """An operation that was not done.  `detail` is for `unknown(text)` and names no path of this machine."""

    def __init__(self, case: FileCase, detail: str = "") -> None:
        super().__init__(f"{case}: {detail}" if detail else case.value)
        self.case = case
        self.detail = detail


_CASES = {
    errno.ENOENT: FileCase.NOT_FOUND,
    errno.EACCES: FileCase.ACCESS,
    errno.EPERM: FileCase.ACCESS,
    errno.EROFS: FileCase.ACCESS,
    errno.EBADF: FileCase.ACCESS,
    errno.EMFILE: FileCase.ACCESS,
    errno.ENFILE: FileCase.ACCESS,
    errno.EISDIR: FileCase.IS_DIRECTORY,
    errno.ENOTDIR: FileCase.NOT_DIRECTORY,
    errno.ENOTEMPTY: FileCase.NOT_EMPTY,
    errno.EEXIST: FileCase.ALREADY_EXISTS,
    errno.ENOSPC: FileCase.QUOTA,
    errno.EDQUOT: FileCase.QUOTA,
    errno.EFBIG: FileCase.TOO_LARGE,
    errno.EXDEV: FileCase.CROSS_VFS,
    errno.EAGAIN: FileCase.WOULD_BLOCK,
    errno.EINVAL: FileCase.INVALID_PATH,
    errno.ENAMETOOLONG: FileCase.INVALID_PATH,
    errno.ELOOP: FileCase.INVALID_PATH,
}


def refusal_of(error: OSError) -> FileRefused:
    """What an error of the operating system is to a guest; its text without the path."""
    case = _CASES.get(error.errno or 0, FileCase.UNKNOWN)
    return FileRefused(case, os.strerror(error.errno) if error.errno else "the file system failed")


class Spot:
    """Where a walk ended: a name in an open folder.  A context manager, which closes the folder.

    `parts` is the place without links; for the root itself it is empty and the name is `.`.  `status` is that
    of the name, None where nothing stands there; of a link where the walk did not follow the last name.
    """

    __slots__ = ("folder", "name", "parts", "status")

    def __init__(self, folder: int, parts: Parts) -> None:
        self.folder = folder
        self.parts = parts
        self.name = parts[-1] if parts else "."
        try:
            self.status: os.stat_result | None = os.stat(self.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            self.status = None

    @property
    def is_link(self) -> bool:
        return self.status is not None and stat.S_ISLNK(self.status.st_mode)

    @property
    def is_folder(self) -> bool:
        return self.status is not None and stat.S_ISDIR(self.status.st_mode)

    def found(self) -> os.stat_result:
        """The status of what stands here.  FileRefused `not-found` where nothing does."""
        if self.status is None:
            raise FileRefused(FileCase.NOT_FOUND)
        return self.status

    def check_below_root(self) -> None:
        """FileRefused `access` for the root, which a guest neither makes nor moves."""
        if not self.parts:
            raise FileRefused(FileCase.ACCESS)

    def open_folder(self) -> int:
        """A descriptor of the folder that stands here, to list it."""
        return os.open(self.name, LISTED_FOLDER, dir_fd=self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self.folder)


def has_room(_added_bytes: int) -> None:
    """The `Grow` of a folder whose owner looks after it."""


class FileTree:
    """One root.  With `is_canonical` its own path may hold no link, not even one that is put there later.

    What is made below it has the rights that `umask` leaves, whatever that of the process is.  `grow` hears
    how many bytes are about to be added, and raises FileRefused where there is no room.
    """

    __slots__ = ("_is_canonical", "grow", "names", "path", "umask")

    def __init__(
        self,
        path: Path,
        *,
        is_canonical: bool,
        umask: int = PRIVATE_UMASK,
        grow: Grow = has_room,
    ) -> None:
        self.path = path
        self.grow = grow
        self.umask = umask
        self._is_canonical = is_canonical
        self.names: Parts = path.parts[1:]
        """From `/` down to the root."""

    def reach(self, parts: Parts, *, follow: bool) -> Spot:
        """Walk to a place, through links that stay inside; the last name is followed where `follow` says so.

        FileRefused `boundary-escape` where a link leads out, OSError where a folder is missing.
        """
        for _ in range(MAX_TURNS):
            found = self._step(parts, follow=follow)
            if isinstance(found, Spot):
                return found
            parts = found
        raise FileRefused(FileCase.INVALID_PATH)

    def make_folders(self, parts: Parts, admit: Admit) -> None:
        """Make a folder and what is missing above it; fine where it is there."""
        for _ in range(MAX_TURNS):
            turned = self._make_folders(parts, admit)
            if turned is None:
                return
            parts = turned
        raise FileRefused(FileCase.INVALID_PATH)

    def target_of(self, spot: Spot) -> Parts:
        """Where the link at `spot` leads, in text, which may step up through links that it names itself.

        FileRefused `boundary-escape` where that is outside.
        """
        return self._resolve(spot.parts[:-1], os.readlink(spot.name, dir_fd=spot.folder))

    def open_root(self) -> int:
        """A descriptor of the root."""
        if not self._is_canonical:
            return os.open(self.path, _ROOT)
        folder = os.open("/", _ROOT)
        for name in self.names:
            folder = _descend(folder, name)
        return folder

    def _step(self, parts: Parts, *, follow: bool) -> Spot | Parts:
        """Walk until the end, a link or a step up; with one of these, what it makes of the whole path."""
        folder = self.open_root()
        for depth, name in enumerate(parts):
            if name == "..":
                os.close(folder)
                return _up(parts, depth)
            if depth == len(parts) - 1:
                break
            try:
                folder = _descend(folder, name, keep=_NOT_A_FOLDER)
            except OSError as error:
                if error.errno not in _NOT_A_FOLDER:
                    raise
                return self._turn(folder, parts, depth + 1, error)
        spot = _spot(folder, parts)
        if follow and spot.is_link:
            return self._turn(folder, parts, len(parts), OSError(errno.ELOOP, ""))
        return spot

    def _turn(self, folder: int, parts: Parts, depth: int, error: OSError) -> Parts:
        """The way on where the name before `depth` is a link; `error` where it is none.  Closes `folder`."""
        with _spot(folder, parts[:depth]) as spot:
            if not spot.is_link:
                raise error
            return self.target_of(spot) + parts[depth:]

    def _make_folders(self, parts: Parts, admit: Admit) -> Parts | None:
        """One try; the path to go on with where a link or a step up is on the way."""
        folder, is_admitted = self.open_root(), False
        for depth, name in enumerate(parts, 1):
            if name == "..":
                os.close(folder)
                return _up(parts, depth - 1)
            try:
                folder = _descend(folder, name, keep=(*_NOT_A_FOLDER, errno.ENOENT))
            except OSError as error:
                if error.errno in _NOT_A_FOLDER:
                    return self._turn(folder, parts, depth, error)
                if error.errno != errno.ENOENT:
                    raise
                if ".." in parts:  # it steps up out of what is not there
                    os.close(folder)
                    raise
                folder = self._make_and_descend(folder, name, None if is_admitted else lambda: admit(parts))
                is_admitted = True
        os.close(folder)
        if not is_admitted:
            admit(parts)
        return None

    def _make_and_descend(self, folder: int, name: str, admit: Callable[[], None] | None) -> int:
        """Make the folder `name` unless somebody else just did, and descend into it."""
        try:
            if admit is not None:
                admit()
            self.grow(0)
            with contextlib.suppress(FileExistsError):
                make_folder_at(folder, name, self.umask)
        except BaseException:
            os.close(folder)
            raise
        return _descend(folder, name)

    def _resolve(self, base: Parts, text: str) -> Parts:
        """The place that a link in the folder `base` names; `base` holds no link itself.

        What comes before a step up may be a link: only those at the start can be taken at once.
        """
        names = [name for name in text.split("/") if name not in ("", ".")]
        if text.startswith("/"):
            if tuple(names[: len(self.names)]) != self.names:
                raise FileRefused(FileCase.BOUNDARY_ESCAPE)
            names, base = names[len(self.names) :], ()
        while names and names[0] == "..":
            if not base:
                raise FileRefused(FileCase.BOUNDARY_ESCAPE)
            names, base = names[1:], base[:-1]
        return (*base, *names)


class At(NamedTuple):
    """A place of a tree that a guest named, and what is asked before anything is done at the real one."""

    tree: FileTree
    parts: Parts
    admit: Admit

    def reach(self, *, follow: bool) -> Spot:
        """As `FileTree.reach`, for a place that is admitted."""
        spot = self.tree.reach(self.parts, follow=follow)
        try:
            self.admit(spot.parts)
        except BaseException:
            os.close(spot.folder)
            raise
        return spot

    def make_folders(self) -> None:
        """As `FileTree.make_folders`."""
        self.tree.make_folders(self.parts, self.admit)


def _descend(folder: int, name: str, *, keep: tuple[int, ...] = ()) -> int:
    """The folder `name` in place of `folder`, which is closed; for an error of `keep` it stays open."""
    try:
        below = os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno not in keep:
            os.close(folder)
        raise
    os.close(folder)
    return below


def make_folder_at(folder: int, name: str, umask: int) -> None:
    """Make the folder `name` in the open `folder`."""
    mode = 0o777 & ~umask
    os.mkdir(name, mode, dir_fd=folder)
    if umask != PRIVATE_UMASK:
        made = os.open(name, LISTED_FOLDER, dir_fd=folder)
        try:
            os.fchmod(made, mode)
        finally:
            os.close(made)


def _up(parts: Parts, depth: int) -> Parts:
    """`parts` without the `..` at `depth` and the folder before it, which is one: the walk has come through.

    FileRefused `boundary-escape` where that is the root.
    """
    if not depth:
        raise FileRefused(FileCase.BOUNDARY_ESCAPE)
    return parts[: depth - 1] + parts[depth + 1 :]


def _spot(folder: int, parts: Parts) -> Spot:
    try:
        return Spot(folder, parts)
    except BaseException:
        os.close(folder)
        raise
