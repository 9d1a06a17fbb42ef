"""Files as they were before somebody changed them, kept so that they can be put back.

Before a change what stands at its place is copied to a folder of the runtime's; `undo` puts the copies back,
the last first.  Only places that were about to be changed are touched; what others change there meanwhile
goes with it.  Nothing here follows a link that leads out of its root.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from aos_runtime.store.file_handles import MAX_PIECE_BYTES, check_regular, refusing, write_all
from aos_runtime.store.file_tree import LISTED_FOLDER, At, FileCase, FileRefused, FileTree, Parts, Spot
from aos_runtime.store.files import make_private_folder
from aos_runtime.store.guest_files import MAX_DEPTH, MAX_REMOVED, remove_name

MAX_KEPT_BYTES = 1 << 30
MAX_KEPT_NAMES = MAX_REMOVED
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileUndo:
    """The changes of one run.  `folder` is made when something is kept in it; used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: list[tuple[FileTree, Parts, str | None]] = []
        """Places in the order of their first change, with the name of the copy; None: nothing stood there."""
        self._covered: set[tuple[FileTree, Parts]] = set()
        self._copies = 0
        self._left = [MAX_KEPT_BYTES, MAX_KEPT_NAMES]

    @refusing
    def remember(self, at: At, *, follow: bool, whole: bool) -> None:
        """Keep what stands at a place that is about to change, or note from which folder on nothing does.

        `follow`: the change goes through a link at the end.  `whole`: a folder may go with all below it; one
        that stays is not kept.  FileRefused `quota` for more than can be kept.
        """
        for depth in range(1, len(at.parts) + 1):
            is_last = depth == len(at.parts)
            try:
                spot = at.tree.reach(at.parts[:depth], follow=follow or not is_last)
            except (FileNotFoundError, NotADirectoryError):
                return  # nothing can be changed there
            with spot:
                if is_last or spot.status is None:
                    at.admit((*spot.parts, *at.parts[depth:]))
                    self._keep(at.tree, spot, whole=whole)
                    return

    def undo(self) -> tuple[str, ...]:
        """Put everything back; the places where that failed."""
        failed = []
        for tree, parts, copy in reversed(self._kept):
            try:
                self._put_back(tree, parts, copy)
            except (OSError, FileRefused):
                failed.append("/".join(parts))
        self._kept, self._covered = [], set()
        return tuple(failed)

    def _keep(self, tree: FileTree, spot: Spot, *, whole: bool) -> None:
        above = (spot.parts[:depth] for depth in range(1, len(spot.parts) + 1))
        if any((tree, parts) in self._covered for parts in above) or (spot.is_folder and not whole):
            return
        copy = None
        if spot.status is not None:
            self._copies += 1
            copy = str(self._copies)
            make_private_folder(self._folder)
            target = os.open(self._folder, LISTED_FOLDER)
            try:
                _copy(spot.folder, spot.name, target, copy, self._left, MAX_DEPTH)
            finally:
                os.close(target)
        self._kept.append((tree, spot.parts, copy))
        self._covered.add((tree, spot.parts))

    def _put_back(self, tree: FileTree, parts: Parts, copy: str | None) -> None:
        with tree.reach(parts, follow=False) as spot:
            if spot.status is not None:
                remove_name(spot.folder, spot.name, MAX_REMOVED, MAX_DEPTH)
            if copy is None:
                return
            source = os.open(self._folder, LISTED_FOLDER)
            try:
                _copy(source, copy, spot.folder, spot.name, [MAX_KEPT_BYTES, MAX_KEPT_NAMES], MAX_DEPTH)
            finally:
                os.close(source)


def _copy(source: int, name: str, target: int, new: str, left: list[int], depth: int) -> None:
    """Copy a file, a link or a folder with all below it between open folders; `left` are bytes and names."""
    found = os.stat(name, dir_fd=source, follow_symlinks=False)
    left[1] -= 1
    if not depth or left[1] < 0:
        raise FileRefused(FileCase.QUOTA)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), new, dir_fd=target)
    elif stat.S_ISDIR(found.st_mode):
        _copy_folder(source, name, target, new, left, depth)
    else:
        check_regular(found)
        _copy_file(source, name, target, new, left)


def _copy_folder(source: int, name: str, target: int, new: str, left: list[int], depth: int) -> None:
    reading = os.open(name, LISTED_FOLDER, dir_fd=source)
    try:
        os.mkdir(new, 0o700, dir_fd=target)
        writing = os.open(new, LISTED_FOLDER, dir_fd=target)
        try:
            with os.scandir(reading) as entries:
                for entry in entries:
                    _copy(reading, entry.name, writing, entry.name, left, depth - 1)
            os.fchmod(writing, stat.S_IMODE(os.fstat(reading).st_mode))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_file(source: int, name: str, target: int, new: str, left: list[int]) -> None:
    reading = os.open(name, _READ, dir_fd=source)
    try:
        check_regular(os.fstat(reading))
        writing = os.open(new, _MAKE, 0o600, dir_fd=target)
        try:
            while piece := os.read(reading, MAX_PIECE_BYTES):
                left[0] -= len(piece)
                if left[0] < 0:
                    raise FileRefused(FileCase.QUOTA)
                write_all(writing, piece)
            os.fchmod(writing, stat.S_IMODE(os.fstat(reading).st_mode))
        finally:
            os.close(writing)
    finally:
        os.close(reading)
