"""One tool call put together from the steps that `trace` remembers: who did what, when, and for how long.

Every message carries what caused it, so a call is the tree of messages below its request.  Pure: it reads a
tuple of steps and knows no kernel, clock or client.  What a payload may show is `policy.redaction`'s to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aos_runtime.bus.envelope import Envelope
from aos_runtime.kernel.trace import Kind, Step

EXECUTE_TOPIC = "tool.v1.request.execute"
MAX_STEPS = 512
"""Of one call that are shown; the rest are counted."""

_REQUEST = re.compile(
    rb'\{"type":"tool_execute_request","call_id":"([^"\\]{1,128})","tool_name":"([^"\\]{0,256})"'
)
"""The start of a typed request, which is enough of one that was kept in part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One step of a call.  Times in nanoseconds from the call's start; `depth` is how far below its request.

    `what` is received, published, handled, called, refused, dropped or answered; `message` and `size_bytes`
    are those of a published one.
    """

    what: str
    at_ns: int
    depth: int
    duration_ns: int | None = None
    waited_ns: int | None = None
    capsule: str | None = None
    name: str = ""
    outcome: str | None = None
    targets: tuple[str, ...] = ()
    message: Envelope | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """One call.  `outcome` is `running` where nobody has answered yet; times in nanoseconds."""

    call_id: str
    tool: str
    principal: str
    timestamp_ms: int
    duration_ns: int
    outcome: str
    moments: tuple[Moment, ...]
    omitted: int = 0


@dataclass(slots=True)
class _Found:
    """What a pass over the steps gathers."""

    root: Step
    start: int
    depths: dict[int, int] = field(default_factory=dict)
    """By sequence number of each message of the call."""
    born: dict[int, int] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    outcome: str = "running"
    end: int = 0


def find_call(steps: Sequence[Step], call_id: str | None, principal: str | None) -> Waterfall | None:
    """The call with this id, or the last one for None; of `principal` alone, of anybody for None."""
    root = next(_requests(steps, call_id, principal), None)
    if root is None:
        return None
    envelope = _envelope(root)
    found = _Found(root=root, start=int(root[1]))  # type: ignore[call-overload]
    wanted, tool = _asked(envelope.body)
    for step in steps:
        _take(found, step, wanted)
    ordered = sorted(found.moments, key=lambda one: one.at_ns)
    return Waterfall(
        call_id=wanted,
        tool=tool,
        principal=envelope.principal or "",
        timestamp_ms=envelope.timestamp_ms,
        duration_ns=found.end or max(one.at_ns + (one.duration_ns or 0) for one in ordered),
        outcome=found.outcome,
        moments=tuple(ordered[:MAX_STEPS]),
        omitted=max(0, len(ordered) - MAX_STEPS),
    )


def _requests(steps: Sequence[Step], call_id: str | None, principal: str | None) -> Iterator[Step]:
    """Requests to run a tool, newest first."""
    for step in reversed(steps):
        if step[0] is not Kind.PUBLISHED:
            continue
        envelope = _envelope(step)
        if envelope.topic != EXECUTE_TOPIC or principal not in (None, envelope.principal):
            continue
        found, _ = _asked(envelope.body)
        if found and call_id in (None, found):
            yield step


def _envelope(step: Step) -> Envelope:
    envelope = step[4]
    assert isinstance(envelope, Envelope)
    return envelope


def _asked(body: bytes) -> tuple[str, str]:
    """Call id and tool name of a request; empty where it is none."""
    match = _REQUEST.match(body)
    return (match[1].decode("utf-8", "replace"), match[2].decode("utf-8", "replace")) if match else ("", "")


def _take(found: _Found, step: Step, call_id: str) -> None:
    """Add what this step says of the call; a step of another call says nothing."""
    kind, at, seq, *rest = step
    values: list[Any] = rest
    assert isinstance(at, int) and isinstance(seq, int)
    if kind is Kind.PUBLISHED:
        _take_message(found, step, at, seq, values)
    elif kind is Kind.BEGAN or kind is Kind.ENDED:
        _take_door(found, kind, at, values, call_id)
    elif seq in found.depths:
        _take_work(found, kind, at, seq, values)


def _take_message(found: _Found, step: Step, at: int, seq: int, values: list[Any]) -> None:
    cause, envelope, size, targets = values
    if step is found.root:
        depth = 0
    elif cause in found.depths:
        depth = found.depths[cause] + 2
    else:
        return
    found.depths[seq], found.born[seq] = depth, at
    found.moments.append(
        Moment(
            what="published",
            at_ns=at - found.start,
            depth=depth,
            name=envelope.topic,
            targets=targets,
            message=envelope,
            size_bytes=size,
        )
    )


def _take_door(found: _Found, kind: object, at: int, values: list[Any], call_id: str) -> None:
    """The call comes in by the door for tools, and its answer leaves by it."""
    _principal, of, word = values
    if of != call_id:
        return
    if kind is Kind.BEGAN:
        found.start = at  # the door hears of it first: its clock is the call's
        found.moments.append(Moment(what="received", at_ns=0, depth=0, name=word))
    else:
        found.outcome, found.end = word, at - found.start
        found.moments.append(Moment(what="answered", at_ns=found.end, depth=0, outcome=word))


def _take_work(found: _Found, kind: object, at: int, seq: int, values: list[Any]) -> None:
    depth = found.depths[seq] + 1
    start = at - found.start
    if kind is Kind.HANDLED:
        end, _, capsule, action, outcome = values
        found.moments.append(
            Moment(
                what="handled",
                at_ns=start,
                depth=depth,
                duration_ns=end - at,
                waited_ns=max(0, at - found.born[seq]),
                capsule=capsule,
                name=action.decode("utf-8", "replace"),
                outcome=outcome,
            )
        )
    elif kind is Kind.CALLED:
        end, _, capsule, name, refusal = values
        found.moments.append(
            Moment(
                what="called",
                at_ns=start,
                depth=depth + 1,
                duration_ns=end - at,
                capsule=capsule,
                name=name,
                outcome=refusal or "ok",
            )
        )
    else:
        _, capsule, topic, reason = values
        what = "refused" if kind is Kind.REFUSED else "dropped"
        depth += kind is Kind.REFUSED  # the handler did that; a dropped message never had one
        found.moments.append(
            Moment(what=what, at_ns=start, depth=depth, capsule=capsule, name=topic, outcome=reason)
        )
