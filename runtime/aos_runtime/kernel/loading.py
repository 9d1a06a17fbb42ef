"""One installed capsule made ready to serve, or the reason why it cannot.

Order: read and compare with what was approved (`store`), host version, manifest hash, code, env, instance,
describe probe; a run loop is made here and started by `lifecycle`.  Nothing here is published to the bus and
nothing else is touched, so a failed load leaves the generation that serves as it is (DMN-19: one broken
capsule never stops the others).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn, Protocol

from blake3 import blake3

from aos_runtime import HOST_VERSION
from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.identity import source_id
from aos_runtime.capsule.manifest import EnvRow, Manifest, check_host_version
from aos_runtime.errors import AosError, Corrupt, Unavailable
from aos_runtime.home import Home
from aos_runtime.host import Code, Err, GuestContext, GuestTrap, Instance
from aos_runtime.host.context import Binding, KvSpace
from aos_runtime.kernel.actor import Generation
from aos_runtime.kernel.audit import HostCall
from aos_runtime.kernel.audited import AuditedSpace, Trail, note_calls
from aos_runtime.kernel.budget import Budget, unbounded
from aos_runtime.kernel.denials import DenialLog
from aos_runtime.kernel.failures import failure_sentence
from aos_runtime.kernel.files import make_files
from aos_runtime.kernel.guest import Bus, GuestPort, Hearing
from aos_runtime.kernel.guest_env import GuestEnv
from aos_runtime.kernel.identities import GuestIdentities
from aos_runtime.kernel.kernel import Journal, system_cause
from aos_runtime.kernel.mcp_guest import McpGuest, Programs, Starts, open_mcp, with_rows
from aos_runtime.kernel.outside import Outside
from aos_runtime.kernel.ports import State
from aos_runtime.kernel.probe import Described, Tool, describe, unrouted
from aos_runtime.kernel.processes import Processes
from aos_runtime.kernel.runloop import EXEMPT_WINDOW_S, WINDOW_S, Attempt, RunLoop
from aos_runtime.kernel.subscriptions import Owner, Subscriptions
from aos_runtime.kernel.uplinks import GuestUplinks
from aos_runtime.names import CapsuleName, Digest, PrincipalName
from aos_runtime.policy.denials import Denial
from aos_runtime.store.file_tree import PRIVATE_UMASK, Grow, has_room
from aos_runtime.store.identity import IdentityStore
from aos_runtime.store.installed import Installed, load_installed

RequestApproval = Callable[[CapsuleName, PrincipalName, Envelope | None, str, str], str | Err]
"""`(capsule, principal, invocation, action, resource)`: `Approvals.request`."""


RoomOf = Callable[[PrincipalName], Grow]
"""For a principal: asks for room for files (`Storage.grow`)."""
Holds = Callable[[PrincipalName, str, str], bool]
"""`(principal, source uuid, capability)`: `views.holds_capability` of what that principal has."""


def _nobody_holds(_principal: PrincipalName, _source: str, _capability: str) -> bool:
    return False


class GuestBus(Bus, Protocol):
    """The bus, with the subscriptions of its guests."""

    @property
    def subscriptions(self) -> Subscriptions: ...


class CodeSource(Protocol):
    """The part of `host.CodeCache` that loading needs."""

    def load(self, digest: Digest, wasm: Callable[[], bytes]) -> Code: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A capsule that can serve.

    `tools` is None where it could not be asked.  `loops` are its run loop, not started yet, once for each of
    its workers; such a capsule has no handlers that are called: it hears what its loops subscribe to.
    """

    installed: Installed
    source_id: str
    generation: Generation
    tools: tuple[Tool, ...] | None
    warnings: tuple[str, ...]
    loops: tuple[RunLoop, ...] = ()
    relist: Callable[[], Loaded] | None = None
    """The same generation with the tools that it has now; None where they stay what they are."""

    @property
    def manifest(self) -> Manifest:
        return self.installed.manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Unready:
    """A capsule that is installed and does not serve.  `state` is `failed` or `needs-config`."""

    name: str
    version: str | None
    state: str
    reason: str
    missing: tuple[EnvRow, ...] = field(default=())
    """Those that have no value."""


class Loader:
    """Makes generations; one per daemon.  `budget_of` gives what a principal may use, `umask` is that of the
    person whose workspaces are served.
    """

    def __init__(
        self,
        *,
        home: Home,
        codes: CodeSource,
        state: State,
        bus: GuestBus,
        journal: Journal,
        before_block: Callable[[], None],
        budget_of: Callable[[PrincipalName], Budget] = unbounded,
        trail: Trail | None = None,
        request_approval: RequestApproval | None = None,
        holds: Holds = _nobody_holds,
        outside: Outside | None = None,
        programs: Programs | None = None,
        processes: Processes | None = None,
        umask: int = PRIVATE_UMASK,
        room_of: RoomOf = lambda _principal: has_room,
    ) -> None:
        self._room_of = room_of
        self._people = IdentityStore(home)
        self._outside = outside
        self._programs = programs
        self._processes = processes
        self._umask = umask
        self._holds = holds
        self._budget_of = budget_of
        self._home = home
        self._codes = codes
        self._state = state
        self._bus = bus
        self._journal = journal
        self._before_block = before_block
        self._trail = trail
        self._request_approval = request_approval

    def load(self, principal: PrincipalName, name: CapsuleName) -> Loaded | Unready:
        """Load one capsule.  NotFound where it is not installed; every other failure is an `Unready`."""
        installed = None
        try:
            installed, wasm = load_installed(self._home, principal, name)
            return self._prepare(installed, wasm)
        except AosError as error:
            if error.code == "capsule-not-installed":
                raise
            version = installed.version if installed is not None else None
            return Unready(name=name, version=version, state="failed", reason=error.message)
        except GuestTrap as trap:
            return Unready(name=name, version=None, state="failed", reason=failure_sentence(trap))

    def _prepare(self, installed: Installed, wasm: bytes | None) -> Loaded | Unready:
        manifest = installed.manifest
        check_host_version(manifest, HOST_VERSION)
        digest = installed.receipt.wasm_digest
        env = GuestEnv(self._home, installed.principal, installed.name, manifest, self._before_block)
        if wasm is None or digest is None:
            if not manifest.mcp_servers:
                return self._open_nothing(installed, env)
            return _needs_config(installed, env) if env.missing else self._open_servers(installed, env)
        check_component_hash(manifest, wasm)
        code = self._codes.load(digest, lambda: wasm)
        return _needs_config(installed, env) if env.missing else self._open(installed, code, digest, env)

    def _open_nothing(self, installed: Installed, env: GuestEnv) -> Loaded:
        """A capsule that only brings files: nothing of it runs, so its rows bind nothing."""
        silent = replace(installed, manifest=replace(installed.manifest, subscribe=()))
        source = source_id(installed.name, installed.receipt.content_digest)
        context, _ = self._ports(silent, source, env, None)
        generation = Generation(context, _never)
        return Loaded(installed=silent, source_id=source, generation=generation, tools=(), warnings=())

    def _open_servers(self, installed: Installed, env: GuestEnv) -> Loaded:
        """A capsule that is nothing but MCP servers."""
        if self._programs is None:
            raise Unavailable(
                "mcp-servers-off", "its MCP servers run in a daemon only", hint="run `aos start`"
            )
        source = source_id(installed.name, installed.receipt.content_digest)
        listening = replace(installed, manifest=with_rows(installed.manifest, ()))
        context, port = self._ports(listening, source, env, None)
        programs, starts = self._programs, Starts()
        opened: list[McpGuest] = []

        def open_guest() -> McpGuest:
            starts.check()
            guest = open_mcp(installed, programs, context, env.values())
            if opened and opened[0].tools != guest.tools:
                programs.tell_tools(installed)
            opened[:] = [guest]
            return guest

        generation = Generation(context, open_guest)

        def serving(described: Described) -> Loaded:
            tools = described.tools or ()
            return Loaded(
                installed=replace(installed, manifest=with_rows(installed.manifest, tools)),
                source_id=source,
                generation=generation,
                tools=tools,
                warnings=(*opened[0].warnings, *described.warnings),
                relist=lambda: serving(opened[0].describe()),
            )

        return serving(describe(generation, port))

    def _open(self, installed: Installed, code: Code, digest: Digest, env: GuestEnv) -> Loaded:
        source = source_id(installed.name, digest)
        context, port = self._ports(installed, source, env, None)
        budget = self._budget_of(installed.principal)
        generation = Generation(
            context, lambda: Instance(code, context, memory_bytes=budget.quotas.max_memory_bytes)
        )
        described = describe(generation, port)
        loops: tuple[RunLoop, ...] = ()
        if "run" in code.implemented:
            generation.close()  # it was made to be asked; a loop has an instance of its own
            workers = range(installed.receipt.capabilities.accept_workers)
            loops = tuple(self._run_loop(installed, code, source, env) for _ in workers)
        handled = (row.topic for row in installed.manifest.handlers)
        return Loaded(
            installed=installed,
            source_id=source,
            generation=generation,
            tools=described.tools,
            warnings=(*described.warnings, *unrouted(described.tools or (), handled)),
            loops=loops,
        )

    def _run_loop(self, installed: Installed, code: Code, source: str, env: GuestEnv) -> RunLoop:
        """The loop of a capsule: every start has an instance with ports of its own."""

        def open_instance(attempt: Attempt) -> Instance:
            context, _ = self._ports(installed, source, env, attempt)
            limit_bytes = self._budget_of(installed.principal).quotas.max_memory_bytes
            return Instance(code, context, memory_bytes=limit_bytes)

        held = installed.receipt.capabilities
        is_exempt = held.uplink or bool(held.net_bind)
        return RunLoop(
            name=installed.name,
            version=installed.version,
            principal=installed.principal,
            open_instance=open_instance,
            subscriptions=self._bus.subscriptions,
            window_s=EXEMPT_WINDOW_S if is_exempt else WINDOW_S,
        )

    def _ports(
        self, installed: Installed, source: str, env: GuestEnv, attempt: Attempt | None
    ) -> tuple[GuestContext, GuestPort]:
        """The context of one instance; of a run loop where there is an attempt of it."""
        manifest, principal, name = installed.manifest, installed.principal, installed.name
        budget = self._budget_of(principal)
        denials = DenialLog(lambda line: self._journal.capsule(principal, name, "warn", line))
        hearing = Hearing(
            rows=manifest.subscribe_patterns,
            subscriptions=self._bus.subscriptions,
            owner=Owner(name, principal) if attempt is None else attempt.owner,
        )
        port = GuestPort(
            self._bus,
            manifest.publish_patterns,
            source,
            system_cause(principal),
            hearing=hearing,
            is_uplink=installed.receipt.capabilities.uplink,
            denied=lambda denial: self._note_denial(principal, name, denials, denial),
            budget=budget,
        )
        context = GuestContext(
            capsule=name,
            principal=principal,
            source_id=source,
            capabilities=installed.receipt.capabilities,
            kv=self._space(principal, name),
            publish=port.publish,
            publish_as=port.publish_as,
            subscribe=port.subscribe,
            bindings=tuple(
                Binding(action=row.handler, topic=row.topic)
                for row in manifest.handlers
                if row.handler is not None
            ),
            keeps_resources=bool(installed.receipt.capabilities.host_process),
            config=env.get,
            log=lambda level, message: self._journal.capsule(principal, name, level, message),
            before_block=self._before_block,
            request_approval=self._approval_port(principal, name),
            has_secret=env.has_secret,
            has_capability=lambda holder, capability: self._holds(principal, holder, capability),
        )
        note = note_calls(self._trail, principal, name)
        held, grow, report = (
            context.capabilities,
            self._room_of(principal),
            partial(self._journal.daemon, "error"),
        )
        context.identities = GuestIdentities(
            self._people, principal, held.identity, grow, note, denials.note, report
        )
        context.uplinks = GuestUplinks(
            manifest.uplinks, port.hand_in, note, denials.note, is_uplink=held.uplink
        )
        context.files = make_files(self._home, installed, context, note, denials.note, self._umask, grow)
        if self._outside is not None:
            context.network = self._outside.door(installed, env, note, denials.note)
        if self._processes is not None:
            context.processes = self._processes.door(installed, context, budget, note, denials.note)
        if attempt is not None:
            _give_to_loop(context, attempt)
        port.bind(context)
        return context, port

    def _note_denial(
        self, principal: PrincipalName, name: CapsuleName, log: DenialLog, denial: Denial
    ) -> None:
        log.note(denial)
        if self._trail is not None:
            call = f"ipc.{denial.operation}"
            self._trail.host_call(HostCall(principal, name, call, denial.topic, denial.case.value))

    def _space(self, principal: PrincipalName, name: CapsuleName) -> KvSpace:
        space = self._state.space(principal, name)
        return space if self._trail is None else AuditedSpace(space, self._trail, principal, name)

    def _approval_port(
        self, principal: PrincipalName, name: CapsuleName
    ) -> Callable[[Envelope | None, str, str], str | Err] | None:
        """What one capsule asks people through; None where this process asks nobody."""
        ask = self._request_approval
        if ask is None:
            return None
        return lambda cause, action, resource: ask(name, principal, cause, action, resource)


def _give_to_loop(context: GuestContext, attempt: Attempt) -> None:
    """Make a context that of a run loop: it never leads, so it has nothing to give away before it waits."""
    write = context.log

    def log(level: str, message: str) -> None:
        attempt.note(level, message)
        write(level, message)

    context.is_loop = context.keeps_resources = True
    context.signal_ready = attempt.signal_ready
    attempt.context = context
    context.sleep = attempt.sleep
    context.log = log


def check_component_hash(manifest: Manifest, wasm: bytes) -> None:
    """Compare the `hash` of the manifest's component, where it has one, with the binary.

    Corrupt otherwise.
    """
    component = manifest.component
    if component is None or component.hash is None:
        return
    algorithm, _, expected = component.hash.partition(":")
    actual = (hashlib.sha256(wasm) if algorithm == "sha256" else blake3(wasm)).hexdigest()
    if actual != expected.lower():
        raise Corrupt(
            "component-hash",
            f"its manifest promises {algorithm} {expected[:16]}… for the component, which has {actual[:16]}…",
            hint="build the capsule again with `aos capsule build`, which corrects the hash",
        )


def _never() -> NoReturn:
    raise RuntimeError("a capsule of which nothing runs was called")


def _needs_config(installed: Installed, env: GuestEnv) -> Unready:
    keys = ", ".join(row.key for row in env.missing)
    return Unready(
        name=installed.name,
        version=installed.version,
        state="needs-config",
        reason=f"capsule '{installed.name}' is not configured ({keys})",
        missing=env.missing,
    )
