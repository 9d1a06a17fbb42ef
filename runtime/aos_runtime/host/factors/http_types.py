"""The WIT types of astrid:http, both versions; the functions are in `http`."""

from __future__ import annotations

from aos_runtime.host.wit import (
    BYTES,
    STRING,
    Enum,
    Handle,
    ListOf,
    Option,
    Primitive,
    Record,
    Type,
    Variant,
)


def _arms(names: str) -> tuple[tuple[str, Type | None], ...]:
    return tuple((name, None) for name in names.split())


_TEXTS: tuple[tuple[str, Type | None], ...] = (("protocol", STRING), ("unknown", STRING))
_COMMON = (
    "capability-denied invalid-request dns-error airlock-rejected tls-error timeout connection-error"
    " body-too-large closed quota"
)
_ADDED = " redirect-blocked too-many-redirects integrity-mismatch scheme-denied decompression-bomb"
OLD_ERROR = Variant((*_arms(_COMMON), *_TEXTS))
ERROR = Variant((*_arms(_COMMON + _ADDED), *_TEXTS))
_METHOD = Variant((*_arms("get head post put delete connect options trace patch"), ("other", STRING)))
U16, _U32, _U64, _BOOL = Primitive("u16"), Primitive("u32"), Primitive("u64"), Primitive("bool")
PAIRS = ListOf(Record((("key", STRING), ("value", STRING))))
REQUEST = Record((("url", STRING), ("method", _METHOD), ("headers", PAIRS), ("body", Option(BYTES))))
_TIMEOUTS = Record(
    tuple((f"{name}-ms", Option(_U64)) for name in ("connect", "first-byte", "between-bytes", "total"))
)
OPTIONS = Record(
    (
        ("timeouts", Option(_TIMEOUTS)),
        ("redirect", Option(Enum(("follow", "error", "manual")))),
        ("max-redirects", Option(_U32)),
        ("max-response-bytes", Option(_U64)),
        ("max-decompressed-bytes", Option(_U64)),
        ("auto-decompress", Option(_BOOL)),
        ("https-only", Option(_BOOL)),
        ("integrity", Option(STRING)),
    )
)
_META = Record((("final-url", STRING), ("redirect-count", _U32), ("elapsed-ms", _U64), ("wire-bytes", _U64)))
OLD_RESPONSE = Record((("status", U16), ("headers", PAIRS), ("body", BYTES)))
RESPONSE = Record((*OLD_RESPONSE.fields, ("meta", _META)))
OWN = Handle(owned=True)
