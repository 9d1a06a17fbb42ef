"""The programs that the capsules of this daemon start: one thread for all, a door for each instance.

Who a child belongs to, and to which tool call, comes from the invocation that is served; what its principal
may have at once, from its quotas.  A cancel request interrupts the children of exactly the calls that it
names; this must hear of it before `cancellation`, which stops the guests that wait for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from aos_runtime.bus.envelope import Envelope
from aos_runtime.host import GuestContext
from aos_runtime.kernel.audited import ADMITTED, Trail
from aos_runtime.kernel.budget import Budget
from aos_runtime.kernel.cancellation import CANCEL_TOPIC, MAX_CALLS
from aos_runtime.kernel.failures import call_of
from aos_runtime.names import PrincipalName
from aos_runtime.policy.bounds import Bounds, unbound
from aos_runtime.policy.process_rules import ProcessDenial
from aos_runtime.programs import Children, Owner, ProcessDoor, Registry
from aos_runtime.programs.sandbox import Sandbox
from aos_runtime.store.children import ChildRecords
from aos_runtime.store.installed import Installed
from aos_runtime.wire.payloads import decode_tool_cancel

Note = Callable[[str, str, str | None], None]
"""`(function, command, error case)`: one effect, done or refused."""


class Processes:
    """One per daemon.  `open_walls` looks what this machine can confine a program with; `publish(principal,
    topic, body)` tells the bus of a child that somebody watches; `bounds_of` gives the most that a principal
    may start.
    """

    def __init__(
        self,
        records: ChildRecords,
        open_walls: Callable[[], Sandbox],
        publish: Callable[[str, str, bytes], None],
        *,
        trail: Trail | None = None,
        on_fault: Callable[[Exception], None] = lambda error: None,
        bounds_of: Callable[[PrincipalName], Bounds] = unbound,
    ) -> None:
        self._bounds_of = bounds_of
        self.records = records
        self.children = Children(records)
        self.children.on_fault = on_fault
        self._registry = Registry(
            self.children,
            lambda principal, topic, payload: publish(principal, topic, msgspec.json.encode(payload)),
        )
        self._open_walls = open_walls
        self._trail = trail
        self._sandbox: Sandbox | None = None
        self._lock = threading.Lock()

    def open_sandbox(self) -> Sandbox:
        """The walls, looked at when the first program is started: that runs a program itself.

        Unavailable `process-sandbox-missing`, until there are some.
        """
        with self._lock:
            if self._sandbox is None or self._sandbox.wall is None:
                self._sandbox = self._open_walls()
            return self._sandbox

    def door(
        self,
        installed: Installed,
        context: GuestContext,
        budget: Budget,
        note: Note,
        denied: Callable[[ProcessDenial], None],
    ) -> ProcessDoor:
        """What one instance of an installed capsule starts programs through."""
        held, principal = installed.receipt.capabilities, installed.principal

        def workspace() -> Path | None:
            current = context.current
            if current is None or context.is_loop or current.workspace is None:
                return None
            return Path(current.workspace)

        return ProcessDoor(
            owner=Owner(principal, installed.name),
            entries=held.host_process,
            may_persist=held.allow_persistent,
            children=self.children,
            registry=self._registry,
            open_sandbox=self.open_sandbox,
            workspace=workspace,
            call_id=lambda: None if context.current is None else call_of(context.current),
            caller=lambda: None if context.current is None else context.current.principal,
            slots=lambda: budget.quotas.max_background_processes,
            allow_slots=f"aos quota set --agent {principal} --processes N",
            admit=lambda action: self._admit(principal, action),
            note=note,
            denied=denied,
            log=context.log,
            bounds=lambda: self._bounds_of(principal),
        )

    @staticmethod
    def wants(topic: str) -> bool:
        return topic == CANCEL_TOPIC

    def receive(self, envelope: Envelope) -> None:
        """Interrupt the children of the calls that the sender's principal cancels."""
        cancel = decode_tool_cancel(envelope.body)
        if cancel is not None and cancel.call_ids:
            self.children.cancel(envelope.principal, frozenset(cancel.call_ids[:MAX_CALLS]))

    def has_children(self, principal: str | None, call_id: str) -> bool:
        """Whether children of a tool call of this principal run."""
        return any(
            one.launch.owner.principal == principal and one.launch.call_id == call_id
            for one in self.children.live()
        )

    def retain(self, principal: str, capsules: Collection[str]) -> None:
        """A principal's capsules are now these: what others left running ends."""
        self._registry.retain(principal, capsules)

    def shut_down(self) -> None:
        """The daemon stops: start no more, and kill what runs."""
        self._registry.shut_down()

    def close(self) -> None:
        """End the thread, when nobody can ask it for anything any more."""
        self.children.stop()

    def _admit(self, principal: str, action: Mapping[str, object]) -> None:
        if self._trail is not None:
            self._trail.require(principal, action, ADMITTED)
