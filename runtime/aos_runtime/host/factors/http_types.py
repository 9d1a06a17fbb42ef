"""The WIT types of astrid:http, both versions; the functions are in `http`."""

from __future__ import annotations

from aos_runtime.host.wit import (
    BOOL,
    BYTES,
    STRING,
    U16,
    U32,
    U64,
    Enum,
    ListOf,
    Option,
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
PAIRS = ListOf(Record((("key", STRING), ("value", STRING))))
REQUEST = Record((("url", STRING), ("method", _METHOD), ("headers", PAIRS), ("body", Option(BYTES))))
_TIMEOUTS = Record(
    tuple((f"{name}-ms", Option(U64)) for name in ("connect", "first-byte", "between-bytes", "total"))
)
OPTIONS = Record(
    (
        ("timeouts", Option(_TIMEOUTS)),
        ("redirect", Option(Enum(("follow", "error", "manual")))),
        ("max-redirects", Option(U32)),
        ("max-response-bytes", Option(U64)),
        ("max-decompressed-bytes", Option(U64)),
        ("auto-decompress", Option(BOOL)),
        ("https-only", Option(BOOL)),
        ("integrity", Option(STRING)),
    )
)
_META = Record((("final-url", STRING), ("redirect-count", U32), ("elapsed-ms", U64), ("wire-bytes", U64)))
OLD_RESPONSE = Record((("status", U16), ("headers", PAIRS), ("body", BYTES)))
RESPONSE = Record((*OLD_RESPONSE.fields, ("meta", _META)))
