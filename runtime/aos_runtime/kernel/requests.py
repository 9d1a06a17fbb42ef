"""Kernel and admin requests: authorise, charge, handle, answer.

Requests come from the bus (a client's or a capsule's publish on `astrid.v1.request.*` or `astrid.v1.admin.*`)
and are answered on it.  Each runs on a worker thread that has given the socket away first, a slow one on its
own thread with `Working` every five seconds, so one install delays nobody.  Source: daemon-kernel.md 5.1 to
5.3.  What each method does is in `handlers`; nothing here touches a capsule.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.errors import AosError
from aos_runtime.kernel.audit_feed import AUDIT_TOPIC, audit_entry
from aos_runtime.kernel.audited import READING
from aos_runtime.kernel.in_flight import InFlight
from aos_runtime.kernel.kernel import Journal
from aos_runtime.kernel.leader import Job
from aos_runtime.kernel.routing import Plan
from aos_runtime.names import PrincipalName, parse_principal_name
from aos_runtime.policy.authority import Profile, denial
from aos_runtime.policy.rates import RequestRates
from aos_runtime.wire import requests as wire
from aos_runtime.wire.handshake import KeyEntry
from aos_runtime.wire.methods import (
    ADMIN_PREFIX,
    ADMIN_RESPONSE_PREFIX,
    EVENTS_PREFIX,
    HUMAN_METHODS,
    NIL_SOURCE,
    REQUEST_PREFIX,
    TOOLS_PREFIX,
    WORKING_PERIOD_S,
    reply_topic,
)

MAX_SLOW_REQUESTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks."""

    principal: PrincipalName
    request_owner: str | None
    device_key_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply that ends a request.  `after` runs once it was sent; `cause` is why it failed."""

    status: str
    data: object
    cause: AosError | None = None
    after: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """How one method is handled; a slow one may compile, hash or wait."""

    run: Callable[[Caller, Mapping[str, object]], Answer]
    is_slow: bool = False


class Profiles(Protocol):
    """Where rights are read, anew for every request."""

    def profile(self, principal: PrincipalName) -> Profile | None: ...

    def device(self, principal: PrincipalName, key_id: str) -> KeyEntry | None: ...

    def groups(self) -> Mapping[str, Sequence[str]]: ...


class Account(Protocol):
    """Where requests are put on record."""

    def admit(
        self, principal: str, method: str, params: Mapping[str, object], capabilities: tuple[str, ...]
    ) -> None:
        """Raises where the request must not be carried out."""
        ...

    def finish(
        self, principal: str, method: str, params: Mapping[str, object], error: str | None
    ) -> None: ...

    def deny(self, principal: str, method: str, params: Mapping[str, object], reason: str) -> None: ...


class Bus(Protocol):
    def publish(self, topic: str, body: bytes, kind: str | None, source_id: str, cause: Envelope) -> Plan: ...


class _Slow:
    """A slow request in progress: where its `Working` goes, and when the next is due."""

    __slots__ = ("cause", "due", "thread", "topic")

    def __init__(self, topic: str, cause: Envelope, due: float) -> None:
        self.topic = topic
        self.cause = cause
        self.due = due
        self.thread = threading.Thread()


def is_request(topic: str) -> bool:
    """Whether the kernel listens on `topic`; the doors have their own."""
    if topic.startswith((TOOLS_PREFIX, EVENTS_PREFIX)):
        return False
    return topic.startswith(REQUEST_PREFIX) or (
        topic.startswith(ADMIN_PREFIX) and not topic.startswith(ADMIN_RESPONSE_PREFIX)
    )


class RequestRouter:
    """Answers every request that reaches the kernel."""

    def __init__(
        self,
        *,
        bus: Bus,
        profiles: Profiles,
        handlers: Mapping[str, Handler],
        journal: Journal,
        ready: Callable[[Job], None],
        before_block: Callable[[], None],
        account: Account | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bus = bus
        self._profiles = profiles
        self._handlers = handlers
        self._journal = journal
        self._ready = ready
        self._before_block = before_block
        self._account = account
        self._clock = clock
        self._rates = RequestRates()
        self._in_flight = InFlight()
        self._lock = threading.Lock()
        self._slow: set[_Slow] = set()
        self._is_draining = False

    def receive(self, envelope: Envelope) -> None:
        """Take a message off the bus (a native subscriber); the work is done later, on a worker."""
        is_admin = envelope.topic.startswith(ADMIN_PREFIX)
        decode = wire.decode_admin_request if is_admin else wire.decode_request
        request = decode(envelope.body, envelope.kind)
        if request is None:
            return
        owner = envelope.request_owner or envelope.principal or ""
        job = self._in_flight.admit(owner, lambda: self._answer(envelope, request))
        if job is not None:
            self._ready(job)
        else:
            self._reply(envelope, request.request_id, Answer(status="Error", data=self._in_flight.refusal()))

    def drain(self, timeout_s: float) -> bool:
        """Start no more slow requests and wait for those that run; False where one does not end."""
        deadline = self._clock() + timeout_s
        with self._lock:
            self._is_draining = True
            threads = [one.thread for one in self._slow]
        for thread in threads:
            thread.join(max(0.0, deadline - self._clock()))
        return not any(thread.is_alive() for thread in threads)

    def sweep(self, now: float) -> None:
        """A chore: tell the callers of slow requests that work goes on."""
        with self._lock:
            due = [one for one in self._slow if now >= one.due]
            for one in due:
                one.due = now + WORKING_PERIOD_S
        for one in due:
            self._bus.publish(one.topic, wire.working(), None, NIL_SOURCE, one.cause)

    def _answer(self, envelope: Envelope, request: wire.Request | wire.BadRequest) -> None:
        self._before_block()  # rights are read from disk
        problem = self._refusal(envelope, request)
        if problem is not None or isinstance(request, wire.BadRequest):
            self._reply(envelope, request.request_id, Answer(status="Error", data=problem))
            return
        handler = self._handlers.get(request.method.name)
        if handler is None:
            text = f"{request.method.name} is not supported by this runtime"
            self._reply(envelope, request.request_id, Answer(status="Error", data=text))
        elif handler.is_slow:
            self._start(envelope, request, handler)
        else:
            self._finish(envelope, request, handler)

    def _refusal(self, envelope: Envelope, request: wire.Request | wire.BadRequest) -> str | None:
        """Why the request is not handled, in the order of the published runtime."""
        try:
            principal = parse_principal_name(envelope.principal or "")
        except AosError:
            return "management request denied: missing or invalid principal"
        if isinstance(request, wire.BadRequest):
            return request.text
        if request.method.name in HUMAN_METHODS and envelope.source_id != NIL_SOURCE:
            return f"{request.method.name} is taken from a client only, never from a capsule"
        for capability in wire.required_capabilities(request, principal):
            problem = self._denial(principal, envelope.device_key_id, capability)
            if problem is not None:
                if self._account is not None:
                    self._account.deny(principal, request.method.name, request.params, problem)
                    self._tell(envelope, request, capability, problem)
                return problem
        method = request.method
        with self._lock:
            return self._rates.charge(principal, method.name, method.rate_per_minute, self._clock())

    def denial(self, who: Envelope, capability: str) -> str | None:
        """Why whoever sent `who` may not do what needs `capability`; None where it may.  Reads the disk."""
        try:
            principal = parse_principal_name(who.principal or "")
        except AosError:
            return "management request denied: missing or invalid principal"
        return self._denial(principal, who.device_key_id, capability)

    def _denial(self, principal: PrincipalName, key_id: str | None, capability: str) -> str | None:
        try:
            profile = self._profiles.profile(principal)
            device = None if key_id is None else self._profiles.device(principal, key_id)
            groups = self._profiles.groups()
        except AosError as error:  # an unreadable profile may do nothing
            self._journal.daemon("error", f"profile of principal {principal}: {error.message}")
            return denial(principal, None, capability)
        if key_id is not None and device is None:
            return f"permission denied for principal {principal}: the authenticating key was removed"
        return denial(principal, profile, capability, groups=groups, device=device)

    def _start(self, envelope: Envelope, request: wire.Request, handler: Handler) -> None:
        """Run a slow handler on its own thread."""
        slow = _Slow(reply_topic(envelope.topic) or "", envelope, self._clock() + WORKING_PERIOD_S)
        slow.thread = threading.Thread(
            target=self._finish,
            args=(envelope, request, handler, slow),
            name=f"aos-{request.method.suffix}",
            daemon=True,
        )
        with self._lock:
            admitted = len(self._slow) < MAX_SLOW_REQUESTS and not self._is_draining
            if admitted:
                self._slow.add(slow)
        if admitted:
            slow.thread.start()
            return
        text = f"{MAX_SLOW_REQUESTS} changes are in progress; try again when one has ended"
        if self._is_draining:
            text = "the daemon is stopping"
        self._reply(envelope, request.request_id, Answer(status="Error", data=text))

    def _finish(
        self, envelope: Envelope, request: wire.Request, handler: Handler, slow: _Slow | None = None
    ) -> None:
        caller = Caller(
            principal=PrincipalName(envelope.principal or ""),
            request_owner=envelope.request_owner,
            device_key_id=envelope.device_key_id,
        )
        try:
            answer = self._carry_out(envelope, caller, request, handler)
        except AosError as error:
            self._journal.daemon("warn", f"{request.method.name} for {caller.principal}: {error.message}")
            answer = Answer(status="Error", data=error.message, cause=error)
        except Exception as error:  # noqa: BLE001 - the top of a request's thread: its caller must be told
            self._journal.daemon("error", f"{request.method.name} broke: {type(error).__name__}: {error}")
            answer = Answer(status="Error", data="internal fault; see the daemon log")
        if slow is not None:  # no `Working` after the answer
            with self._lock:
                self._slow.discard(slow)
        self._reply(envelope, request.request_id, answer)

    def _carry_out(
        self, envelope: Envelope, caller: Caller, request: wire.Request, handler: Handler
    ) -> Answer:
        """Run a handler between the two entries of its request in the audit trail."""
        account, method, params = self._account, request.method.name, request.params
        if account is None:
            return handler.run(caller, params)
        needed = wire.required_capabilities(request, caller.principal)
        account.admit(caller.principal, method, params, needed)
        ended: str | None = "internal-fault"
        try:
            answer = handler.run(caller, params)
            ended = "refused" if answer.status == "Error" else None
        except AosError as error:
            ended = error.code
            raise
        finally:
            account.finish(caller.principal, method, params, ended)
            if method not in READING:
                self._tell(envelope, request, needed[0] if needed else None, ended)
        return answer

    def _tell(
        self, envelope: Envelope, request: wire.Request, capability: str | None, error: str | None
    ) -> None:
        """Tell the capsules of whoever asked what is on record now."""
        body = audit_entry(
            at_s=time.time(),
            principal=envelope.principal or "",
            device_key_id=envelope.device_key_id,
            method=request.method.name,
            params=request.params,
            capability=capability,
            error=error,
        )
        self._bus.publish(AUDIT_TOPIC, body, None, NIL_SOURCE, envelope)

    def _reply(self, envelope: Envelope, request_id: str | None, answer: Answer) -> None:
        topic = reply_topic(envelope.topic)
        if topic is not None:
            body = wire.ok(answer.status, answer.data, request_id, answer.cause)
            self._bus.publish(topic, body, None, NIL_SOURCE, envelope)
        if answer.after is not None:
            answer.after()
