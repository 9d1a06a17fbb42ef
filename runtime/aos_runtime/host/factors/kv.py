"""astrid:kv/host@1.0.0 (host-abi.md 1.4): a capsule's own keys for its principal.

What a key may be and how much may be kept is the store's to say; its refusals are the interface's error
cases.  No capability gates kv.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aos_runtime.errors import AosError
from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.factor import published
from aos_runtime.host.wit import (
    BYTES,
    STRING,
    U32,
    U64,
    ListOf,
    Option,
    Record,
    Result,
    Type,
    Variant,
)
from aos_runtime.store.kv import MAX_PAGE_KEYS, KvCase, KvRefused

SMALL_VALUE_BYTES = 64 << 10
"""Up to here a write goes to the log of the database without waiting for the disk."""

_T = TypeVar("_T")


def get(context: GuestContext, key: str) -> bytes | Err | None:
    """The value of `key`, or None."""
    return _attempt(lambda: context.kv.get(key))


def set_value(context: GuestContext, key: str, value: bytes) -> Err | None:
    """Replace the value of `key`."""
    _make_way(context, value)
    return _attempt(lambda: context.kv.set(key, value))


def delete(context: GuestContext, key: str) -> Err | None:
    """Forget `key`; ok where there is none."""
    return _attempt(lambda: context.kv.delete(key))


def list_keys(context: GuestContext, prefix: str) -> tuple[str, ...] | Err:
    """All keys that start with `prefix`, whole; `too-large` past 1024."""
    return _attempt(lambda: context.kv.list_keys(prefix))


def list_page(context: GuestContext, prefix: str, cursor: str | None, limit: int) -> dict[str, object] | Err:
    """At most `limit` keys (0 or more than 1024: 1024) strictly greater than `cursor`."""
    size = limit if 0 < limit <= MAX_PAGE_KEYS else MAX_PAGE_KEYS
    page = _attempt(lambda: context.kv.list_page(prefix, cursor, size))
    return page if isinstance(page, Err) else {"keys": page[0], "next-cursor": page[1]}


def clear_prefix(context: GuestContext, prefix: str) -> int | Err:
    """Forget all keys that start with `prefix`; how many there were."""
    context.before_block()
    return _attempt(lambda: context.kv.clear_prefix(prefix))


def cas(context: GuestContext, key: str, expected: bytes | None, new: bytes) -> Err | None:
    """Replace the value of `key` if it is `expected` (None: absent), atomically."""
    _make_way(context, new)
    swapped = _attempt(lambda: context.kv.cas(key, expected, new))
    if isinstance(swapped, Err):
        return swapped
    return None if swapped else Err("cas-mismatch")


def _attempt(operation: Callable[[], _T]) -> _T | Err:
    """The store's refusal, as an err arm."""
    try:
        return operation()
    except KvRefused as refusal:
        return Err(refusal.case, refusal.detail if refusal.case is KvCase.UNKNOWN else None)
    except AosError as error:
        return Err("unknown", error.message)


def _make_way(context: GuestContext, value: bytes) -> None:
    if len(value) > SMALL_VALUE_BYTES:
        context.before_block()


_ERROR = Variant(
    (
        ("invalid-key", None),
        ("too-large", None),
        ("quota", None),
        ("cas-mismatch", None),
        ("unknown", STRING),
    )
)
_PAGE = Record((("keys", ListOf(STRING)), ("next-cursor", Option(STRING))))


def _fallible(ok: Type | None) -> Result:
    return Result(ok, _ERROR)


FUNCTIONS = {
    "kv-get": published(get, _fallible(Option(BYTES)), key=STRING),
    "kv-set": published(set_value, _fallible(None), key=STRING, value=BYTES),
    "kv-delete": published(delete, _fallible(None), key=STRING),
    "kv-list-keys": published(list_keys, _fallible(ListOf(STRING)), prefix=STRING),
    "kv-list-keys-page": published(
        list_page, _fallible(_PAGE), prefix=STRING, cursor=Option(STRING), limit=U32
    ),
    "kv-clear-prefix": published(clear_prefix, _fallible(U64), prefix=STRING),
    "kv-cas": published(cas, _fallible(None), key=STRING, expected=Option(BYTES), new=BYTES),
}
