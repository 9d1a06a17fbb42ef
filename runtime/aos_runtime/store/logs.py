"""Writing logs: one file per (principal, capsule) and one of the daemon.

A guest's `log` never fails and never blocks for long: what cannot be written is dropped and counted, and
`trouble` says why in one sentence.  Files rotate at 10 MiB or with the day, old ones are packed with zstd,
and a capsule's logs together stay under a bound.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import zstandard

from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store.files import (
    PRIVATE_FILE,
    explain,
    list_folder,
    make_private_folder,
    read_bounded,
    remove_file,
    write_atomic,
)
from aos_runtime.store.log_lines import DAEMON_ORIGIN, LEVELS, parse_line, render_line

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_TOTAL_BYTES = 256 * 1024 * 1024
MAX_OLD_FILES = 7
MAX_OPEN_FILES = 64
RECHECK_S = 0.2
"""How long lines may still go to a file that somebody has moved or removed."""

COPIES_A_MINUTE = 60
MAX_COPY_CHARACTERS = 4096
"""Bounds of what one capsule's errors put into the daemon's log, so that no guest pushes its history out."""
PACKED_SUFFIX = ".zst"
_STAMP = "%Y%m%dT%H%M%S.%fZ"
_DAY_S = 86_400


class LogSink:
    """The open log files of a daemon (or of an activation).  Every method may be called from any thread."""

    def __init__(
        self,
        home: Home,
        *,
        clock: Callable[[], float] = time.time,
        run_aside: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`clock` gives Unix seconds; `run_aside` packs a rotated file, by default in a thread."""
        self._home = home
        self._clock = clock
        self._run_aside = run_aside or self._start_thread
        self._files: OrderedDict[Path, _LogFile] = OrderedDict()
        self._paths: dict[tuple[PrincipalName, CapsuleName], Path] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._copies: dict[Path, tuple[int, int]] = {}
        """By log of a capsule: a minute, and how many of its errors went to the daemon's log in it."""
        self.dropped = 0
        self.trouble: str | None = None

    def append(self, principal: PrincipalName, capsule: CapsuleName, level: str, message: str) -> None:
        """Write one record of a guest; ERROR goes to the daemon's log as well, bounded.  Never raises."""
        word = _level(level)
        now_s = self._clock()
        path = self._path_of(principal, capsule)
        self._write(path, render_line(now_s, word, capsule, message), now_s)
        if word == "ERROR" and (left := self._copies_left(path, now_s)):
            origin = capsule if principal == DEFAULT_PRINCIPAL else f"{principal}/{capsule}"
            text = message[:MAX_COPY_CHARACTERS]
            if left == 1:
                text = f"more than {COPIES_A_MINUTE - 1} errors a minute; the rest is in its own log"
            self._write(self._home.daemon_log, render_line(now_s, word, origin, text), now_s)

    def daemon(self, level: str, message: str) -> None:
        """Write one record of the daemon itself.  Never raises."""
        now_s = self._clock()
        self._write(self._home.daemon_log, render_line(now_s, _level(level), DAEMON_ORIGIN, message), now_s)

    def close(self) -> None:
        """Close every file and wait for packing that is under way."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()
            threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()

    def _path_of(self, principal: PrincipalName, capsule: CapsuleName) -> Path:
        """The capsule's log; remembered, since building a path costs more than writing a line."""
        path = self._paths.get((principal, capsule))
        if path is None:
            path = self._paths[principal, capsule] = self._home.capsule_log(principal, capsule)
        return path

    def _copies_left(self, path: Path, now_s: float) -> int:
        """How many errors of this capsule, this one included, may still be copied in this minute."""
        this_minute = int(now_s // 60)
        with self._lock:
            minute, count = self._copies.get(path, (this_minute, 0))
            count = count if minute == this_minute else 0
            self._copies[path] = (this_minute, count + 1)
        return max(0, COPIES_A_MINUTE - count)

    def _write(self, path: Path, line: bytes, now_s: float) -> None:
        with self._lock:
            try:
                self._open(path).append(line, now_s)
            except OSError as error:
                self._drop(explain(error, path).message)
            except AosError as error:
                self._drop(error.message)
            else:
                self.trouble = None

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        self.trouble = f"log records are dropped: {reason}"

    def _open(self, path: Path) -> _LogFile:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _LogFile(path, self._pack)
            if len(self._files) > MAX_OPEN_FILES:
                _, oldest = self._files.popitem(last=False)
                oldest.close()
        self._files.move_to_end(path)
        return file

    def _pack(self, live: Path) -> None:
        self._run_aside(lambda: pack_old(live))

    def _start_thread(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="aos-log-pack", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()


class _LogFile:
    """One live file.  Not thread-safe: the sink's lock is held around every call."""

    __slots__ = ("_checked_s", "_day", "_handle", "_inode", "_on_rotate", "_path", "_size_bytes", "_torn")

    def __init__(self, path: Path, on_rotate: Callable[[Path], None]) -> None:
        self._path = path
        self._on_rotate = on_rotate
        self._handle: int | None = None
        self._checked_s = 0.0
        self._inode = 0
        self._size_bytes = 0
        self._day = 0
        self._torn = False

    def append(self, line: bytes, now_s: float) -> None:
        """Write one whole line, rotating first where it is due.  OSError or AosError where it cannot."""
        handle = self._ready_handle(now_s)
        if self._size_bytes and (
            self._size_bytes + len(line) > MAX_FILE_BYTES or int(now_s // _DAY_S) > self._day
        ):
            self._rotate(now_s)
            handle = self._ready_handle(now_s)
        data = b"\n" + line if self._torn else line
        written = os.write(handle, data)
        self._size_bytes += written
        self._torn = written < len(data) and (written > 1 or not self._torn)
        if written < len(data):
            rest = os.write(handle, data[written:])
            self._size_bytes += rest
            self._torn = written + rest < len(data)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _ready_handle(self, now_s: float) -> int:
        """The open file, opened again where somebody moved or removed it lately."""
        if self._handle is not None:
            if 0.0 <= now_s - self._checked_s < RECHECK_S:
                return self._handle
            if self._is_current():
                self._checked_s = now_s
                return self._handle
        self.close()
        make_private_folder(self._path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self._handle = os.open(self._path, flags, PRIVATE_FILE)
        self._checked_s = now_s
        facts = os.fstat(self._handle)
        self._size_bytes, self._inode = facts.st_size, facts.st_ino
        self._day = int(_first_time(self._path, now_s) // _DAY_S)
        self._torn = self._size_bytes > 0 and not _ends_line(self._path, self._size_bytes)
        return self._handle

    def _is_current(self) -> bool:
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _rotate(self, now_s: float) -> None:
        self.close()
        stamp = datetime.fromtimestamp(now_s, UTC).strftime(_STAMP)
        self._path.replace(self._path.with_name(f"{self._path.name}.{stamp}"))
        self._on_rotate(self._path)


def old_files(live: Path) -> tuple[Path, ...]:
    """The rotated files of a log, oldest first, packed or not yet."""
    prefix = f"{live.name}."
    found = (path for path in list_folder(live.parent) if path.name.startswith(prefix))
    return tuple(sorted(found, key=lambda path: path.name.removesuffix(PACKED_SUFFIX)))


def pack_old(live: Path) -> None:
    """Pack the rotated files of a log and remove the oldest beyond the bounds.  Never raises.

    A kill leaves a file unpacked or both forms of it; the next rotation goes on from there.
    """
    with contextlib.suppress(AosError, OSError):
        for path in old_files(live):
            if path.suffix != PACKED_SUFFIX:
                _pack_one(path)
        _prune(live)


def read_packed(path: Path) -> bytes:
    """The bytes of a packed file, bounded.  zstandard.ZstdError where it is damaged."""
    packed = read_bounded(path, MAX_TOTAL_BYTES)
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=4 * MAX_FILE_BYTES)


def _pack_one(path: Path) -> None:
    data = read_bounded(path, 4 * MAX_FILE_BYTES)
    packed = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True).compress(data)
    write_atomic(path.with_name(path.name + PACKED_SUFFIX), packed, sync=False)
    remove_file(path)


def _prune(live: Path) -> None:
    files = list(old_files(live))
    sizes = {path: path.stat().st_size for path in files}
    total = sum(sizes.values()) + MAX_FILE_BYTES
    while files and (len(files) > MAX_OLD_FILES or total > MAX_TOTAL_BYTES):
        total -= sizes[files[0]]
        remove_file(files.pop(0))


def _first_time(path: Path, now_s: float) -> float:
    """The time of the first record of a file; now for an empty or foreign one."""
    with path.open("rb") as file:
        record = parse_line(file.readline(512).rstrip(b"\n"), after_s=now_s)
    return record.time_s


def _ends_line(path: Path, size_bytes: int) -> bool:
    with path.open("rb") as file:
        file.seek(size_bytes - 1)
        return file.read(1) == b"\n"


def _level(level: str) -> str:
    word = level.upper()
    return word if word in LEVELS else "INFO"
