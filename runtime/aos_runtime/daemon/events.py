"""The events door: `astrid.v1.request.events.<verb>.<corr>` from a client, never from a capsule.

| verb | params | answer |
|---|---|---|
| tail | `pattern?, principal?, capsule?, payloads?, limit?` | `Tailing`, then `Event`s and `Dropped {count}`; `Success {sent, dropped}` ends it |
| stop | `corr` of the tail | `Success {stopped}` |
| publish | `topic, payload` | `Success {topic, handlers, taken}` |
| trace | `call_id?, principal?, payloads?` | `Success {call_id, tool, steps, ...}` |
| top | `everybody?` | `Success {capsules, process, ...}` |

A principal of `*` is everybody.  `wire.events` says which rights each needs; they are read from disk for
every request, so the work is a job of the leader that has given the socket away first.  A message is
published in the name, and with the origin, of the connection that asks: nothing in a request can change it.
"""  # noqa: E501 - a table

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.daemon.showing import Showing
from aos_runtime.daemon.tails import Live, Tails, Watcher
from aos_runtime.errors import AosError
from aos_runtime.kernel.gauges import gauges
from aos_runtime.kernel.in_flight import InFlight
from aos_runtime.kernel.kernel import Kernel
from aos_runtime.kernel.leader import Job
from aos_runtime.kernel.ports import Submission
from aos_runtime.kernel.requests import Account
from aos_runtime.kernel.tail import Tail
from aos_runtime.kernel.views import View
from aos_runtime.kernel.waterfall import find_call
from aos_runtime.names import PrincipalName
from aos_runtime.wire import requests as wire
from aos_runtime.wire.events import EVERYBODY, decode_events_request, needed_rights, publish_problem
from aos_runtime.wire.frames import MAX_PAYLOAD_BYTES
from aos_runtime.wire.ingress import topic_refusal
from aos_runtime.wire.methods import NIL_SOURCE, WORKING_PERIOD_S, EventsTopic
from aos_runtime.wire.payloads import normalise


class Client(Watcher, Protocol):
    """A connection as the door sees it."""

    @property
    def cause(self) -> Envelope:
        """What its messages inherit."""
        ...

    def speak(self, topic: str, body: bytes) -> str | None:
        """Take a message by the front door, as if the client had sent it; a sentence refuses it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the door asks.

    `denial(cause, capability)` says why not; `process()` is the daemon in numbers; `ready` and `before_block`
    are the leader's.
    """

    denial: Callable[[Envelope, str], str | None]
    views: Callable[[], Mapping[PrincipalName, View]]
    process: Callable[[], Mapping[str, object]]
    ready: Callable[[Job], None]
    before_block: Callable[[], None]
    account: Account | None = None
    """The audit trail: what is published is on record before, who looks is on record too."""


class EventsDoor:
    """Answers tail, stop, publish, trace and top."""

    def __init__(self, kernel: Kernel, sources: Sources, showing: Showing, tails: Tails) -> None:
        self._kernel = kernel
        self._sources = sources
        self._showing = showing
        self._tails = tails
        self._in_flight = InFlight()

    def receive(self, asked: EventsTopic, body: bytes, kind: str | None, client: Client) -> None:
        """Take one request; it is answered later, from another thread's point of view."""
        params = decode_events_request(asked.verb, body, kind)
        if isinstance(params, wire.BadRequest):
            client.send(wire.error(params.text))
            return
        job = self._in_flight.admit(client.owner, lambda: self._serve(asked, params, client))
        if job is not None:
            self._sources.ready(job)
        else:
            client.send(wire.error(self._in_flight.refusal()))

    def disconnect(self, owner: str) -> None:
        """A client left."""
        self._tails.stop(owner, None)

    def _serve(self, asked: EventsTopic, params: dict[str, Any], client: Client) -> None:
        self._sources.before_block()  # rights and secrets are read from disk
        who, method = client.cause.principal or "", f"events.{asked.verb}"
        rights, account = tuple(needed_rights(asked.verb, params, who)), self._sources.account
        for right in rights:
            problem = self._sources.denial(client.cause, right)
            if problem is not None:
                if account is not None:
                    account.deny(who, method, params, problem)
                client.send(wire.error(problem))
                return
        ended: str | None = None
        try:
            if account is not None:
                account.admit(who, method, params, rights)
            answer = self._answer(asked, params, client)
        except AosError as error:
            ended, answer = error.code, wire.failed(error)
        if account is not None and ended != "audit-unavailable":
            account.finish(who, method, params, ended)
        if answer is not None:
            client.send(answer)

    def _answer(self, asked: EventsTopic, params: dict[str, Any], client: Client) -> bytes | None:
        match asked.verb:
            case "tail":
                problem = self._tails.start(self._live(asked.correlation, params, client))
                return None if problem is None else wire.error(problem)
            case "stop":
                return wire.ok("Success", {"stopped": self._tails.stop(client.owner, params["corr"])})
            case "publish":
                return self._publish(params["topic"], msgspec.json.encode(params["payload"]), client)
            case "trace":
                return self._trace(params, client)
            case _:
                return wire.ok("Success", self._top(client, everybody=params["everybody"]))

    # tail

    def _live(self, corr: str, params: dict[str, Any], client: Client) -> Live:
        capsule, payloads = params["capsule"], params["payloads"]
        showing = self._showing

        def concerns(event: Envelope, targets: tuple[str, ...]) -> bool:
            return capsule in targets or capsule == showing.speaker(event.source_id)

        def render(event: Envelope, targets: tuple[str, ...]) -> dict[str, object]:
            return showing.event(event, targets, payloads=payloads)

        tail = Tail(
            pattern=params["pattern"],
            principal=_whose(params, client),
            concerns=None if capsule is None else concerns,
            wake=self._tails.wake.set,
        )
        return Live(
            tail=tail,
            watcher=client,
            corr=corr,
            render=render,
            left=params["limit"],
            working_at=time.monotonic() + WORKING_PERIOD_S,
        )

    # publish

    def _publish(self, topic: str, payload: bytes, client: Client) -> bytes:
        if topic_refusal(topic) is None:
            refusal = client.speak(topic, payload)
            if refusal is not None:
                return wire.error(refusal)
            return self._spoken(topic, client, taken=True)
        problem = publish_problem(topic)
        if problem is None and len(payload) > MAX_PAYLOAD_BYTES:
            problem = f"payload exceeds IPC limit: {len(payload)} bytes, limit {MAX_PAYLOAD_BYTES}"
        normalised = normalise(payload)
        if problem is not None or normalised is None:
            return wire.error(problem or "the payload is no JSON that can be held")
        message = msgspec.structs.replace(
            client.cause, topic=topic, body=normalised.body, kind=normalised.kind, source_id=NIL_SOURCE
        )
        submission = self._kernel.submit(message)
        if submission is Submission.FULL:
            return wire.error("the queue is full; try again later")
        return self._spoken(topic, client, taken=submission is Submission.ACCEPTED)

    def _spoken(self, topic: str, client: Client, *, taken: bool) -> bytes:
        handlers = list(self._kernel.targets(topic, client.cause.principal))
        return wire.ok("Success", {"topic": topic, "handlers": handlers, "taken": taken})

    # trace and top

    def _trace(self, params: dict[str, Any], client: Client) -> bytes:
        call_id = params["call_id"]
        found = find_call(self._kernel.trace.steps(), call_id, _whose(params, client))
        if found is not None:
            return wire.ok("Success", self._showing.call(found, payloads=params["payloads"]))
        which = "no tool call" if call_id is None else f"no call {call_id[:128]!r}"
        return wire.error(f"{which} is remembered; the daemon keeps the last few hundred")

    def _top(self, client: Client, *, everybody: bool) -> dict[str, object]:
        views = self._sources.views()
        shown = [
            view for principal, view in views.items() if everybody or principal == client.cause.principal
        ]
        return gauges(shown, self._sources.process() if everybody else {}, time.monotonic_ns())


def _whose(params: dict[str, Any], client: Client) -> str | None:
    """The principal whose events are meant; None for everybody's."""
    asked = params["principal"]
    if asked == EVERYBODY:
        return None
    return str(asked) if asked is not None else client.cause.principal or ""
