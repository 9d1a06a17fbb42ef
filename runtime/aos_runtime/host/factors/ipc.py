"""astrid:ipc/host@1.0.0 (host-abi.md 1.3): publishing, and receiving through subscriptions.

The edge serves `publish` itself and calls the context's port; its entry here is its published shape.
"""

from __future__ import annotations

from typing import Any

from aos_runtime.bus.envelope import Envelope
from aos_runtime.host import wit
from aos_runtime.host.codecs import Case, Err
from aos_runtime.host.context import GuestContext, Inflow
from aos_runtime.host.factors.factor import Published, published
from aos_runtime.host.factors.outside import gives, method
from aos_runtime.host.streams import POLLABLE, Pollable
from aos_runtime.host.wit import (
    BORROW,
    IPC_ERROR,
    OWN,
    STRING,
    U64,
    ListOf,
    Record,
    Result,
    Variant,
)

UNKNOWN_PREFIX = "unknown:"
"""How the ports spell `unknown(text)`."""
MAX_UNKNOWN_BYTES = 4096

SUBSCRIPTION = "subscription"
MAX_RECEIVE_MS = 60_000
MAX_BINDINGS = 64


def publish(context: GuestContext, topic: str, payload: str) -> Err | None:
    """Hand a message to the bus; the port decides."""
    return _answer(context.publish(topic, payload.encode()))


def publish_as(context: GuestContext, topic: str, payload: str, principal: str) -> Err | None:
    """`publish` for an uplink, in the name of whom it speaks for; the port decides who that is."""
    return _answer(context.publish_as(topic, payload.encode(), principal))


def subscribe(context: GuestContext, pattern: str) -> int | Err | None:
    """A handle that receives what is published on `pattern` from now on."""
    inflow = context.subscribe(pattern)
    if isinstance(inflow, str):
        return _answer(inflow)
    handle = context.resources.add(SUBSCRIPTION, inflow)
    if handle is None:
        inflow.close()
        return Err("quota")
    return handle


def poll(context: GuestContext, handle: int) -> dict[str, object] | Err:
    """At most one message, without waiting."""
    inflow: Any = context.resources.get(SUBSCRIPTION, handle)
    if inflow is None or inflow.is_closed:
        return Err("closed")
    return _received(context, inflow, inflow.poll())


def receive(context: GuestContext, handle: int, timeout_ms: int) -> dict[str, object] | Err:
    """At most one message, waiting up to a minute for it; empty when none came or the wait was cut short.

    `backpressure` where so many guests wait inside their calls that one more would leave nobody to serve.
    """
    inflow: Any = context.resources.get(SUBSCRIPTION, handle)
    if inflow is None or inflow.is_closed:
        return Err("closed")
    envelope = inflow.poll()
    if envelope is None and timeout_ms and not context.is_cancelled:
        gate = None if context.is_loop else context.gate
        if gate is not None and not gate.enter():
            return Err("backpressure")
        try:
            context.before_block()
            context.waiting = inflow
            envelope = inflow.wait(min(timeout_ms, MAX_RECEIVE_MS) / 1000)
        finally:
            context.waiting = None
            if gate is not None:
                gate.leave()
    context.yielded()
    if envelope is None and inflow.is_closed:
        return Err("closed")
    return _received(context, inflow, envelope)


class _Arrival:
    """The source of a subscription: a message waits, or none will ever come."""

    __slots__ = ("_inflow",)

    def __init__(self, inflow: Inflow) -> None:
        self._inflow = inflow

    def is_ready(self) -> bool:
        return self._inflow.is_closed or self._inflow.has_message

    def descriptor(self) -> tuple[int, int] | None:
        return None


def get_interceptor_bindings(context: GuestContext) -> list[dict[str, object]]:
    """The handler rows of the manifest; the ids are for logs and no handles."""
    return [
        {"handle-id": number, "action": row.action, "topic": row.topic}
        for number, row in enumerate(context.bindings[:MAX_BINDINGS], 1)
    ]


def _answer(refusal: str | None) -> Err | None:
    if refusal is None:
        return None
    if refusal.startswith(UNKNOWN_PREFIX):
        return Err("unknown", unknown_text(refusal))
    return Err(refusal)


def unknown_text(refusal: str) -> str:
    """The text of `unknown` in a port's answer, cut to what a guest is told."""
    text = refusal.removeprefix(UNKNOWN_PREFIX)
    return text.encode()[:MAX_UNKNOWN_BYTES].decode("utf-8", "ignore")


def _received(context: GuestContext, inflow: Inflow, envelope: Envelope | None) -> dict[str, object]:
    """An ipc-envelope.  `dropped` and `lagged` are what this subscription has lost so far.

    A run loop speaks from here on in the name of the message that it got; an empty receive changes nothing.
    """
    if envelope is not None and context.is_loop:
        context.current = envelope
    lost = inflow.lost
    messages = [] if envelope is None else [_message(envelope)]
    return {"messages": messages, "dropped": lost, "lagged": lost}


def _message(envelope: Envelope) -> dict[str, object]:
    principal = envelope.principal
    return {
        "topic": envelope.topic,
        "payload": envelope.body.decode(),
        "source-id": envelope.source_id,
        "principal": Case("system") if principal is None else Case("verified", principal),
    }


_ATTRIBUTION = Variant((("verified", STRING), ("claimed", STRING), ("system", None)))
_MESSAGE = Record(
    (("topic", STRING), ("payload", STRING), ("source-id", STRING), ("principal", _ATTRIBUTION))
)
_ENVELOPE = Record((("messages", ListOf(_MESSAGE)), ("dropped", U64), ("lagged", U64)))
_BINDING = Record((("handle-id", U64), ("action", STRING), ("topic", STRING)))

FUNCTIONS = {
    "publish": Published(publish, wit.PUBLISH),
    "publish-as": published(
        publish_as, Result(None, IPC_ERROR), topic=STRING, payload=STRING, principal=STRING
    ),
    "subscribe": published(subscribe, Result(OWN, IPC_ERROR), topic_pattern=STRING),
    "get-interceptor-bindings": published(get_interceptor_bindings, Result(ListOf(_BINDING), IPC_ERROR)),
    "[method]subscription.poll": Published(
        poll, wit.Signature((("self", BORROW),), Result(_ENVELOPE, IPC_ERROR))
    ),
    "[method]subscription.recv": Published(
        receive, wit.Signature((("self", BORROW), ("timeout-ms", U64)), Result(_ENVELOPE, IPC_ERROR))
    ),
    "[method]subscription.subscribe-readiness": method(
        gives(SUBSCRIPTION, POLLABLE, lambda inflow: Pollable(_Arrival(inflow))), OWN
    ),
}
