"""What of a payload may be shown to somebody who watches the bus.

Unless asked for more: its size, a digest that tells equal from different within one boot, and its keys.
Asked for the payload: its JSON without what is secret, which is every value under a key that names a secret,
every occurrence of a secret that a capsule of the principal holds, and the whole of an answer to an
elicitation.  Pure: the secrets are the caller's to bring.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from blake3 import blake3

HIDDEN = "[secret]"
MAX_KEYS = 16
MAX_KEY_CHARS = 64
MAX_LISTED_BYTES = 64 * 1024
"""A larger payload is not parsed to list its keys."""
MIN_SECRET_CHARS = 4
"""A shorter value is in everything: hiding it would hide nothing and destroy all."""
MAX_DEPTH = 64
DIGEST_KEY_BYTES = 32
DIGEST_BYTES = 8

HIDDEN_TOPICS = ("astrid.v1.elicit.response.", "astrid.v1.private.")
"""What a human typed for a capsule alone."""

_SECRET_KEY = re.compile(
    r"pass(word|wd|phrase)|secret|token(?!s)|api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization"
    r"|cookie|bearer|signature",
    re.IGNORECASE,
)
_decode = msgspec.json.Decoder().decode


def is_secret_name(key: str) -> bool:
    """Whether the value under this key is not for anybody's eyes."""
    return _SECRET_KEY.search(key) is not None


def secret_words(values: Iterable[str]) -> tuple[str, ...]:
    """The texts to hide for these secrets, longest first: each as it is and as a JSON string holds it."""
    words: set[str] = set()
    for value in values:
        if len(value) >= MIN_SECRET_CHARS:
            words.add(value)
            words.add(msgspec.json.encode(value).decode()[1:-1])
    return tuple(sorted(words, key=lambda word: (-len(word), word)))


def payload_digest(body: bytes, key: bytes) -> str:
    """Equal payloads of one boot have equal digests; without `key` (32 bytes) nobody can try out values."""
    return blake3(body, key=key).hexdigest(DIGEST_BYTES)


def payload_keys(body: bytes, words: Sequence[str] = ()) -> list[str] | None:
    """The top-level keys, at most 16 and each cut to 64 characters; None where it is no object or large."""
    if len(body) > MAX_LISTED_BYTES:
        return None
    value = _parse(body)
    if not isinstance(value, dict):
        return None
    return [_clean(key, words)[:MAX_KEY_CHARS] for key in list(value)[:MAX_KEYS]]


def shown_payload(topic: str, body: bytes, words: Sequence[str]) -> Any:
    """The payload as JSON without what is secret; `words` come from `secret_words`."""
    if topic.startswith(HIDDEN_TOPICS):
        return HIDDEN
    return _shown(_parse(body), words, 0)


def _parse(body: bytes) -> Any:
    """The JSON value; None for what is no JSON that can be held."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def _shown(value: Any, words: Sequence[str], depth: int) -> Any:
    if depth > MAX_DEPTH:
        return f"[nested deeper than {MAX_DEPTH} levels]"
    if isinstance(value, dict):
        return {
            _clean(key, words): HIDDEN if is_secret_name(key) else _shown(item, words, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_shown(item, words, depth + 1) for item in value]
    if isinstance(value, str):
        return _clean(value, words)
    return HIDDEN if str(value) in words else value


def _clean(text: str, words: Sequence[str]) -> str:
    for word in words:
        if word in text:
            text = text.replace(word, HIDDEN)
    return text
