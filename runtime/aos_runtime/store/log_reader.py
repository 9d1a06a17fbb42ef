"""Reading logs straight from disk: merged by time over files and rotations, backwards for the last few, or
following.

No daemon is asked and nothing is written.  Files may be torn, truncated, rotated or hold foreign bytes while
they are read; none of that ends a reading.
"""

from __future__ import annotations

import heapq
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.names import (
    DEFAULT_PRINCIPAL,
    CapsuleName,
    PrincipalName,
    parse_capsule_name,
    parse_principal_name,
)
from aos_runtime.store.files import explain, list_folder
from aos_runtime.store.log_lines import LEVELS, Record, parse_line
from aos_runtime.store.logs import PACKED_SUFFIX, old_files, read_packed
from aos_runtime.store.sweep import list_principal_folders

BLOCK_BYTES = 64 * 1024
MAX_PENDING_BYTES = 1024 * 1024
"""A line without an end is taken as one record once it is that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A log that exists: whose it is and where.  `capsule` is None for the daemon's own."""

    principal: PrincipalName
    capsule: CapsuleName | None
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which records are wanted.

    Times are Unix seconds, `level` the lowest one, `grep` searched in the message.
    """

    since: float | None = None
    until: float | None = None
    level: str | None = None
    grep: re.Pattern[str] | None = None

    def wants(self, record: Record) -> bool:
        """Whether a record passes."""
        return (
            (self.since is None or record.time_s >= self.since)
            and (self.until is None or record.time_s <= self.until)
            and (self.level is None or LEVELS.index(record.level) >= LEVELS.index(self.level))
            and (self.grep is None or self.grep.search(record.message) is not None)
        )


def find_logs(home: Home, *, principal: PrincipalName | None) -> tuple[LogFile, ...]:
    """The capsule logs that exist, of one principal or (None) of all, by path.

    The daemon's is not among them.
    """
    everybody = {DEFAULT_PRINCIPAL, *list_principal_folders(home), *_log_folders(home)}
    wanted = sorted(everybody) if principal is None else [principal]
    return tuple(log for name in wanted for log in _logs_of(home, name))


def owner_of(home: Home, log: Path) -> PrincipalName | None:
    """Whose log this is; None for the daemon's.  `log` is one of this home's."""
    if log == home.daemon_log:
        return None
    return DEFAULT_PRINCIPAL if log.parent == home.log else PrincipalName(log.parent.name)


def read_records(
    paths: Iterable[Path],
    *,
    since: float | None = None,
    until: float | None = None,
    level: str | None = None,
    grep: re.Pattern[str] | None = None,
    limit: int | None = None,
) -> Iterator[Record]:
    """The records of the logs at `paths` with their rotations, by time; the last `limit` of those that pass.

    `level` is one of LEVELS.  A path that does not exist has no records.  Unavailable where one cannot be
    read.
    """
    wanted = Filter(since=since, until=until, level=level, grep=grep)
    unique = tuple(dict.fromkeys(paths))
    if limit is None:
        merged = heapq.merge(*(_forwards(path) for path in unique), key=lambda record: record.time_s)
        return (record for record in merged if wanted.wants(record))
    return iter(_last(unique, wanted, limit))


def follow(
    paths: Iterable[Path] | Callable[[], Iterable[Path]],
    *,
    wait: Callable[[], bool],
    since: float | None = None,
    level: str | None = None,
    grep: re.Pattern[str] | None = None,
    from_start: bool = False,
) -> Iterator[Record]:
    """Records as they are written, over rotation, truncation and files to come (LOG-02, LOG-10).

    Starts at the end of the files that exist now, or with `from_start` at their beginning.  `wait` is called
    when there is nothing new, blocks for as long as it likes, and returns False to end.  A function as
    `paths` is asked at every round.
    """
    wanted = Filter(since=since, level=level, grep=grep)
    tails: dict[Path, _Tail] = {}
    is_first = True
    try:
        while True:
            for path in _paths(paths):
                if path not in tails:
                    tails[path] = _Tail(path, skip=is_first and not from_start)
            is_first = False
            fresh = [record for tail in tails.values() for record in tail.read()]
            yield from sorted(filter(wanted.wants, fresh), key=lambda record: record.time_s)
            if not fresh and not wait():
                return
    finally:
        for tail in tails.values():
            tail.close()


class _Tail:
    """One file that is followed, by the descriptor: a rotated file is read to its end before the new one."""

    __slots__ = ("_after_s", "_handle", "_offset", "_path", "_pending")

    def __init__(self, path: Path, *, skip: bool) -> None:
        self._path = path
        self._handle: int | None = None
        self._offset = 0
        self._pending = b""
        self._after_s = 0.0
        handle = self._open() if skip else None
        if handle is not None:
            self._offset = _line_start(handle)

    def read(self) -> list[Record]:
        """What was written since the last call."""
        records: list[Record] = []
        handle = self._open()
        if handle is None:
            return records
        is_replaced = self._is_replaced(handle)
        if os.fstat(handle).st_size < self._offset:
            self._offset, self._pending = 0, b""
        while block := os.pread(handle, BLOCK_BYTES, self._offset):
            self._offset += len(block)
            records += self._split(block)
        if is_replaced:
            records += self._flush()
            self.close()
            records += self.read()
        return records

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle, self._offset, self._pending = None, 0, b""

    def _open(self) -> int | None:
        if self._handle is None:
            try:
                self._handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise explain(error, self._path) from error
        return self._handle

    def _is_replaced(self, handle: int) -> bool:
        try:
            return self._path.stat().st_ino != os.fstat(handle).st_ino
        except FileNotFoundError:
            return False

    def _split(self, block: bytes) -> list[Record]:
        lines = (self._pending + block).split(b"\n")
        self._pending = lines.pop()
        records = [self._parse(line) for line in lines if line]
        if len(self._pending) > MAX_PENDING_BYTES:
            records += self._flush()
        return records

    def _flush(self) -> list[Record]:
        line, self._pending = self._pending, b""
        return [self._parse(line)] if line else []

    def _parse(self, line: bytes) -> Record:
        record = parse_line(line, after_s=self._after_s, log=self._path)
        self._after_s = record.time_s
        return record


def _paths(paths: Iterable[Path] | Callable[[], Iterable[Path]]) -> tuple[Path, ...]:
    return tuple(paths() if callable(paths) else paths)


def _forwards(path: Path) -> Iterator[Record]:
    """Every record of a log, oldest file first."""
    after_s = 0.0
    for file in (*_unique_old(path), path):
        for line in _lines(file):
            record = parse_line(line, after_s=after_s, log=path)
            after_s = record.time_s
            yield record


def _last(paths: tuple[Path, ...], wanted: Filter, limit: int) -> tuple[Record, ...]:
    """The last records that pass, by time; reads no further back than it must."""
    streams = (_backwards(path, wanted.since) for path in paths)
    merged = heapq.merge(*streams, key=lambda record: -record.time_s)
    found: deque[Record] = deque()
    for record in merged:
        if len(found) >= limit:
            break
        if wanted.wants(record):
            found.appendleft(record)
    return tuple(found)


def _backwards(path: Path, since: float | None) -> Iterator[Record]:
    """Every record of a log, newest first, not beginning a file that is older than `since`."""
    yield from _dated(_lines_backwards(path), path)
    for file in reversed(_unique_old(path)):
        if since is not None and _modified_s(file) < since:
            return
        yield from _dated(reversed(list(_lines(file))), path)


def _dated(lines: Iterable[bytes], path: Path) -> Iterator[Record]:
    """Parse lines from the last to the first; one without a time takes that of the record before it."""
    waiting: list[bytes] = []
    for line in lines:
        record = parse_line(line, log=path)
        if not record.is_parsed:
            waiting.append(line)
            continue
        for late in waiting:
            yield parse_line(late, after_s=record.time_s, log=path)
        waiting.clear()
        yield record
    for late in waiting:
        yield parse_line(late, log=path)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of one file, packed or not, without empty ones; none where it is gone or damaged."""
    if path.suffix == PACKED_SUFFIX:
        yield from (line for line in _unpack(path).split(b"\n") if line)
        return
    pending = b""
    for block in _blocks(path):
        lines = (pending + block).split(b"\n")
        pending = lines.pop()
        yield from (line for line in lines if line)
        if len(pending) > MAX_PENDING_BYTES:
            yield pending
            pending = b""
    if pending:
        yield pending


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, path) from error
    with file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _lines_backwards(path: Path) -> Iterator[bytes]:
    """The lines of a plain file from the last to the first, read in blocks from its end."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, path) from error
    with file:
        position = file.seek(0, os.SEEK_END)
        pending = b""
        while position > 0:
            start = max(0, position - BLOCK_BYTES)
            file.seek(start)
            block = file.read(position - start) + pending
            position = start
            lines = block.split(b"\n")
            pending = lines.pop(0)
            yield from (line for line in reversed(lines) if line)
            if len(pending) > MAX_PENDING_BYTES:
                yield pending
                pending = b""
        if pending:
            yield pending


def _unpack(path: Path) -> bytes:
    try:
        return read_packed(path)
    except (FileNotFoundError, zstandard.ZstdError, AosError):
        return b""


def _unique_old(path: Path) -> tuple[Path, ...]:
    """The rotated files, each once: a kill while packing leaves both forms, and the plain one is whole."""
    found: dict[str, Path] = {}
    for file in old_files(path):
        found.setdefault(file.name.removesuffix(PACKED_SUFFIX), file)
    return tuple(found.values())


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _line_start(handle: int) -> int:
    """The offset behind the last newline, so that a line under way is shown whole once it ends."""
    size_bytes = os.fstat(handle).st_size
    start = max(0, size_bytes - MAX_PENDING_BYTES)
    return start + os.pread(handle, size_bytes - start, start).rfind(b"\n") + 1


def _logs_of(home: Home, principal: PrincipalName) -> Iterator[LogFile]:
    for path in list_folder(home.log_folder(principal)):
        if path.suffix == ".log" and path != home.daemon_log and path.is_file():
            try:
                name = parse_capsule_name(path.stem)
            except AosError:
                continue
            yield LogFile(principal=principal, capsule=name, path=path)


def _log_folders(home: Home) -> set[PrincipalName]:
    """Principals that have logs but, since removed, no folder of their own."""
    found = set()
    for path in list_folder(home.log):
        if path.is_dir():
            try:
                found.add(parse_principal_name(path.name))
            except AosError:
                continue
    return found
