"""What a guest can do with files below one root: each operation whole, bounded and without a way out.

Every operation raises FileRefused.  Source: host-abi.md 1.2, the WIT of astrid:fs.
"""

from __future__ import annotations

import itertools
import os
import stat

from aos_runtime.store.file_handles import (
    MAX_FILE_BYTES,
    MAX_PIECE_BYTES,
    MODES,
    WRITE,
    FileStat,
    Made,
    OpenFile,
    check_regular,
    open_regular,
    opened,
    read_all,
    refusing,
    stat_of,
    write_all,
)
from aos_runtime.store.file_tree import LISTED_FOLDER, At, FileCase, FileRefused, Parts, make_folder_at

MAX_COPY_BYTES = 1024 * 1024 * 1024
MAX_NAMES = 4096
MAX_REMOVED = 100_000
"""Names that one call removes; called again, it goes on."""
MAX_DEPTH = 128
MAX_LINKS_KEPT = 1024


@refusing
def exists(at: At) -> bool:
    """Whether something stands there; a link that leads nowhere is nothing."""
    try:
        with at.reach(follow=True) as spot:
            return spot.status is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


@refusing
def status(at: At, *, follow: bool) -> FileStat:
    """What stands there; with `follow` what a link leads to."""
    with at.reach(follow=follow) as spot:
        return stat_of(spot.found())


@refusing
def list_names(at: At) -> tuple[Parts, list[str]]:
    """A folder's place without links, and the names in it, sorted; `too-large` for more than 4096.

    A name that is no UTF-8 is left out: a guest could not say it.
    """
    with at.reach(follow=True) as spot:
        spot.found()
        names = _names(spot.open_folder(), MAX_NAMES + 1)
    if len(names) > MAX_NAMES:
        raise FileRefused(FileCase.TOO_LARGE)
    return spot.parts, sorted(name for name in names if _is_text(name))


@refusing
def read(at: At) -> bytes:
    """A whole file; `too-large` over 10 MiB, by the bytes that were read."""
    with at.reach(follow=True) as spot:
        size = spot.found().st_size
        if size > MAX_FILE_BYTES:
            check_regular(spot.found())
            raise FileRefused(FileCase.TOO_LARGE)
        with opened(spot, os.O_RDONLY) as handle:
            return read_all(handle, size)


@refusing
def write(at: At, data: bytes, made: Made, *, append: bool = False) -> None:
    """Replace what a file holds, or add to it; it is made where it is missing, its folder is not.

    The caller has looked at the size of `data`.
    """
    mode = MODES["append" if append else "write"]
    at.tree.grow(len(data))
    with at.reach(follow=True) as spot, opened(spot, mode, made, at.tree.umask) as handle:
        if not append:
            os.ftruncate(handle, 0)
        write_all(handle, data)


@refusing
def open_file(at: At, mode: str, made: Made) -> OpenFile:
    """Open a file.  `mode` is a name of the WIT's `open-mode`."""
    with at.reach(follow=True) as spot:
        if spot.status is None and MODES[mode] & os.O_CREAT:
            at.tree.grow(0)
        handle = open_regular(spot, MODES[mode], None if mode == "read" else made, at.tree.umask)
        if mode == "write":
            os.ftruncate(handle, 0)
        return OpenFile(handle, at.tree.grow)


@refusing
def make_folder(at: At) -> None:
    """Make one folder; fine where it is there, as in the published runtime."""
    with at.reach(follow=True) as spot:
        spot.check_below_root()
        if not spot.is_folder:
            at.tree.grow(0)
            make_folder_at(spot.folder, spot.name, at.tree.umask)


@refusing
def make_folders(at: At) -> None:
    """Make a folder and what is missing above it; fine where it is there."""
    at.make_folders()


@refusing
def remove(at: At) -> None:
    """Remove a file, a link or an empty folder; `not-empty` for another one."""
    with at.reach(follow=False) as spot:
        spot.check_below_root()
        spot.found()
        (os.rmdir if spot.is_folder else os.unlink)(spot.name, dir_fd=spot.folder)


@refusing
def remove_all(at: At) -> int:
    """Remove a folder with all below it, never through a link; how many names that were.

    `too-large` after 100,000 names or 128 folders deep, with what was removed gone.
    """
    with at.reach(follow=False) as spot:
        spot.check_below_root()
        spot.found()
        return _remove_folder(spot.folder, spot.name, MAX_REMOVED, MAX_DEPTH)


@refusing
def resolve(at: At) -> Parts:
    """The place without links."""
    with at.reach(follow=True) as spot:
        spot.found()
        return spot.parts


@refusing
def read_link(at: At) -> Parts:
    """Where a link leads, one step; `invalid-path` for what is no link.

    Where its text steps up through another link, the place that it really leads to.
    """
    with at.reach(follow=False) as spot:
        spot.found()
        target = at.tree.target_of(spot)
    return resolve(at._replace(parts=target)) if ".." in target else target


@refusing
def copy(source: At, target: At, made: Made) -> None:
    """Copy a regular file over another one, or to a new name."""
    with (
        source.reach(follow=True) as origin,
        target.reach(follow=True) as spot,
        opened(origin, os.O_RDONLY) as reading,
        opened(spot, WRITE, made, target.tree.umask) as writing,
    ):
        if os.path.sameopenfile(reading, writing):
            return
        os.ftruncate(writing, 0)
        left = MAX_COPY_BYTES
        while piece := os.read(reading, MAX_PIECE_BYTES):
            left -= len(piece)
            if left < 0:
                raise FileRefused(FileCase.TOO_LARGE)
            target.tree.grow(len(piece))
            write_all(writing, piece)


@refusing
def rename(source: At, target: At) -> None:
    """Give what stands at `source` the name `target`; what had that name is gone."""
    with source.reach(follow=False) as old, target.reach(follow=False) as new:
        old.check_below_root()
        new.check_below_root()
        old.found()
        os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)


@refusing
def hard_link(source: At, target: At, made: Made) -> None:
    """Give a regular file one more name; the guest may go on writing to it."""
    with source.reach(follow=True) as old, target.reach(follow=False) as new:
        new.check_below_root()
        found = old.found()
        check_regular(found)
        os.link(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder, follow_symlinks=False)
        if len(made) < MAX_LINKS_KEPT:
            key = (found.st_dev, found.st_ino)
            made[key] = made.get(key, 0) + 1


def _names(folder: int, limit: int) -> list[str]:
    """Up to `limit` names in a folder, whose descriptor is closed."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in itertools.islice(entries, limit)]
    finally:
        os.close(folder)


def _remove_folder(parent: int, name: str, budget: int, depth: int) -> int:
    """Empty a folder and remove it; how many names are gone, at most `budget`."""
    if not depth:
        raise FileRefused(FileCase.TOO_LARGE)
    folder = os.open(name, LISTED_FOLDER, dir_fd=parent)
    removed = 0
    try:
        while names := _names(os.dup(folder), MAX_NAMES):
            os.lseek(folder, 0, os.SEEK_SET)
            for one in names:
                if removed + 1 >= budget:
                    raise FileRefused(FileCase.TOO_LARGE)
                removed += remove_name(folder, one, budget - removed, depth - 1)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)
    return removed + 1


def remove_name(folder: int, name: str, budget: int, depth: int) -> int:
    """Remove what stands at a name in an open folder, with all below it; how many names that were."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            return _remove_folder(folder, name, budget, depth)
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return 0  # somebody else was faster
    return 1


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
