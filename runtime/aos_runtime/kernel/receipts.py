"""Delivery receipts: a guest that publishes with `_astrid_delivery_id` hears when nobody took its message.

The id is taken out of the payload before anybody sees it.  The receipt goes to
`astrid.v1.delivery.failure.<publisher>.<id>`, which only its publisher can subscribe to, under the alias
without the publisher.  Source: daemon-kernel.md 3.3, host-abi.md 1.3.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.policy.publish import DELIVERY_FAILURE

DELIVERY_KEY = "_astrid_delivery_id"
DELIVERY_MARK = f'"{DELIVERY_KEY}"'.encode()
"""What a payload with an id holds somewhere; hardly any other does."""
_ID = re.compile(r"[0-9a-f]{32}")
_NIL = "0" * 32
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class DeliveryFailure(StrEnum):
    """The fixed reasons of a receipt; no text of a guest is ever among them."""

    NO_CONSUMER = "no-consumer"
    QUEUE_FULL = "queue-full"
    DENIED = "denied"
    FAILED = "failed"
    UNLOADED = "unloaded"


class Marked(NamedTuple):
    """A payload without the mark, and the id that it carried."""

    payload: bytes
    delivery_id: str | None


def take_delivery_id(payload: bytes) -> Marked | None:
    """Separate the id from a payload; None where there is one that is none.  0.05 us where there is none."""
    if DELIVERY_MARK not in payload:
        return Marked(payload, None)
    try:
        fields = _decode(payload)
        mark = fields.pop(DELIVERY_KEY, None)
        if mark is None:
            return Marked(payload, None)  # it stands deeper, or in a string: not ours
        delivery_id = _decode_text(mark)
    except (msgspec.DecodeError, UnicodeError):
        return Marked(payload, None) if not payload.lstrip().startswith(b"{") else None
    if not _ID.fullmatch(delivery_id) or delivery_id == _NIL:
        return None
    return Marked(_encode(fields), delivery_id)


def own_pattern(pattern: str, source_id: str) -> str:
    """A subscription to the alias `astrid.v1.delivery.failure.<id or *>`, as what this publisher gets."""
    head, _, last = pattern.rpartition(".")
    return f"{head}.{publisher_segment(source_id)}.{last}" if head == DELIVERY_FAILURE else pattern


def receipt_topic(envelope: Envelope) -> str:
    """Where the receipt for this message goes."""
    return f"{DELIVERY_FAILURE}.{publisher_segment(envelope.source_id)}.{envelope.delivery_id}"


def receipt_body(envelope: Envelope, reason: DeliveryFailure) -> bytes:
    """What it says."""
    return _encode(
        {"delivery_id": envelope.delivery_id, "request_topic": envelope.topic, "reason": reason.value}
    )


def publisher_segment(source_id: str) -> str:
    """A source uuid as one topic segment: its 32 digits."""
    return source_id.replace("-", "")
