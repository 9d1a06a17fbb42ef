"""A kernel without threads, wasm or files: guests are functions, the scheduler is a loop in the test."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.manifest import EnvRow, parse_manifest
from aos_runtime.host import GuestContext, GuestTrap, HookResult, TrapReason
from aos_runtime.kernel.actor import Actor, Generation
from aos_runtime.kernel.guest import GuestPort, Hearing
from aos_runtime.kernel.kernel import Executions, Kernel, system_cause
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.loading import Loaded, Unready
from aos_runtime.kernel.probe import Tool
from aos_runtime.kernel.subscriptions import Owner, Subscription
from aos_runtime.names import CapsuleName, Digest, EnvKey, PrincipalName
from aos_runtime.policy.access import UNRESTRICTED, Standing
from aos_runtime.policy.denials import Denial
from aos_runtime.store.installed import Installed
from aos_runtime.store.metadata import Meta
from aos_runtime.store.receipts import ApprovalSource, Receipt
from tests.support.guests import FakeKv

ALICE = PrincipalName("alice")
CONTINUE = HookResult("continue", None)
Speak = Callable[[str, bytes], str | None]
Guest = Callable[["Call"], HookResult | None]


@dataclass(frozen=True, slots=True)
class Call:
    """One invocation of a fake guest.  `speak` is its publish port."""

    action: str
    payload: bytes
    envelope: Envelope
    speak: Speak
    listen: Callable[[str], Subscription | str]


class FakeInstance:
    """Runs a Python function as the guest."""

    def __init__(self, guest: Guest, context: GuestContext) -> None:
        self.guest = guest
        self.context = context
        self.dead = False
        self.closed = False
        self.wakes = 0
        self.fuel = 1000
        self.threads: set[int] = set()
        if context.is_cancelled:
            raise GuestTrap(TrapReason.CANCELLED, "its call was cancelled while it started")

    def hook(
        self, action: bytes, payload: bytes, *, timeout_s: float | None = None, fuel: int | None = None
    ) -> HookResult:
        assert not self.dead and not self.closed
        assert self.context.current is not None
        self.threads.add(threading.get_ident())
        try:
            context = self.context
            listen: Any = context.subscribe
            call = Call(action.decode(), payload, context.current, context.publish, listen)
            result = self.guest(call) or CONTINUE
            if context.cancelled is context.current:
                raise GuestTrap(TrapReason.CANCELLED, "its call was cancelled")
            return result
        except GuestTrap:
            self.dead = True
            raise

    def wake(self) -> None:
        self.wakes += 1

    def fuel_used(self) -> int:
        return self.fuel

    def memory_bytes(self) -> int:
        return 65536

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeJournal:
    """Keeps the lines."""

    lines: list[tuple[str, str, str]] = field(default_factory=list)

    def daemon(self, level: str, message: str) -> None:
        self.lines.append(("_daemon", level, message))

    def capsule(self, principal: PrincipalName, capsule: CapsuleName, level: str, message: str) -> None:
        self.lines.append((capsule, level, message))


def cause(principal: str | None = ALICE, owner: str | None = "owner-1") -> Envelope:
    """What a client's message inherits."""
    return msgspec.structs.replace(
        system_cause(principal, owner), origin="local_socket", device_key_id="key-1", workspace="/work"
    )


def env_row(key: str, *, type: str = "string", **facts: Any) -> EnvRow:  # noqa: A002 - the manifest's word
    """An `[env]` row with nothing but its type and what is named."""
    blank: dict[str, Any] = {"request": None, "description": None, "default": None, "enum_values": ()}
    blank |= {"placeholder": None, "options_from": None, **facts}
    return EnvRow(key=EnvKey(key), type=type, **blank)


def make_installed(
    name: str,
    *,
    subscribe: Mapping[str, object] | None = None,
    publish: Iterable[str] = (),
    version: str = "0.1.0",
    principal: PrincipalName = ALICE,
    bundled: bool = False,
    installed_at: str = "2026-01-01T00:00:00+00:00",
    extra: str = "",
) -> Installed:
    """An installed capsule that is on no disk.  `subscribe`: topic to handler, or to (handler, priority)."""
    rows = []
    for topic, row in (subscribe or {}).items():
        handler, priority = row if isinstance(row, tuple) else (row, 100)
        rows.append(f'"{topic}" = {{ wit = "opaque", handler = "{handler}", priority = {priority} }}')
    text = (
        f'[package]\nname = "{name}"\nversion = "{version}"\n'
        '[[component]]\nid = "main"\nfile = "main.wasm"\ntype = "executable"\n'
        "[subscribe]\n" + "\n".join(rows) + "\n[publish]\n"
        "" + "\n".join(f'"{topic}" = "opaque"' for topic in publish) + "\n" + extra
    )
    digest = Digest("ab" * 32)
    receipt = Receipt(
        principal=principal,
        capsule=CapsuleName(name),
        version=version,
        source=ApprovalSource.BUNDLED if bundled else ApprovalSource.LOCAL_BUILD,
        content_digest=digest,
        manifest_digest=digest,
        capabilities=Capabilities(),
        requests=(),
        wasm_digest=digest,
        signer=None,
        signature=None,
        entries=(),
    )
    meta = Meta(version=version, installed_at=installed_at, updated_at=installed_at, wasm_hash=digest)
    return Installed(
        name=CapsuleName(name),
        principal=principal,
        generation=Path("/nowhere"),
        manifest=parse_manifest(text.encode()),
        meta=meta,
        receipt=receipt,
        bundled=bundled,
    )


class Bench:
    """A kernel with fake capsules and a scheduler that the test turns by `run`."""

    def __init__(self, executions: Executions | None = None) -> None:
        self.now = 0.0
        self.journal = FakeJournal()
        self.ready: deque[Actor] = deque()
        self.blocks = 0
        self.standings: dict[PrincipalName, Standing] = {}
        self.kernel = Kernel(
            standing=lambda principal: self.standings.get(principal, UNRESTRICTED),
            ready=self.ready.append,
            before_block=self._block,
            journal=self.journal,
            executions=executions,
            clock=lambda: self.now,
        )
        self.heard: list[Envelope] = []
        self.kernel.on(lambda topic: True, self.heard.append)
        self.loads: dict[tuple[PrincipalName, CapsuleName], Loaded | Unready] = {}
        self.lifecycle = Lifecycle(self.kernel, self, self._names)
        self.instances: list[FakeInstance] = []
        self.denials: list[Denial] = []

    def load(self, principal: PrincipalName, name: CapsuleName) -> Loaded | Unready:
        """The fake loader."""
        return self.loads[principal, name]

    def capsule(
        self,
        name: str,
        guest: Guest = lambda call: None,
        *,
        tools: Iterable[str] | None = (),
        **manifest: object,
    ) -> Loaded:
        """Put a capsule where the next load finds it."""
        installed = make_installed(name, **manifest)  # type: ignore[arg-type]  # the test's own keywords
        principal = installed.principal
        source = f"source-of-{name}"
        hearing = Hearing(
            rows=installed.manifest.subscribe_patterns,
            subscriptions=self.kernel.subscriptions,
            owner=Owner(installed.name, principal),
        )
        port = GuestPort(
            self.kernel,
            installed.manifest.publish_patterns,
            source,
            system_cause(principal),
            hearing=hearing,
            denied=self.denials.append,
        )
        context = GuestContext(
            capsule=installed.name,
            principal=principal,
            source_id=source,
            capabilities=Capabilities(),
            kv=FakeKv(),
            publish=port.publish,
            subscribe=port.subscribe,
            config={}.get,
            log=lambda level, message: None,
        )
        port.bind(context)

        def open_instance() -> FakeInstance:
            self.instances.append(FakeInstance(guest, context))
            return self.instances[-1]

        loaded = Loaded(
            installed=installed,
            source_id=source,
            generation=Generation(context, open_instance),
            tools=None
            if tools is None
            else tuple(Tool(name=tool, description="", input_schema={}, mutable=False) for tool in tools),
            warnings=(),
        )
        self.loads[principal, installed.name] = loaded
        return loaded

    def publish(self, topic: str, body: bytes = b"{}", kind: str | None = None, **who: str | None) -> None:
        self.kernel.publish(topic, body, kind, "client", cause(**who))

    def run(self) -> None:
        """Run everything that is ready, as the leader would."""
        while self.ready:
            actor = self.ready.popleft()
            while actor.run_one():
                if self.ready:
                    self.ready.append(actor)
                    break

    def topics(self) -> list[str]:
        """What was published, in order."""
        return [envelope.topic for envelope in self.heard]

    def _names(self, principal: PrincipalName) -> tuple[CapsuleName, ...]:
        return tuple(name for owner, name in self.loads if owner == principal)

    def _block(self) -> None:
        self.blocks += 1


def fixed_now() -> datetime:
    return datetime(2026, 8, 1, tzinfo=UTC)
