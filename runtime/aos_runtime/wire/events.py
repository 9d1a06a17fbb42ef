"""The events door: `astrid.v1.request.events.<verb>.<corr>`, its parameters and the rights that they need.

A native uplink like the door for tools: only a client's connection reaches it, never a capsule's publish, so
that no capsule watches, or speaks, with the rights of the principal that it runs for.  Names and rights only;
the daemon carries them out.  ADR 0008 says why these capabilities.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from aos_runtime.capsule.topics import has_valid_segments, topic_problem
from aos_runtime.wire.ingress import topic_refusal
from aos_runtime.wire.payloads import RAW_JSON
from aos_runtime.wire.requests import BadRequest, decode_door_request

EVERYBODY = "*"
"""As a principal: of all of them."""

MAX_TAIL_EVENTS = 1_000_000

WATCH_OWN = "self:audit:read"
WATCH_OTHERS = "audit:read_all"
READ_OTHERS = "audit:read_payloads"
TOP_OWN = "self:capsule:list"
TOP_ALL = "system:status"
SPEAK = "capsule:access:any"

SYSTEM_NAMESPACES = ("astrid.", "client.")
"""What the daemon and the protocol say: nobody speaks there but through the front door."""


class Watch(Struct, frozen=True):
    """`tail`: events whose topic `pattern` covers, of `principal` (None: the caller's), `limit` of them.

    `capsule` leaves those that it published or is sent.
    """

    pattern: str | None = None
    principal: str | None = None
    capsule: str | None = None
    payloads: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.pattern is not None and not has_valid_segments(self.pattern):
            raise ValueError("pattern is empty or has an empty segment")
        if self.limit is not None and not 0 < self.limit <= MAX_TAIL_EVENTS:
            raise ValueError(f"limit must be over 0 and at most {MAX_TAIL_EVENTS}")


class Stop(Struct, frozen=True):
    """`stop`: `corr` of the tail."""

    corr: str


class Publish(Struct, frozen=True):
    """`publish`: one message in the caller's own name."""

    topic: str
    payload: dict[str, Any]


class Trace(Struct, frozen=True):
    """`trace`: the call of this id, the last one for None."""

    call_id: str | None = None
    principal: str | None = None
    payloads: bool = False


class Top(Struct, frozen=True):
    """`top`: counts of the caller's capsules; of everybody's with `everybody`."""

    everybody: bool = False


SHAPES: dict[str, type[Struct]] = {
    "tail": Watch,
    "stop": Stop,
    "publish": Publish,
    "trace": Trace,
    "top": Top,
}


def decode_events_request(verb: str, body: bytes, kind: str | None = RAW_JSON) -> dict[str, Any] | BadRequest:
    """The parameters of a request, or what is wrong with them."""
    return decode_door_request(SHAPES, "events", verb, body, kind)


def needed_rights(verb: str, params: dict[str, Any], caller: str) -> tuple[str, ...]:
    """The capabilities that a request needs, in the order in which they are checked."""
    if verb in ("tail", "trace"):
        if params["principal"] in (None, caller):
            return (WATCH_OWN,)
        return (WATCH_OTHERS, READ_OTHERS) if params["payloads"] else (WATCH_OTHERS,)
    if verb == "top":
        return (TOP_ALL,) if params["everybody"] else (TOP_OWN,)
    if verb == "publish" and topic_refusal(params["topic"]) is not None:
        return (SPEAK,)
    return ()


def publish_problem(topic: str) -> str | None:
    """Why not even an operator may publish on `topic` by the door; None where one may."""
    problem = topic_problem(topic)
    if problem is not None:
        return problem
    if f"{topic}.".startswith(SYSTEM_NAMESPACES):
        return f"topics below {' and '.join(SYSTEM_NAMESPACES)} are the system's own words"
    return None
