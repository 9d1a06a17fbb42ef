"""The state that a lifecycle hook sees: the capsule's own, with a way back.

An install that fails leaves what was there (case INS-21), also in key-value state: the first change of each
key is remembered, and `undo` puts exactly those keys back.  What a serving older version writes to other keys
meanwhile stays.
"""

from __future__ import annotations

from aos_runtime.host import KvSpace
from aos_runtime.store.kv import KvCase, KvRefused

MAX_KEYS = 16_384
MAX_BYTES = 64 * 1024 * 1024
"""How much a hook may change: what it replaces is held in memory until it has ended."""
_PAGE_KEYS = 1024


class UndoSpace:
    """Implements `KvSpace` over another one; used by one thread."""

    def __init__(self, space: KvSpace) -> None:
        self._space = space
        self._before: dict[str, bytes | None] = {}
        self._size_bytes = 0

    def get(self, key: str) -> bytes | None:
        return self._space.get(key)

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        return self._space.list_keys(prefix)

    def list_page(self, prefix: str, cursor: str | None, limit: int) -> tuple[tuple[str, ...], str | None]:
        return self._space.list_page(prefix, cursor, limit)

    def set(self, key: str, value: bytes) -> None:
        self._remember(key)
        self._space.set(key, value)

    def delete(self, key: str) -> None:
        self._remember(key)
        self._space.delete(key)

    def cas(self, key: str, expected: bytes | None, new: bytes) -> bool:
        self._remember(key)
        return self._space.cas(key, expected, new)

    def clear_prefix(self, prefix: str) -> int:
        cursor: str | None = None
        while True:
            keys, cursor = self._space.list_page(prefix, cursor, _PAGE_KEYS)
            for key in keys:
                self._remember(key)
            if cursor is None:
                return self._space.clear_prefix(prefix)

    def undo(self) -> None:
        """Put every changed key back."""
        before, self._before = self._before, {}
        for key, value in before.items():
            if value is None:
                self._space.delete(key)
            else:
                self._space.set(key, value)

    def _remember(self, key: str) -> None:
        if key in self._before:
            return
        value = self._space.get(key)
        self._size_bytes += len(key) + len(value or b"")
        if len(self._before) >= MAX_KEYS or self._size_bytes > MAX_BYTES:
            raise KvRefused(KvCase.QUOTA)
        self._before[key] = value
