"""What a guest can do with files below one root: each operation whole, bounded and without a way out.

Only regular files are ever opened: a FIFO, device or socket is refused unopened, and should one take a file's
place meanwhile, it is opened without waiting and refused then (case ABI-04).  A file with another name that
was not made here is not written to: it may be somebody else's (case ABI-03).  Every operation raises
FileRefused.  Source: host-abi.md 1.2, the WIT of astrid:fs.
"""

from __future__ import annotations

import functools
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec, TypeVar

from aos_runtime.store.file_tree import At, FileCase, FileRefused, Parts, Spot, refusal_of

MAX_FILE_BYTES = 10 * 1024 * 1024
"""What one call reads or writes whole."""
MAX_PIECE_BYTES = 1024 * 1024
"""What one call on an open file reads or writes."""
MAX_COPY_BYTES = 1024 * 1024 * 1024
MAX_NAMES = 4096
MAX_REMOVED = 100_000
"""Names that one call removes; called again, it goes on."""
MAX_DEPTH = 128
MAX_OFFSET = 2**63 - 1
MAX_LINKS_KEPT = 1024

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_WRITE = os.O_WRONLY | os.O_CREAT
_NEW_FILE, _NEW_FOLDER = 0o666, 0o777
_KINDS = {
    stat.S_IFREG: "regular",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFBLK: "block-device",
    stat.S_IFCHR: "character-device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}
_MODES = {
    "read": os.O_RDONLY,
    "write": _WRITE,
    "append": _WRITE | os.O_APPEND,
    "read-write": os.O_RDWR,
}
_P = ParamSpec("_P")
_T = TypeVar("_T")
Made = dict[tuple[int, int], int]
"""By device and inode: how many more names a guest gave a file."""


class FileStat(NamedTuple):
    """Size in bytes, times in nanoseconds since 1970; `kind` is a name of the WIT's `file-type`."""

    size: int
    kind: str
    mode: int
    modified_ns: int
    accessed_ns: int


def _refusing(operation: Callable[_P, _T]) -> Callable[_P, _T]:
    """An error of the operating system answers the guest."""

    @functools.wraps(operation)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return operation(*args, **kwargs)
        except OSError as error:
            raise refusal_of(error) from error

    return run


class OpenFile:
    """An open regular file.  Used by one thread at a time; `close` is final."""

    __slots__ = ("_handle",)

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @_refusing
    def read_at(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes (1 MiB at most) from `offset`; none at the end."""
        return os.pread(self._handle, min(limit, MAX_PIECE_BYTES), _offset(offset))

    @_refusing
    def write_at(self, offset: int, data: bytes) -> int:
        """Write at `offset`, or at the end where it was opened to append; how many bytes were."""
        if len(data) > MAX_PIECE_BYTES:
            raise FileRefused(FileCase.TOO_LARGE)
        return os.pwrite(self._handle, data, _offset(offset))

    @_refusing
    def sync(self, *, data_only: bool) -> None:
        """Bring what was written to the disk."""
        (getattr(os, "fdatasync", os.fsync) if data_only else os.fsync)(self._handle)

    @_refusing
    def stat(self) -> FileStat:
        return _stat_of(os.fstat(self._handle))

    @_refusing
    def set_len(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        os.ftruncate(self._handle, _offset(size))

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


@_refusing
def exists(at: At) -> bool:
    """Whether something stands there; a link that leads nowhere is nothing."""
    try:
        with at.reach(follow=True) as spot:
            return spot.status is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


@_refusing
def status(at: At, *, follow: bool) -> FileStat:
    """What stands there; with `follow` what a link leads to."""
    with at.reach(follow=follow) as spot:
        return _stat_of(spot.found())


@_refusing
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


@_refusing
def read(at: At) -> bytes:
    """A whole file; `too-large` over 10 MiB, by the bytes that were read."""
    with at.reach(follow=True) as spot:
        size = spot.found().st_size
        if size > MAX_FILE_BYTES:
            _check_regular(spot.found())
            raise FileRefused(FileCase.TOO_LARGE)
        with _opened(spot, os.O_RDONLY) as handle:
            return _read_all(handle, size)


@_refusing
def write(at: At, data: bytes, made: Made, *, append: bool = False) -> None:
    """Replace what a file holds, or add to it; it is made where it is missing, its folder is not.

    The caller has looked at the size of `data`.
    """
    mode = _MODES["append" if append else "write"]
    with at.reach(follow=True) as spot, _opened(spot, mode, made) as handle:
        if not append:
            os.ftruncate(handle, 0)
        _write_all(handle, data)


@_refusing
def open_file(at: At, mode: str, made: Made) -> OpenFile:
    """Open a file.  `mode` is a name of the WIT's `open-mode`."""
    with at.reach(follow=True) as spot:
        handle = _open_regular(spot, _MODES[mode], made)
        if mode == "write":
            os.ftruncate(handle, 0)
        return OpenFile(handle)


@_refusing
def make_folder(at: At) -> None:
    """Make one folder; fine where it is there, as in the published runtime."""
    with at.reach(follow=True) as spot:
        spot.check_below_root()
        if not spot.is_folder:
            os.mkdir(spot.name, _NEW_FOLDER, dir_fd=spot.folder)


@_refusing
def make_folders(at: At) -> None:
    """Make a folder and what is missing above it; fine where it is there."""
    at.make_folders()


@_refusing
def remove(at: At) -> None:
    """Remove a file, a link or an empty folder; `not-empty` for another one."""
    with at.reach(follow=False) as spot:
        spot.check_below_root()
        spot.found()
        (os.rmdir if spot.is_folder else os.unlink)(spot.name, dir_fd=spot.folder)


@_refusing
def remove_all(at: At) -> int:
    """Remove a folder with all below it, never through a link; how many names that were.

    `too-large` after 100,000 names or 128 folders deep, with what was removed gone.
    """
    with at.reach(follow=False) as spot:
        spot.check_below_root()
        spot.found()
        return _remove_folder(spot.folder, spot.name, MAX_REMOVED, MAX_DEPTH)


@_refusing
def resolve(at: At) -> Parts:
    """The place without links."""
    with at.reach(follow=True) as spot:
        spot.found()
        return spot.parts


@_refusing
def read_link(at: At) -> Parts:
    """Where a link leads, one step; `invalid-path` for what is no link."""
    with at.reach(follow=False) as spot:
        spot.found()
        return at.tree.target_of(spot)


@_refusing
def copy(source: At, target: At, made: Made) -> None:
    """Copy a regular file over another one, or to a new name."""
    with (
        source.reach(follow=True) as origin,
        target.reach(follow=True) as spot,
        _opened(origin, os.O_RDONLY) as reading,
        _opened(spot, _WRITE, made) as writing,
    ):
        if os.path.sameopenfile(reading, writing):
            return
        os.ftruncate(writing, 0)
        left = MAX_COPY_BYTES
        while piece := os.read(reading, MAX_PIECE_BYTES):
            left -= len(piece)
            if left < 0:
                raise FileRefused(FileCase.TOO_LARGE)
            _write_all(writing, piece)


@_refusing
def rename(source: At, target: At) -> None:
    """Give what stands at `source` the name `target`; what had that name is gone."""
    with source.reach(follow=False) as old, target.reach(follow=False) as new:
        old.check_below_root()
        new.check_below_root()
        old.found()
        os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)


@_refusing
def hard_link(source: At, target: At, made: Made) -> None:
    """Give a regular file one more name; the guest may go on writing to it."""
    with source.reach(follow=True) as old, target.reach(follow=False) as new:
        new.check_below_root()
        found = old.found()
        _check_regular(found)
        os.link(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder, follow_symlinks=False)
        if len(made) < MAX_LINKS_KEPT:
            key = (found.st_dev, found.st_ino)
            made[key] = made.get(key, 0) + 1


@contextmanager
def _opened(spot: Spot, flags: int, made: Made | None = None) -> Iterator[int]:
    handle = _open_regular(spot, flags, made)
    try:
        yield handle
    finally:
        os.close(handle)


def _open_regular(spot: Spot, flags: int, made: Made | None = None) -> int:
    """A descriptor of the regular file that stands at `spot`, or is made there.

    Looked at before it is opened, and again afterwards: it may be another one by then.
    """
    if spot.status is not None:
        _check_regular(spot.status)
    handle = os.open(spot.name, flags | _OPEN, _NEW_FILE, dir_fd=spot.folder)
    try:
        found = os.fstat(handle)
        _check_regular(found)
        if made is not None and found.st_nlink > 1 + made.get((found.st_dev, found.st_ino), 0):
            raise FileRefused(FileCase.ACCESS)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_regular(found: os.stat_result) -> None:
    """FileRefused `is-directory` for a folder, `access` for what is no file."""
    if stat.S_ISDIR(found.st_mode):
        raise FileRefused(FileCase.IS_DIRECTORY)
    if not stat.S_ISREG(found.st_mode):
        raise FileRefused(FileCase.ACCESS)


def _read_all(handle: int, expected: int) -> bytes:
    """To the end of the file; one call where it is as long as expected."""
    pieces = [os.read(handle, expected + 1)]
    size = len(pieces[0])
    while size > expected and pieces[-1] and size <= MAX_FILE_BYTES:
        pieces.append(os.read(handle, MAX_FILE_BYTES + 1 - size))
        size += len(pieces[-1])
    if size > MAX_FILE_BYTES:
        raise FileRefused(FileCase.TOO_LARGE)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


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
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    removed = 0
    try:
        while names := _names(os.dup(folder), MAX_NAMES):
            os.lseek(folder, 0, os.SEEK_SET)
            for one in names:
                if removed + 1 >= budget:
                    raise FileRefused(FileCase.TOO_LARGE)
                removed += _remove_name(folder, one, budget - removed, depth - 1)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)
    return removed + 1


def _remove_name(folder: int, name: str, budget: int, depth: int) -> int:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            return _remove_folder(folder, name, budget, depth)
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return 0  # somebody else was faster
    return 1


def _stat_of(found: os.stat_result) -> FileStat:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "type-unknown")
    return FileStat(found.st_size, kind, found.st_mode, found.st_mtime_ns, found.st_atime_ns)


def _offset(number: int) -> int:
    """A position in a file.  FileRefused `too-large` for one that no file has."""
    if number > MAX_OFFSET:
        raise FileRefused(FileCase.TOO_LARGE)
    return number


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
