"""Reading and writing single files so that a kill, a power cut or a full disk never leaves half of one.

Every write, sync, rename and removal of the store passes through here, which is also where an operating
system error becomes words.  This module knows no layout: it is handed paths.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from aos_runtime.errors import AosError, Conflict, Corrupt, Unavailable

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
LOCK_POLL_S = 0.02
_TEMPORARY_SUFFIX = ".tmp"
_counter = itertools.count()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn any OSError of the block into an AosError about `path`."""
    try:
        yield
    except OSError as error:
        raise explain(error, path) from error


def explain(error: OSError, path: Path) -> AosError:
    """What an operating system error at `path` means to the operator."""
    where = str(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(
            "no-space",
            f"no space left on the device that holds {where}",
            hint="free some space and run the command again; nothing was changed",
            path=where,
        )
    if error.errno == errno.EROFS:
        return Unavailable(
            "read-only-filesystem",
            f"{where} lies on a file system that is mounted read-only",
            hint="set AOS_HOME to a folder that can be written",
            path=where,
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return Unavailable(
            "not-permitted",
            f"this user may not read or write {where}",
            hint="give this user the folder, or set AOS_HOME to one that it owns",
            path=where,
        )
    return Unavailable(
        "file-operation-failed",
        f"cannot use {where}: {os.strerror(error.errno) if error.errno else error}",
        hint="look at the path that is named, then run the command again",
        path=where,
    )


def write_atomic(path: Path, data: bytes, *, mode: int = PRIVATE_FILE, sync: bool = True) -> None:
    """Put `data` at `path` whole: a reader, or a kill at any moment, meets the old bytes or the new ones.

    The folder must exist.  With `sync` the bytes and the name have reached the disk on return.  Unavailable
    where the file cannot be written; then nothing is left behind.
    """
    with explained(path):
        temporary = write_temporary(path, data, mode=mode, sync=sync)
        try:
            temporary.replace(path)
        except OSError:
            _discard(temporary)
            raise
        if sync:
            _sync_folder(path.parent)


def write_once(path: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> bool:
    """Put `data` at `path` unless something is there already; whether this call did.  Whole and synced."""
    with explained(path):
        temporary = write_temporary(path, data, mode=mode, sync=True)
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
        finally:
            _discard(temporary)
        _sync_folder(path.parent)
        return True


def write_temporary(path: Path, data: bytes, *, mode: int, sync: bool) -> Path:
    """Write `data` to a new file beside `path` and return its name, which no other process or thread uses."""
    unique = f".{path.name[:128]}.{os.getpid()}.{next(_counter)}-{secrets.token_hex(4)}{_TEMPORARY_SUFFIX}"
    temporary = path.with_name(unique)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        write_all(handle, data)
        if sync:
            os.fsync(handle)
    except OSError:
        _discard(temporary)
        raise
    finally:
        os.close(handle)
    return temporary


def write_all(handle: int, data: bytes) -> None:
    """Write every byte; `os.write` may take fewer than it is given."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def sweep_temporaries(folder: Path) -> None:
    """Remove what killed processes left of `write_atomic` in `folder` (not below it)."""
    for path in list_folder(folder):
        if path.name.startswith(".") and path.name.endswith(_TEMPORARY_SUFFIX):
            owner = path.name.split(".")[-3]
            if owner.isdigit() and not is_process_alive(int(owner)):
                remove_file(path)


def is_process_alive(pid: int) -> bool:
    """Whether any process has this id; one of another user counts."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    with explained(folder):
        _sync_folder(folder)


def sync_file(path: Path) -> None:
    """Make the bytes of `path` durable."""
    with explained(path):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_private_folder(folder: Path) -> None:
    """Create `folder` and what is missing above it, readable by this user only; the new names are synced."""
    missing: list[Path] = []
    level = folder
    while not level.is_dir():
        missing.append(level)
        level = level.parent
    with explained(folder):
        for level in reversed(missing):
            with contextlib.suppress(FileExistsError):
                level.mkdir(PRIVATE_FOLDER)
            if not level.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(level))
            _sync_folder(level.parent)


def rename(source: Path, target: Path) -> None:
    """Give `source` the name `target`, in one step and durably.  What `target` named before is gone."""
    with explained(target):
        source.replace(target)
        _sync_folder(target.parent)


def make_link(path: Path, target: str) -> None:
    """Create the symbolic link `path` to the relative `target`."""
    with explained(path):
        path.symlink_to(target)


def remove_file(path: Path) -> bool:
    """Remove `path` if it is there; whether it was."""
    with explained(path):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        return True


def remove_tree(folder: Path) -> bool:
    """Remove `folder` with all below it, following no link; whether it was there."""
    if not folder.is_dir() or folder.is_symlink():
        return remove_file(folder)
    with explained(folder):
        shutil.rmtree(folder, onerror=_raise_unless_gone)
    return True


def list_folder(folder: Path) -> tuple[Path, ...]:
    """What `folder` holds, by name; nothing where it does not exist."""
    with explained(folder):
        try:
            return tuple(sorted(folder.iterdir()))
        except (FileNotFoundError, NotADirectoryError):
            return ()


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """The bytes of the regular file `path`, following no link at its end.

    FileNotFoundError where it does not exist, Corrupt where it is no regular file or longer than
    `limit_bytes`.
    """
    with open_regular(path) as file, explained(path):
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise Corrupt(
            "file-too-large",
            f"{path} is larger than the {limit_bytes} bytes that such a file may have",
            hint="look at what wrote it; aos did not",
            path=str(path),
        )
    return data


def open_regular(path: Path) -> BinaryIO:
    """Open the regular file `path` for reading, following no link at its end.

    FileNotFoundError where it does not exist, Corrupt `file-not-regular` where something else stands there.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_regular(path) from error
        raise explain(error, path) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular(path)
    return os.fdopen(handle, "rb")


def read_optional(path: Path, limit_bytes: int) -> bytes | None:
    """`read_bounded`, None where the file does not exist."""
    try:
        return read_bounded(path, limit_bytes)
    except FileNotFoundError:
        return None


Stamp = tuple[int, int, int]


def file_stamp(path: Path) -> Stamp | None:
    """What changes when the file does (every write of ours makes a new file); None where there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


class FileLock:
    """An exclusive lock between processes and threads, held by an open descriptor and freed by its end.

    The file holds the id of the process that took the lock last, for the sake of messages; it is never
    removed.
    """

    __slots__ = ("_handle", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle is not None

    @property
    def holder(self) -> int | None:
        """The process that took the lock last; None where that cannot be told."""
        with contextlib.suppress(FileNotFoundError, AosError):
            text = read_bounded(self.path, 32).strip()
            return int(text) if text.isdigit() else None
        return None

    def try_acquire(self) -> bool:
        """Take the lock without waiting; whether it was free.  The folder must exist."""
        with explained(self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(self.path, flags, PRIVATE_FILE)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return False
            except OSError:
                os.close(handle)
                raise
        self._handle = handle
        with contextlib.suppress(OSError):  # a note for messages; a full disk must not stop a removal
            os.ftruncate(handle, 0)
            os.pwrite(handle, b"%d\n" % os.getpid(), 0)
        return True

    def acquire(self, wait_s: float, *, pause: Callable[[float], None] = time.sleep) -> None:
        """Take the lock, waiting up to `wait_s` seconds.  Conflict `busy` with the holder's pid otherwise."""
        deadline = time.monotonic() + wait_s
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                holder = self.holder
                raise Conflict(
                    "busy",
                    f"busy: pid {holder if holder is not None else 'unknown'} holds {self.path.name}",
                    hint="wait until that command has ended, then run this one again",
                    pid=holder,
                )
            pause(LOCK_POLL_S)

    def release(self) -> None:
        """Free the lock; nothing where it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> FileLock:
        if self._handle is None:
            self.acquire(0)
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock at `path`.  Writes nothing; takes a shared lock for an instant."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise explain(error, path) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _discard(path: Path) -> None:
    """Remove a temporary file of ours; what is gone already is fine."""
    with contextlib.suppress(OSError):
        path.unlink()


def _raise_unless_gone(_function: object, _path: str, failure: object) -> None:
    """`rmtree`'s error hook: another sweeper may have been faster."""
    error = failure[1] if isinstance(failure, tuple) else failure
    if isinstance(error, BaseException) and not isinstance(error, FileNotFoundError):
        raise error


def _not_regular(path: Path) -> Corrupt:
    return Corrupt(
        "file-not-regular",
        f"{path} is not a regular file",
        hint="look at what stands there; aos did not put it",
        path=str(path),
    )
