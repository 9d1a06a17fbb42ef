"""What the guests of one daemon are given: everything that it holds, handed to the loader of capsules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from aos_runtime.config import Settings
from aos_runtime.daemon.options import Options
from aos_runtime.home import Home
from aos_runtime.host import CodeCache, EngineSettings, HostEngine
from aos_runtime.kernel.approvals import Approvals
from aos_runtime.kernel.audited import Trail
from aos_runtime.kernel.kernel import Journal, Kernel, system_cause
from aos_runtime.kernel.loading import Loader
from aos_runtime.kernel.mcp_guest import Programs
from aos_runtime.kernel.outside import FindKeys, Outside
from aos_runtime.kernel.ports import State
from aos_runtime.kernel.principals import Principals
from aos_runtime.kernel.processes import Processes
from aos_runtime.kernel.views import View, holds_capability
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.programs.mcp_servers import McpServers
from aos_runtime.programs.sandbox import Sandbox, open_sandbox
from aos_runtime.store.children import ChildRecords
from aos_runtime.store.identity import IdentityStore
from aos_runtime.store.kv import KvStore
from aos_runtime.store.storage import Storage
from aos_runtime.wire.methods import NIL_SOURCE


def make_loader(
    *,
    home: Home,
    options: Options,
    settings: Settings,
    journal: Journal,
    trail: Trail,
    codes: CodeCache,
    state: State,
    kernel: Kernel,
    principals: Principals,
    approvals: Approvals,
    find_keys: FindKeys,
    storage: Storage,
    processes: Processes,
    view: Callable[[PrincipalName], View],
    tools_changed: Callable[[PrincipalName, CapsuleName], None],
    resources: ExitStack,
) -> Loader:
    """The one loader of a daemon.  `view` gives what a principal has loaded, at any time later; `resources`
    gets what must be closed.
    """
    servers = McpServers(settings.mcp_start_s, processes.records)
    resources.callback(servers.close)
    return Loader(
        home=home,
        codes=codes,
        state=state,
        bus=kernel,
        journal=journal,
        before_block=kernel.before_block,
        budget_of=principals.budget,
        trail=trail,
        request_approval=approvals.request,
        holds=lambda who, source, name: holds_capability(view(who), source, name),
        outside=Outside.of(settings, home, find_keys, journal.daemon, principals.bounds),
        programs=Programs(processes.open_sandbox, servers, tools_changed, principals.bounds, trail),
        processes=processes,
        umask=options.umask,
        room_of=lambda who: partial(storage.grow, who),
    )


def make_processes(
    *,
    home: Home,
    settings: Settings,
    journal: Journal,
    trail: Trail,
    kernel: Kernel,
    principals: Principals,
    resources: ExitStack,
) -> Processes:
    """What guests start programs with.  What a dead daemon left running is ended first, and what gets away
    from this one last.
    """
    records = ChildRecords(home)
    records.end_all(journal.daemon)
    resources.callback(records.end_all, journal.daemon)

    def open_walls() -> Sandbox:
        return open_sandbox(home.root, allow_unsandboxed=settings.allow_unsandboxed, mark=records.mark())

    def publish(principal: str, topic: str, body: bytes) -> None:
        kernel.publish(topic, body, None, NIL_SOURCE, system_cause(principal))

    def note_fault(error: Exception) -> None:
        journal.daemon("error", f"internal fault: {type(error).__name__}: {error}")

    processes = Processes(
        records, open_walls, publish, trail=trail, on_fault=note_fault, bounds_of=principals.bounds
    )
    resources.callback(processes.close)
    return processes


def open_engine(settings: Settings) -> HostEngine:
    """The engine with the operator's limits."""
    return HostEngine(
        EngineSettings(
            memory_bytes=settings.memory_bytes,
            fuel_per_call=settings.fuel_per_call,
            call_timeout_s=settings.call_timeout_s,
        )
    )


def limit_storage(home: Home, state: KvStore, principals: Principals) -> Storage:
    """Hold keys, people and files of every principal to one quota."""
    people = IdentityStore(home)
    storage = Storage(
        home,
        limit_of=principals.storage_limit,
        stored_bytes=lambda who: state.stored_bytes(who) + people.stored_bytes(who),
    )
    state.limit_of = storage.keys_limit
    return storage
