"""Open regular files: the only thing of a file system that a guest reads from and writes to.

What stands at a name is looked at, opened without waiting, and looked at again: a FIFO, device or socket is
refused unopened, and should one take a file's place meanwhile, it is refused then (case ABI-04).  A file with
another name that was not made here is not written to: it may be somebody else's (case ABI-03).
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, ParamSpec, TypeVar

from aos_runtime.store.file_tree import (
    PRIVATE_UMASK,
    FileCase,
    FileRefused,
    Grow,
    Spot,
    has_room,
    refusal_of,
)

MAX_FILE_BYTES = 10 * 1024 * 1024
"""What one call reads or writes whole."""
MAX_PIECE_BYTES = 1024 * 1024
"""What one call on an open file reads or writes."""
MAX_OFFSET = 2**63 - 1

WRITE = os.O_WRONLY | os.O_CREAT
MODES = {
    "read": os.O_RDONLY,
    "write": WRITE,
    "append": WRITE | os.O_APPEND,
    "read-write": os.O_RDWR,
}
"""By the names of the WIT's `open-mode`."""
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFREG: "regular",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFBLK: "block-device",
    stat.S_IFCHR: "character-device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
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


def refusing(operation: Callable[_P, _T]) -> Callable[_P, _T]:
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

    __slots__ = ("_grow", "_handle")

    def __init__(self, handle: int, grow: Grow = has_room) -> None:
        self._handle = handle
        self._grow = grow

    @refusing
    def read_at(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes (1 MiB at most) from `offset`; none at the end."""
        return os.pread(self._handle, min(limit, MAX_PIECE_BYTES), _offset(offset))

    @refusing
    def write_at(self, offset: int, data: bytes) -> int:
        """Write at `offset`, or at the end where it was opened to append; how many bytes were."""
        if len(data) > MAX_PIECE_BYTES:
            raise FileRefused(FileCase.TOO_LARGE)
        self._grow(len(data))
        return os.pwrite(self._handle, data, _offset(offset))

    @refusing
    def sync(self, *, data_only: bool) -> None:
        """Bring what was written to the disk."""
        (getattr(os, "fdatasync", os.fsync) if data_only else os.fsync)(self._handle)

    @refusing
    def stat(self) -> FileStat:
        return stat_of(os.fstat(self._handle))

    @refusing
    def set_len(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        self._grow(max(0, _offset(size) - os.fstat(self._handle).st_size))
        os.ftruncate(self._handle, size)

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


@contextmanager
def opened(spot: Spot, flags: int, made: Made | None = None, umask: int = PRIVATE_UMASK) -> Iterator[int]:
    """As `open_regular`, closed at the end."""
    handle = open_regular(spot, flags, made, umask)
    try:
        yield handle
    finally:
        os.close(handle)


def open_regular(spot: Spot, flags: int, made: Made | None = None, umask: int = PRIVATE_UMASK) -> int:
    """A descriptor of the regular file that stands at `spot`, or is made there with what `umask` leaves.

    With `made` it is to be written to, and no other name than those may lead to it.
    """
    if spot.status is not None:
        check_regular(spot.status)
    handle = os.open(spot.name, flags | _OPEN, 0o666 & ~umask, dir_fd=spot.folder)
    try:
        found = os.fstat(handle)
        check_regular(found)
        if made is not None and found.st_nlink > 1 + made.get((found.st_dev, found.st_ino), 0):
            raise FileRefused(FileCase.ACCESS)
        if spot.status is None and umask != PRIVATE_UMASK:
            os.fchmod(handle, 0o666 & ~umask)  # the process's own umask has taken more
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_regular(found: os.stat_result) -> None:
    """FileRefused `is-directory` for a folder, `access` for what is no file."""
    if stat.S_ISDIR(found.st_mode):
        raise FileRefused(FileCase.IS_DIRECTORY)
    if not stat.S_ISREG(found.st_mode):
        raise FileRefused(FileCase.ACCESS)


def read_all(handle: int, expected: int) -> bytes:
    """To the end of the file; one call where it is as long as expected."""
    pieces = [os.read(handle, expected + 1)]
    size = len(pieces[0])
    while size > expected and pieces[-1] and size <= MAX_FILE_BYTES:
        pieces.append(os.read(handle, MAX_FILE_BYTES + 1 - size))
        size += len(pieces[-1])
    if size > MAX_FILE_BYTES:
        raise FileRefused(FileCase.TOO_LARGE)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def stat_of(found: os.stat_result) -> FileStat:
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "type-unknown")
    return FileStat(found.st_size, kind, found.st_mode, found.st_mtime_ns, found.st_atime_ns)


def _offset(number: int) -> int:
    """A position in a file.  FileRefused `too-large` for one that no file has."""
    if number > MAX_OFFSET:
        raise FileRefused(FileCase.TOO_LARGE)
    return number
