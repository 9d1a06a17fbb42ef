"""What one line of the audit trail is, how its chain is computed, and what a batch signs.  Pure.

An entry is the published JSON (daemon-kernel.md 9.5, v1).  Two things differ (ADR 0004): the chain hash
covers the whole line, outcome details included, and one signature covers a batch instead of one entry.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

MAX_STRING_BYTES = 1024
MAX_DEPTH = 6
MAX_ITEMS = 64
"""Keys of one object and elements of one list that are kept."""

GENESIS = "0" * 64
"""`previous_hash` of the first entry of a chain."""

FIRST_DIGEST = bytes(32)
"""What the first batch follows."""

SUCCESS: Mapping[str, object] = {"status": "success"}
NOT_REQUIRED: Mapping[str, object] = {"type": "not_required"}
SYSTEM: Mapping[str, object] = {"type": "system"}

_BATCH_CONTEXT = b"aos.audit.batch.v1\0"
_RECEIPT_CONTEXT = b"aos.audit.prune.v1\0"


class ToolCall(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="capsule_tool_call"):
    """The action of one execution of a tool: what most entries are about."""

    capsule_id: str
    tool: str
    args_hash: str
    call_id: str


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An entry before it has a place in a chain.  `at_ns` is the wall clock; all strings are bounded."""

    at_ns: int
    principal: str | None
    action: Mapping[str, object] | ToolCall
    authorization: Mapping[str, object]
    outcome: Mapping[str, object]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line.  Field order is the order of the line."""

    id: str
    timestamp: str
    session_id: str
    action: dict[str, Any]
    authorization: dict[str, Any]
    outcome: dict[str, Any]
    previous_hash: str
    principal: str | None = None


class Link(msgspec.Struct, frozen=True):
    """The part of a line that its chain needs."""

    id: str
    session_id: str
    previous_hash: str
    principal: str | None = None


class ChainKey(NamedTuple):
    """Whose chain: one per session and principal; None for what the system does for nobody."""

    session: str
    principal: str | None


class Head(NamedTuple):
    """Where a chain stands: how many entries it had in all, and the hash of the last."""

    length: int
    hash: str


class ChainHead(msgspec.Struct, frozen=True):
    """A chain's place in a prune receipt."""

    session: str
    principal: str | None
    count: int
    head: str


class PruneReceipt(msgspec.Struct, frozen=True):
    """What was cut off at the front: everything up to a batch, and where each cut chain stood there."""

    through_batch: int
    through_digest: str
    next_entry: int
    omitted_entries: int
    omitted_bytes: int
    at: str
    chains: list[ChainHead]


encode_entry = msgspec.json.Encoder().encode
decode_entry = msgspec.json.Decoder(Entry).decode
decode_link = msgspec.json.Decoder(Link).decode
encode_receipt = msgspec.json.Encoder().encode
decode_receipt = msgspec.json.Decoder(PruneReceipt).decode


def line_hash(line: bytes) -> str:
    """The chain hash of a line: BLAKE3 of its bytes, 64 hexadecimal digits."""
    return blake3(line).hexdigest()


def batch_digest(number: int, previous: bytes, first: int, count: int, body: bytes) -> bytes:
    """What a batch signs: its number, the digest of the batch before, and its lines."""
    head = number.to_bytes(8, "big") + previous + first.to_bytes(8, "big") + count.to_bytes(4, "big")
    return blake3(_BATCH_CONTEXT + head + body).digest()


def sign_digest(key: SigningKey, digest: bytes) -> bytes:
    """The runtime's signature over a batch, 64 bytes."""
    return key.sign(_BATCH_CONTEXT + digest).signature


def sign_receipt(key: SigningKey, receipt: bytes) -> bytes:
    """The runtime's signature over a prune receipt, 64 bytes."""
    return key.sign(_RECEIPT_CONTEXT + receipt).signature


def is_signed_batch(key: VerifyKey, digest: bytes, signature: bytes) -> bool:
    return _is_signed(key, _BATCH_CONTEXT + digest, signature)


def is_signed_receipt(key: VerifyKey, receipt: bytes, signature: bytes) -> bool:
    return _is_signed(key, _RECEIPT_CONTEXT + receipt, signature)


def _is_signed(key: VerifyKey, message: bytes, signature: bytes) -> bool:
    try:
        key.verify(message, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def capped(text: str) -> str:
    """At most 1024 bytes of `text`, cut between characters; what is no Unicode becomes `?`."""
    if len(text) <= MAX_STRING_BYTES and text.isascii():
        return text
    data = text[: MAX_STRING_BYTES + 1].encode("utf-8", "replace")
    return data[:MAX_STRING_BYTES].decode("utf-8", "ignore")


def bounded(values: Mapping[str, object]) -> dict[str, object]:
    """`values` with every string capped, at any depth; what nests or counts too much is left out."""
    return {capped(key): _bounded(value, 1) for key, value in list(values.items())[:MAX_ITEMS]}


def _bounded(value: object, depth: int) -> object:
    if isinstance(value, str):
        return capped(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        pairs = list(value.items())[:MAX_ITEMS]
        return {capped(str(key)): _bounded(item, depth + 1) for key, item in pairs}
    if depth < MAX_DEPTH and isinstance(value, (list, tuple)):
        return [_bounded(item, depth + 1) for item in value[:MAX_ITEMS]]
    return "..."


def failure(error: str) -> dict[str, object]:
    """The outcome of what was refused or went wrong."""
    return {"status": "failure", "error": error}


class Session:
    """One run of a process that records.  Its ids and times are cheap: a batch makes thousands."""

    __slots__ = ("_next", "_prefix", "_second", "_stamp", "id")

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())
        self._prefix = f"{self.id[:18]}-8000-"
        self._next = 0
        self._second = -1
        self._stamp = ""

    def next_id(self) -> str:
        """A UUID: the session's beginning, then a number that only grows, below 2**48."""
        self._next = number = self._next + 1
        return f"{self._prefix}{number:012x}"

    def timestamp(self, at_ns: int) -> str:
        """RFC 3339 in UTC with microseconds."""
        second, rest_ns = divmod(at_ns, 1_000_000_000)
        if second != self._second:
            self._second = second
            self._stamp = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        return f"{self._stamp}.{rest_ns // 1000:06d}Z"
