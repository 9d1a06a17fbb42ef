"""astrid:fs/host@1.0.0 (host-abi.md 1.2): files and folders, all functions live.

What a path means, who may use it and how it is recorded is behind the context's port.  Everything here may
wait for a disk, so each function makes way first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.factor import Published, published
from aos_runtime.host.files import Files, OpenedFile
from aos_runtime.host.wit import (
    BOOL,
    BORROW,
    BYTES,
    OWN,
    S64,
    STRING,
    U32,
    U64,
    Enum,
    ListOf,
    Option,
    Record,
    Result,
    Signature,
    Type,
    Variant,
)
from aos_runtime.store.file_handles import FileStat
from aos_runtime.store.file_tree import FileCase, FileRefused

FILE_HANDLE = "file-handle"
MAX_OPEN_FILES = 16
"""Of one instance, as the WIT promises."""
_NS = 1_000_000_000

_T = TypeVar("_T")


def open_file(context: GuestContext, path: str, mode: str) -> int | Err:
    """A handle; `quota` for the seventeenth."""
    context.before_block()
    if context.resources.count(FILE_HANDLE) >= MAX_OPEN_FILES:
        return Err("quota")
    opened = _attempt(context, lambda files: files.open(path, mode))
    if isinstance(opened, Err):
        return opened
    handle = context.resources.add(FILE_HANDLE, opened)
    if handle is None:
        opened.close()
        return Err("quota")
    return handle


def exists(context: GuestContext, path: str) -> bool | Err:
    """Whether something stands there."""
    context.before_block()
    return _attempt(context, lambda files: files.exists(path))


def make_folder(context: GuestContext, path: str) -> Err | None:
    """Make one folder; fine where it is there."""
    context.before_block()
    return _attempt(context, lambda files: files.make_folder(path, with_parents=False))


def make_folders(context: GuestContext, path: str) -> Err | None:
    """Make a folder and what is missing above it."""
    context.before_block()
    return _attempt(context, lambda files: files.make_folder(path, with_parents=True))


def list_names(context: GuestContext, path: str) -> list[str] | Err:
    """The bare names in a folder, sorted; `too-large` past 4096."""
    context.before_block()
    return _attempt(context, lambda files: files.list_names(path))


def stat(context: GuestContext, path: str) -> dict[str, object] | Err:
    """What stands there, through links."""
    context.before_block()
    return _record(_attempt(context, lambda files: files.stat(path, follow=True)))


def stat_link(context: GuestContext, path: str) -> dict[str, object] | Err:
    """What stands there, a link as a link."""
    context.before_block()
    return _record(_attempt(context, lambda files: files.stat(path, follow=False)))


def unlink(context: GuestContext, path: str) -> Err | None:
    """Remove a file, a link or an empty folder."""
    context.before_block()
    return _attempt(context, lambda files: files.remove(path))


def read_file(context: GuestContext, path: str) -> bytes | Err:
    """A whole file; `too-large` past 10 MiB."""
    context.before_block()
    return _attempt(context, lambda files: files.read(path))


def write_file(context: GuestContext, path: str, content: bytes) -> Err | None:
    """Replace what a file holds; `too-large` past 10 MiB."""
    context.before_block()
    return _attempt(context, lambda files: files.write(path, content, append=False))


def append(context: GuestContext, path: str, content: bytes) -> Err | None:
    """Add to a file; `too-large` past 10 MiB."""
    context.before_block()
    return _attempt(context, lambda files: files.write(path, content, append=True))


def copy(context: GuestContext, source: str, target: str) -> Err | None:
    """Copy a regular file."""
    context.before_block()
    return _attempt(context, lambda files: files.copy(source, target))


def rename(context: GuestContext, source: str, target: str) -> Err | None:
    """Move within one scheme; `cross-vfs` otherwise."""
    context.before_block()
    return _attempt(context, lambda files: files.rename(source, target))


def remove_all(context: GuestContext, path: str) -> int | Err:
    """Remove a folder with all below it; how many names that were."""
    context.before_block()
    return _attempt(context, lambda files: files.remove_all(path))


def canonicalize(context: GuestContext, path: str) -> str | Err:
    """The path without links, in a scheme that can be used again."""
    context.before_block()
    return _attempt(context, lambda files: files.canonicalize(path))


def read_link(context: GuestContext, path: str) -> str | Err:
    """Where a link leads, in a scheme."""
    context.before_block()
    return _attempt(context, lambda files: files.read_link(path))


def hard_link(context: GuestContext, source: str, target: str) -> Err | None:
    """Give a regular file one more name within its scheme."""
    context.before_block()
    return _attempt(context, lambda files: files.hard_link(source, target))


def read_at(context: GuestContext, handle: int, offset: int, limit: int) -> bytes | Err:
    """Up to `limit` bytes from `offset`, 1 MiB at most; none at the end."""
    return _with(context, handle, lambda file: file.read_at(offset, limit))


def write_at(context: GuestContext, handle: int, offset: int, data: bytes) -> int | Err:
    """How many bytes were written; `too-large` past 1 MiB."""
    return _with(context, handle, lambda file: file.write_at(offset, data))


def sync_data(context: GuestContext, handle: int) -> Err | None:
    """Bring the bytes to the disk."""
    return _with(context, handle, lambda file: file.sync(data_only=True))


def sync_all(context: GuestContext, handle: int) -> Err | None:
    """Bring the bytes and what is known of the file to the disk."""
    return _with(context, handle, lambda file: file.sync(data_only=False))


def stat_handle(context: GuestContext, handle: int) -> dict[str, object] | Err:
    """What the handle stands for."""
    return _record(_with(context, handle, lambda file: file.stat()))


def set_len(context: GuestContext, handle: int, size: int) -> Err | None:
    """Cut the file, or lengthen it with zeros."""
    return _with(context, handle, lambda file: file.set_len(size))


def _attempt(context: GuestContext, operation: Callable[[Files], _T]) -> _T | Err:
    """The port's refusal, as an err arm."""
    files = context.files
    if files is None:
        return Err("capability-denied")
    try:
        return operation(files)
    except FileRefused as refusal:
        return _refused(refusal)


def _with(context: GuestContext, handle: int, operation: Callable[[OpenedFile], _T]) -> _T | Err:
    """The same for an open file; `closed` where the guest has no such handle any more."""
    context.before_block()
    file: Any = context.resources.get(FILE_HANDLE, handle)
    if file is None:
        return Err("closed")
    try:
        return operation(file)
    except FileRefused as refusal:
        return _refused(refusal)


def _refused(refusal: FileRefused) -> Err:
    return Err(refusal.case, refusal.detail if refusal.case is FileCase.UNKNOWN else None)


def _record(found: FileStat | Err) -> dict[str, object] | Err:
    if isinstance(found, Err):
        return found
    return {
        "size": found.size,
        "kind": found.kind,
        "mode": found.mode,
        "modified": _moment(found.modified_ns),
        "created": None,
        "accessed": _moment(found.accessed_ns),
    }


def _moment(time_ns: int) -> dict[str, int]:
    seconds, nanoseconds = divmod(time_ns, _NS)
    return {"seconds": seconds, "nanoseconds": nanoseconds}


_ERROR = Variant(
    tuple((case.value, STRING if case is FileCase.UNKNOWN else None) for case in FileCase)  # in their order
)
_KIND = Enum(
    (
        "type-unknown",
        "regular",
        "directory",
        "symlink",
        "block-device",
        "character-device",
        "fifo",
        "socket",
    )
)
_MOMENT = Record((("seconds", S64), ("nanoseconds", U32)))
_STAT = Record(
    (
        ("size", U64),
        ("kind", _KIND),
        ("mode", U32),
        ("modified", Option(_MOMENT)),
        ("created", Option(_MOMENT)),
        ("accessed", Option(_MOMENT)),
    )
)
_MODE = Enum(("read", "write", "append", "read-write"))


def _fallible(ok: Type | None) -> Result:
    return Result(ok, _ERROR)


def _method(run: Callable[..., Any], ok: Type | None, **params: Type) -> Published:
    named = tuple((name.replace("_", "-"), kind) for name, kind in params.items())
    return Published(run, Signature((("self", BORROW), *named), _fallible(ok)))


FUNCTIONS = {
    "fs-open": published(open_file, _fallible(OWN), path=STRING, mode=_MODE),
    "fs-exists": published(exists, _fallible(BOOL), path=STRING),
    "fs-mkdir": published(make_folder, _fallible(None), path=STRING),
    "fs-mkdir-all": published(make_folders, _fallible(None), path=STRING),
    "fs-readdir": published(list_names, _fallible(ListOf(STRING)), path=STRING),
    "fs-stat": published(stat, _fallible(_STAT), path=STRING),
    "fs-stat-symlink": published(stat_link, _fallible(_STAT), path=STRING),
    "fs-unlink": published(unlink, _fallible(None), path=STRING),
    "read-file": published(read_file, _fallible(BYTES), path=STRING),
    "write-file": published(write_file, _fallible(None), path=STRING, content=BYTES),
    "fs-append": published(append, _fallible(None), path=STRING, content=BYTES),
    "fs-copy": published(copy, _fallible(None), src=STRING, dst=STRING),
    "fs-rename": published(rename, _fallible(None), src=STRING, dst=STRING),
    "fs-remove-dir-all": published(remove_all, _fallible(U64), path=STRING),
    "fs-canonicalize": published(canonicalize, _fallible(STRING), path=STRING),
    "fs-read-link": published(read_link, _fallible(STRING), path=STRING),
    "fs-hard-link": published(hard_link, _fallible(None), src=STRING, link_path=STRING),
    "[method]file-handle.read-at": _method(read_at, BYTES, offset=U64, max_bytes=U32),
    "[method]file-handle.write-at": _method(write_at, U32, offset=U64, data=BYTES),
    "[method]file-handle.sync-data": _method(sync_data, None),
    "[method]file-handle.sync-all": _method(sync_all, None),
    "[method]file-handle.stat": _method(stat_handle, _STAT),
    "[method]file-handle.set-len": _method(set_len, None, size=U64),
}
