"""What the files of a principal hold: those of its home and its scratch folder, which the runtime gives it.

A count in memory only grows, whatever is overwritten or removed; where it meets the limit the folders are
measured.  A name costs a block at least, so that empty files are not free.  Files of a workspace are its
owner's and are not counted.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.file_tree import FileCase, FileRefused
from aos_runtime.store.kv import MAX_STORAGE_BYTES

MAX_FILES_BYTES = 10 * 1024 * 1024 * 1024
"""Of a principal, whatever its quota."""
NAME_BYTES = 4096
MEASURE_PAUSE_S = 5.0
"""A principal that stays over its limit is measured no more often than this."""


class Storage:
    """One per daemon.  `limit_of` is the quota of a principal for keys and files together, `stored_bytes`
    what its keys hold.
    """

    def __init__(
        self,
        home: Home,
        *,
        limit_of: Callable[[PrincipalName], int],
        stored_bytes: Callable[[PrincipalName], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home
        self._limit_of = limit_of
        self._stored_bytes = stored_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._used: dict[PrincipalName, int] = {}
        self._measured_at: dict[PrincipalName, float] = {}

    def grow(self, principal: PrincipalName, added_bytes: int) -> None:
        """Count what a write adds.  FileRefused `quota` where that is too much."""
        added_bytes = max(added_bytes, NAME_BYTES)
        with self._lock:
            limit_bytes = self._files_limit(principal)
            used = self._used.get(principal)
            if used is None or (used + added_bytes > limit_bytes and self._may_measure(principal)):
                used = self.files_bytes(principal)
                self._measured_at[principal] = self._clock()
            if used + added_bytes > limit_bytes:
                self._used[principal] = used
                raise FileRefused(FileCase.QUOTA)
            self._used[principal] = used + added_bytes

    def forget(self, principal: PrincipalName) -> None:
        """It was deleted: its files are not counted against one that gets its name."""
        with self._lock:
            self._used.pop(principal, None)
            self._measured_at.pop(principal, None)

    def keys_limit(self, principal: PrincipalName) -> int:
        """What the keys of a principal may hold: its quota less what its files are known to hold."""
        quota = self._limit_of(principal)
        if quota == MAX_STORAGE_BYTES:
            return quota
        return max(0, quota - self._used.get(principal, 0))

    def files_bytes(self, principal: PrincipalName) -> int:
        """What the files of a principal hold now."""
        files = self._home.principal(principal)
        folders = (
            (files, {".local", ".config", "wit"}),  # what the runtime itself keeps there
            (files / ".config", {"env"}),
            (self._home.scratch(principal), set[str]()),
        )
        return sum(size for folder, hidden in folders for size in _sizes(folder, hidden))

    def _files_limit(self, principal: PrincipalName) -> int:
        quota = self._limit_of(principal)
        if quota == MAX_STORAGE_BYTES:
            return MAX_FILES_BYTES  # the keys have bounds of their own
        return min(MAX_FILES_BYTES, quota - self._stored_bytes(principal))

    def _may_measure(self, principal: PrincipalName) -> bool:
        return self._clock() - self._measured_at.get(principal, -MEASURE_PAUSE_S) >= MEASURE_PAUSE_S


def _sizes(folder: Path, hidden: set[str]) -> Iterator[int]:
    """The cost of each name below `folder` but the hidden ones at its top; what vanishes costs nothing."""
    waiting: list[tuple[str, set[str]]] = [(os.fspath(folder), hidden)]
    while waiting:
        level, skipped = waiting.pop()
        try:
            with os.scandir(level) as entries:
                for entry in entries:
                    if entry.name in skipped:
                        continue
                    found = entry.stat(follow_symlinks=False)
                    yield max(found.st_size if stat.S_ISREG(found.st_mode) else 0, NAME_BYTES)
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append((entry.path, set()))
        except OSError:
            continue
