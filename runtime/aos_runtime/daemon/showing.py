"""Events and calls as documents for a watcher: what `policy.redaction` lets be seen, and who is who.

It works for the reader of a tail or a trace, on the reader's time, never on the bus's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from aos_runtime.bus.envelope import Envelope
from aos_runtime.kernel.trace import KEPT_BODY_BYTES
from aos_runtime.kernel.views import View
from aos_runtime.kernel.waterfall import Moment, Waterfall
from aos_runtime.names import PrincipalName
from aos_runtime.policy.redaction import (
    DIGEST_KEY_BYTES,
    payload_digest,
    payload_keys,
    secret_words,
    shown_payload,
)
from aos_runtime.wire.methods import NIL_SOURCE

SECRETS_AGE_S = 2.0
"""A secret that is set is hidden from then on, at the latest after this."""

MAX_NAMED_SOURCES = 4096


class Showing:
    """`views` is what is loaded now; `secrets_of(principal)` reads the secrets that its capsules hold."""

    def __init__(
        self,
        *,
        boot_id: str,
        views: Callable[[], Mapping[PrincipalName, View]],
        secrets_of: Callable[[PrincipalName], tuple[str, ...]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._boot_id = boot_id
        self._views = views
        self._secrets_of = secrets_of
        self._clock = clock
        self._digest_key = os.urandom(DIGEST_KEY_BYTES)
        self._words: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._names: dict[str, str] = {}

    def event(self, event: Envelope, targets: tuple[str, ...], *, payloads: bool) -> dict[str, object]:
        """One message as a watcher sees it."""
        document = {
            "event_id": event.event_id(self._boot_id),
            "seq": event.seq,
            "time": _moment(event.timestamp_ms),
            "topic": event.topic,
            "kind": event.kind,
            "principal": event.principal,
            "source": self.speaker(event.source_id),
            "origin": event.origin,
            "targets": list(targets),
            **self._about(event, len(event.body)),
        }
        if payloads:
            document["payload"] = shown_payload(event.topic, event.body, self._hidden(event.principal))
        return document

    def call(self, call: Waterfall, *, payloads: bool) -> dict[str, object]:
        """One call as a document; times in microseconds from its start."""
        return {
            "call_id": call.call_id,
            "tool": call.tool,
            "principal": call.principal,
            "time": _moment(call.timestamp_ms),
            "duration_us": _us(call.duration_ns),
            "outcome": call.outcome,
            "steps": [self._step(moment, payloads=payloads) for moment in call.moments],
            "omitted": call.omitted,
        }

    def speaker(self, source_id: str) -> str | None:
        """The capsule with that source id; None for the daemon and its clients, and for one that is gone."""
        if source_id == NIL_SOURCE:
            return None
        name = self._names.get(source_id)
        if name is None:
            name = self._find(source_id)
        return name

    def _find(self, source_id: str) -> str | None:
        for view in self._views().values():
            for resident in view.residents.values():
                if resident.loaded.source_id == source_id:
                    if len(self._names) >= MAX_NAMED_SOURCES:
                        self._names.clear()
                    self._names[source_id] = resident.name
                    return resident.name
        return None

    def _step(self, moment: Moment, *, payloads: bool) -> dict[str, object]:
        document: dict[str, object] = {
            "at_us": _us(moment.at_ns),
            "depth": moment.depth,
            "what": moment.what,
            "capsule": moment.capsule,
            "name": moment.name,
            "outcome": moment.outcome,
        }
        if moment.duration_ns is not None:
            document["duration_us"] = _us(moment.duration_ns)
        if moment.waited_ns is not None:
            document["waited_us"] = _us(moment.waited_ns)
        if moment.message is not None:
            message, size = moment.message, moment.size_bytes or 0
            document |= {
                "capsule": self.speaker(message.source_id),
                "seq": message.seq,
                "targets": list(moment.targets),
                **self._about(message, size),
            }
            if payloads:
                document["payload"] = self._kept(message, size)
        return document

    def _kept(self, message: Envelope, size_bytes: int) -> object:
        """The payload where all of it was kept: half of one could hold half of a secret."""
        if size_bytes > len(message.body):
            return f"[{size_bytes} bytes; a trace keeps payloads up to {KEPT_BODY_BYTES}]"
        return shown_payload(message.topic, message.body, self._hidden(message.principal))

    def _about(self, event: Envelope, size_bytes: int) -> dict[str, object]:
        """Size, digest and keys; the last two are null for a payload that was not kept whole."""
        is_whole = size_bytes == len(event.body)
        return {
            "size_bytes": size_bytes,
            "digest": payload_digest(event.body, self._digest_key) if is_whole else None,
            "keys": payload_keys(event.body, self._hidden(event.principal)) if is_whole else None,
        }

    def _hidden(self, principal: str | None) -> tuple[str, ...]:
        if principal is None:
            return ()
        now = self._clock()
        known = self._words.get(principal)
        if known is None or now - known[0] > SECRETS_AGE_S:
            known = now, secret_words(self._secrets_of(PrincipalName(principal)))
            self._words[principal] = known
        return known[1]


def _moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _us(nanoseconds: int) -> float:
    return round(nanoseconds / 1000, 1)
