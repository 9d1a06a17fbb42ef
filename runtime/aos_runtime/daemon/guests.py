"""What the guests of one daemon are given: everything that it holds, handed to the loader of capsules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from aos_runtime.config import Settings
from aos_runtime.daemon.options import Options
from aos_runtime.home import Home
from aos_runtime.host import CodeCache
from aos_runtime.host.mcp_servers import McpServers
from aos_runtime.host.sandbox import Sandbox, open_sandbox
from aos_runtime.kernel.approvals import Approvals
from aos_runtime.kernel.audited import Trail
from aos_runtime.kernel.kernel import Journal, Kernel
from aos_runtime.kernel.loading import Loader
from aos_runtime.kernel.mcp_guest import Programs
from aos_runtime.kernel.outside import FindKeys, Outside
from aos_runtime.kernel.ports import State
from aos_runtime.kernel.principals import Principals
from aos_runtime.kernel.views import View, holds_capability
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.children import ChildRecords
from aos_runtime.store.identity import IdentityStore
from aos_runtime.store.kv import KvStore
from aos_runtime.store.storage import Storage


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
    view: Callable[[PrincipalName], View],
    tools_changed: Callable[[PrincipalName, CapsuleName], None],
    resources: ExitStack,
) -> Loader:
    """The one loader of a daemon.  `view` gives what a principal has loaded, at any time later; `resources`
    gets what must be closed.
    """
    children = ChildRecords(home)
    children.end_all(journal.daemon)
    resources.callback(children.end_all, journal.daemon)
    servers = McpServers(settings.mcp_start_s, children)
    resources.callback(servers.close)

    def open_walls() -> Sandbox:
        """Looked at when the first program is started: that runs a program itself."""
        return open_sandbox(home.root, allow_unsandboxed=settings.allow_unsandboxed, mark=children.mark())

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
        outside=Outside.of(settings, home, find_keys, journal.daemon),
        programs=Programs(open_walls, servers, tools_changed),
        umask=options.umask,
        room_of=lambda who: partial(storage.grow, who),
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
