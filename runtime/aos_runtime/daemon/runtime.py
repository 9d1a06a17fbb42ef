"""One running daemon, put together: made by `Runtime.open`, served until `close`.

The order is that of daemon-kernel.md 1.3: lock, home, keys, engine, state, socket, pid, token, capsules,
ready file. Nothing here knows of signals or of how the process was started (`process`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime

from aos_runtime.config import load_settings
from aos_runtime.daemon.asking import make_asking
from aos_runtime.daemon.audit import open_trail, retention_of
from aos_runtime.daemon.gateway import Gateway
from aos_runtime.daemon.guests import limit_storage, make_loader, make_processes, open_engine
from aos_runtime.daemon.journal import LogJournal
from aos_runtime.daemon.options import Options, StuckThreads
from aos_runtime.daemon.profile_watch import ProfileWatch, make_principals
from aos_runtime.daemon.rights import Rights
from aos_runtime.daemon.seeing import make_events_door, process_facts, process_gauges
from aos_runtime.daemon.server import Server
from aos_runtime.daemon.tails import Tails
from aos_runtime.daemon.tools import ToolsDoor
from aos_runtime.daemon.workspace import workspace_refusal
from aos_runtime.home import Home
from aos_runtime.host import CodeCache
from aos_runtime.kernel.activation import Activator
from aos_runtime.kernel.audit_answers import AuditAnswers
from aos_runtime.kernel.audited import Requests
from aos_runtime.kernel.audited_calls import ToolCalls
from aos_runtime.kernel.audited_views import Capsules
from aos_runtime.kernel.boot import ensure_bundled, in_boot_order, index_tools, report_view
from aos_runtime.kernel.cancellation import Cancellations
from aos_runtime.kernel.changes import Changes
from aos_runtime.kernel.elicits import OwnerElicitor
from aos_runtime.kernel.events import KernelEvents
from aos_runtime.kernel.guest import GuestPort
from aos_runtime.kernel.handlers import Services, make_handlers
from aos_runtime.kernel.human import HumanRequests
from aos_runtime.kernel.idle import IdleSweep
from aos_runtime.kernel.kernel import Kernel, system_cause
from aos_runtime.kernel.leader import Leader
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.office import Office
from aos_runtime.kernel.ports import LocalOwnership
from aos_runtime.kernel.requests import RequestRouter, is_request
from aos_runtime.kernel.supervise import Supervisor
from aos_runtime.kernel.ticker import Ticker
from aos_runtime.kernel.views import View, visible_to
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store.approval_rules import read_rules
from aos_runtime.store.audit_entry import SUCCESS, SYSTEM
from aos_runtime.store.commit import sweep
from aos_runtime.store.keys import cache_key, load_runtime_seed, public_hex
from aos_runtime.store.kv import KvStore
from aos_runtime.store.logs import LogSink
from aos_runtime.store.principals import ensure_default
from aos_runtime.store.run import RunFiles
from aos_runtime.store.stage import Stage
from aos_runtime.wire.methods import NIL_SOURCE

EPHEMERAL_GRACE_S = 5.0
STOP_GENTLY_S = 1.0
STOP_INTERRUPTED_S = 3.0
STOP_CHANGES_S = 2.0
FLUSH_S = 1.0


class Runtime:
    """Everything that one daemon holds.  `request_stop(reason)` is called at most once, from any thread."""

    def __init__(self, home: Home, options: Options, request_stop: Callable[[str], None]) -> None:
        self._home = home
        self._options = options
        self._request_stop = request_stop
        self._asked_to_stop = threading.Event()
        self._started = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._grace_ends = float("inf")
        self._resources = ExitStack()

    def open(self) -> None:
        """Take the lock, put everything together, serve, load, and say that it is ready."""
        try:
            self._take_home()
            self._make_kernel()
            self._make_server()
            self._serve()
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop serving and free everything, in order.  Guests that do not return are stopped.

        StuckThreads where a thread would not end; then only the run files are gone and the process must go.
        """
        if hasattr(self, "server"):
            self.server.stop_accepting()
        if not self._stop_threads():
            self.run.clear()
            raise StuckThreads
        self._resources.close()

    # opening, step by step

    def _take_home(self) -> None:
        self.run = RunFiles(self._home)
        self.run.acquire()
        self._resources.callback(self.run.clear)
        settings = load_settings(self._home)
        sink = LogSink(self._home)
        self._resources.callback(sink.close)
        self.journal = LogJournal(sink, settings.log_level, echo=self._options.foreground)
        self.settings = settings
        self.journal.daemon("info", f"starting, process {os.getpid()}")
        read_rules(self._home)  # a rule that cannot be read is told now, not when it is needed
        ensure_default(self._home, now=self._started_at)
        seed = load_runtime_seed(self._home, create=True)
        sweep(self._home)
        self._retention = retention_of(settings)
        self._public_key = bytes.fromhex(public_hex(seed))
        self.trail = open_trail(self._home, seed, settings, self.journal.daemon)
        self._resources.callback(self.trail.close)
        self.trail.record(None, {"type": "server_started", "pid": os.getpid()}, SUCCESS, SYSTEM)
        self.engine = open_engine(settings)
        self._resources.callback(self.engine.close)
        self.codes = CodeCache(self.engine, self._home.code_cache, cache_key(seed))
        self.state = KvStore(self._home.state_db)
        self._resources.callback(self.state.close)

    def _make_kernel(self) -> None:
        self.tool_calls = ToolCalls(self.trail)
        self.rights = Rights(self._home)
        self.principals = make_principals(self.rights, self.settings, self.journal.daemon)
        self.storage = limit_storage(self._home, self.state, self.principals)
        self.kernel = Kernel(
            standing=self.principals.standing,
            ready=lambda actor: self.leader.ready(actor),
            before_block=lambda: self.leader.before_block(),
            journal=self.journal,
            executions=self.tool_calls,
        )
        asking = make_asking(
            home=self._home,
            kernel=self.kernel,
            principals=self.principals,
            journal=self.journal,
            trail=self.trail,
        )
        self.questions, self.approvals = asking.questions, asking.approvals
        self.processes = make_processes(
            home=self._home,
            settings=self.settings,
            journal=self.journal,
            trail=self.trail,
            kernel=self.kernel,
            principals=self.principals,
            resources=self._resources,
        )
        loader = make_loader(
            home=self._home,
            options=self._options,
            settings=self.settings,
            journal=self.journal,
            trail=self.trail,
            codes=self.codes,
            state=self.state,
            kernel=self.kernel,
            principals=self.principals,
            approvals=self.approvals,
            find_keys=self.rights.find_keys,
            storage=self.storage,
            processes=self.processes,
            view=lambda who: self.lifecycle.view(who),
            tools_changed=lambda who, name: self.lifecycle.refresh_tools(who, name),
            resources=self._resources,
        )
        self._capsules = Capsules(self.trail)
        supervisor = Supervisor(self.journal, self._announce)
        self.lifecycle = Lifecycle(
            self.kernel,
            loader,
            self._installed_names,
            self._on_view,
            supervisor.failed,
            self.principals.budget,
            self.principals.refresh,
        )
        self.events = KernelEvents(
            self._announce, lambda: self.lifecycle.views, self.kernel.subscriptions.lost_by_principal
        )
        self.idle = IdleSweep(self.kernel.order, lambda: self.lifecycle.views)
        self.activator = Activator(
            codes=self.codes,
            state=self.state,
            journal=self.journal,
            publish=self._publish_for_stage,
            trail=self.trail,
        )
        self.door = ToolsDoor(self.kernel, visible_to(self.lifecycle.view, self.principals.standing))
        self.door.has_children = self.processes.has_children
        self.cancellations = Cancellations(self.kernel, self.lifecycle.end_loops)

    def _make_server(self) -> None:
        self.gateway = Gateway(
            kernel=self.kernel,
            lifecycle=self.lifecycle,
            door=self.door,
            ownership=LocalOwnership(),
            workspace=self._options.workspace,
            check_workspace=lambda folder: workspace_refusal(folder, self._home, self._options.user_home),
            note=self.journal.daemon,
            clock=time.monotonic,
        )
        self.gateway.on_leave = self._check_ephemeral
        self.gateway.on_gone = self.questions.drop_owner
        self.questions.is_present = self.gateway.is_present
        path = self.run.claim_socket_path()
        self.server = Server(
            token=self.run.write_token(),
            find_keys=self.rights.find_keys,
            gateway=self.gateway,
            note=self.journal.daemon,
        )
        self._resources.callback(self.server.close)
        self.gateway.sessions = self.server.sessions
        self.leader = Leader(self.server, on_fault=self._on_fault)
        self.ticker = Ticker(self.leader, on_fault=self._on_fault)
        self._make_requests()
        # The gateway hears before the door: it asks which answers the door still expects.
        self.kernel.on(self.gateway.wants, self.gateway.hear)
        self.kernel.on(self.door.wants, self.door.hear)
        self.kernel.on(self.processes.wants, self.processes.receive)  # before who stops what waits for them
        self.kernel.on(self.cancellations.wants, self.cancellations.receive)
        self.kernel.on(self.questions.wants, self.questions.hear, answers=True)
        self.server.listen(path)
        self.run.write_pid()

    def _make_requests(self) -> None:
        office = Office(
            home=self._home,
            state=self.state,
            storage=self.storage,
            rights=self.rights,
            principals=self.principals,
            lifecycle=self.lifecycle,
            apply_standings=self.kernel.apply_standings,
            expel=self.server.expel,
            deleted=(self.approvals.forget, self.events.forget, self.storage.forget),
        )
        self.watch = ProfileWatch(self._home, self.principals.known, office.applied)
        changes = Changes(
            home=self._home,
            lifecycle=self.lifecycle,
            activator=self.activator,
            announce=self._announce,
            elicit_from=lambda caller: OwnerElicitor(
                self.questions, system_cause(caller.principal, caller.request_owner)
            ),
            may=self.rights.may,
        )
        services = Services(
            lifecycle=self.lifecycle,
            changes=changes,
            human=HumanRequests(home=self._home, questions=self.questions, approvals=self.approvals),
            process=process_facts(self._options, self._started, self.server.sessions, self._troubles),
            agents=self.rights.agents,
            may_list_agents=self.rights.may_list_agents,
            office=office,
            measure=self.kernel.measure,
            stop=self.ask_to_stop,
        )
        audit = AuditAnswers(self._home.audit_db, self.trail.health, self._public_key, self._retention)
        self.requests = RequestRouter(
            bus=self.kernel,
            profiles=self.rights,
            handlers=make_handlers(services) | audit.handlers(),
            journal=self.journal,
            ready=self.leader.ready,
            before_block=self.leader.before_block,
            account=Requests(self.trail),
        )
        self.kernel.on(is_request, self.requests.receive, answers=True)
        self._make_events()

    def _make_events(self) -> None:
        self.tails = Tails(self.kernel, on_fault=self._on_fault)
        self.gateway.events = make_events_door(
            home=self._home,
            kernel=self.kernel,
            lifecycle=self.lifecycle,
            requests=self.requests,
            leader=self.leader,
            account=Requests(self.trail),
            tails=self.tails,
            process=process_gauges(self._started, self.leader, self.door, self.server.sessions),
        )

    def _serve(self) -> None:
        for chore in (
            self.server.sweep,
            self.door.sweep,
            self.cancellations.sweep,
            self.questions.sweep,
            self.requests.sweep,
            self.lifecycle.sweep,
            self.tool_calls.sweep,
            self.events.sweep,
            self.idle.sweep,
            self.watch.sweep,
            lambda _now: self._check_ephemeral(),
        ):
            self.ticker.every(chore)
        self.leader.start()
        self.ticker.start()

    def _load(self) -> None:
        self.lifecycle.load_all(DEFAULT_PRINCIPAL)
        self.events.started(self.kernel.boot_id)
        self.run.write_ready(self._options.workspace or self._home.root)
        self._grace_ends = time.monotonic() + EPHEMERAL_GRACE_S
        took_ms = (time.monotonic() - self._started) * 1000
        self.journal.daemon("info", f"ready after {took_ms:.0f} ms")

    # while it runs

    def ask_to_stop(self, reason: str) -> None:
        """Begin the end of the process; only the first reason counts."""
        if not self._asked_to_stop.is_set():
            self._asked_to_stop.set()
            self._request_stop(reason)

    def _installed_names(self, principal: PrincipalName) -> tuple[CapsuleName, ...]:
        """What a principal has, with the bundled capsules in place: no tool is called without a router."""
        ensure_bundled(self._home, principal, self.activator, self.journal, datetime.now(UTC))
        return in_boot_order(self._home, principal, self.journal)

    def _on_view(self, view: View) -> None:
        report_view(view, self.journal)
        self._capsules.note(view)
        self.processes.retain(view.principal, view.residents)
        self.events.changed(view)
        index_tools(self._home, view, self.journal)

    def _on_fault(self, error: Exception) -> None:
        self.journal.daemon("error", f"internal fault: {type(error).__name__}: {error}")

    def _announce(self, principal: PrincipalName, topic: str, body: bytes) -> None:
        self.kernel.publish(topic, body, None, NIL_SOURCE, system_cause(principal))

    def _publish_for_stage(self, stage: Stage, source: str, topic: str, payload: bytes) -> str | None:
        patterns = stage.manifest.publish_patterns
        return GuestPort(self.kernel, patterns, source, system_cause(stage.principal)).publish(topic, payload)

    def _troubles(self) -> tuple[str | None, ...]:
        return self.trail.trouble, self.journal.trouble

    def _check_ephemeral(self) -> None:
        """An ephemeral daemon lives while a client holds it, and five seconds after it became ready."""
        is_over = self._options.ephemeral and time.monotonic() >= self._grace_ends
        if is_over and not self.server.sessions.everyone():
            self.ask_to_stop("the last client left")

    # closing

    def _stop_threads(self) -> bool:
        """End every thread that could use what is about to be freed; False where one would not end."""
        if hasattr(self, "leader"):
            self.questions.stop()
            self.ticker.stop()
            self.events.stopping()
            self.lifecycle.stop_loops()
            self.kernel.subscriptions.stop()
            self.processes.shut_down()
            if not self._stop_guests(STOP_GENTLY_S):
                self.engine.interrupt_all()
                if not self._stop_guests(STOP_INTERRUPTED_S):
                    return False
            if not self.requests.drain(STOP_CHANGES_S) or not self.tails.close(STOP_CHANGES_S):
                return False
            self.server.flush(time.monotonic() + FLUSH_S)
            self.trail.record(None, {"type": "server_stopped"}, SUCCESS, SYSTEM)
            self.journal.daemon("info", "stopped")
        return not hasattr(self, "lifecycle") or self.lifecycle.close(STOP_CHANGES_S)

    def _stop_guests(self, timeout_s: float) -> bool:
        """Whether every thread that runs guests has ended within that time."""
        deadline = time.monotonic() + timeout_s
        ended = self.leader.stop(timeout_s)
        return self.lifecycle.join_loops(max(0.0, deadline - time.monotonic())) and ended
