"""What one instance may ask of the rest of the system: its identity and its ports.

The host knows nothing of buses, databases and files.  Whoever makes an instance hands it a `GuestContext`;
factors read it and call its ports, which are plain functions on plain values.  A context belongs to one
(capsule, principal) for life; only `current` changes, before every hook, `cancelled`, at any moment and from
any thread, and `waiting`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.host.codecs import Err
from aos_runtime.host.files import Files
from aos_runtime.host.people import Identities, Uplinks
from aos_runtime.host.resources import ResourceTable
from aos_runtime.host.waiting import WaitGate
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.network import NetworkDoor
from aos_runtime.programs import ProcessDoor
from aos_runtime.store.kv import KvSpace

__all__ = ["Binding", "ElicitQuestion", "GuestContext", "Inflow", "KvSpace"]

DENIED = "capability-denied"


class Inflow(Protocol):
    """One live subscription of a guest."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing will ever come any more: its capsule is being stopped."""
        ...

    @property
    def lost(self) -> int:
        """Messages that were evicted or rejected, since it was made."""
        ...

    @property
    def has_message(self) -> bool:
        """Whether a message waits."""
        ...

    def poll(self) -> Envelope | None:
        """The next message that waits, without waiting."""
        ...

    def wait(self, timeout_s: float) -> Envelope | None:
        """The next message; None when there was none in that time, or the wait was cut short."""
        ...

    def wake(self) -> None:
        """Cut a wait short; safe from any thread."""
        ...

    def close(self) -> None:
        """Receive no more and let go of what waits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A handler row of the manifest, as the guest may ask for it."""

    action: str
    topic: str


class ElicitQuestion(NamedTuple):
    """What a lifecycle hook asks.  `kind` is text, secret, select or array; every text is the guest's."""

    kind: str
    key: str
    description: str
    options: tuple[str, ...]
    default: str | None


def _do_nothing() -> None:
    return None


def _refuse_subscription(_pattern: str) -> str:
    return DENIED


def _refuse_publish_as(_topic: str, _payload: bytes, _principal: str) -> str:
    return DENIED


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True, kw_only=True)
class GuestContext:
    """Identity and ports of one instance."""

    capsule: CapsuleName
    principal: PrincipalName
    source_id: str
    """The capsule's source uuid (`capsule.identity.source_id`)."""
    capabilities: Capabilities
    """What the manifest asked for and the operator approved."""
    kv: KvSpace
    """The capsule's own keys for this principal."""
    publish: Callable[[str, bytes], str | None]
    """`(topic, payload)`: None is ok, else the case of ipc's `error-code`, or `unknown:TEXT`."""
    config: Callable[[str], str | None]
    """The value of one `[env]` key, secrets included."""
    log: Callable[[str, str], None]
    """`(level, message)`, level one of trace, debug, info, warn, error; escapes what it is given."""
    files: Files | None = None
    """The files that it may use; None: none."""
    subscribe: Callable[[str], Inflow | str] = _refuse_subscription
    """`(pattern)`: the subscription, or the case of ipc's `error-code`."""
    publish_as: Callable[[str, bytes, str], str | None] = _refuse_publish_as
    """`(topic, payload, principal that the guest claims)`; answers as `publish` does."""
    bindings: tuple[Binding, ...] = ()
    """The handler rows of the manifest."""
    now_ms: Callable[[], int] = _wall_clock_ms
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    before_block: Callable[[], None] = _do_nothing
    """First line of every factor that may wait: the leader gives its socket and pending work away."""
    sleep: Callable[[float], bool] | None = None
    """Wait that many seconds; False when cut short.  None: the instance's, which every interrupt cuts."""
    is_over: Callable[[], bool] = lambda: False
    """Whether the running call must come back now: asked by every wait inside it.  The instance sets it."""
    gate: WaitGate | None = None
    """Passed by every wait inside a call but `sleep`, which passes it itself.  None: the engine's."""
    signal_ready: Callable[[], None] = _do_nothing
    has_capability: Callable[[str, str], bool] | None = None
    """`(source uuid, capability name)` among the capsules that this principal can see; None: no registry."""
    observe: Callable[[str, int, str | None], None] | None = None
    """`(function, perf_counter_ns at its start, error case)` after each host call but `publish`."""
    request_approval: Callable[[Envelope | None, str, str], str | Err] | None = None
    """`(invocation, action, resource)`: a case of `approval-decision`; None: nobody can be asked, denied."""
    elicit: Callable[[ElicitQuestion], str | tuple[str, ...] | Err] | None = None
    """The answer of whoever installs (a tuple for an array); None outside of a lifecycle hook."""
    has_secret: Callable[[str], bool] | None = None
    """Whether a secret is kept under a key; None: none is."""
    network: NetworkDoor | None = None
    """What it reaches outside; None: nothing, whatever its manifest lists."""
    identities: Identities | None = None
    """The people that it may ask about; None: none, whatever its manifest lists."""
    uplinks: Uplinks | None = None
    """Where it may bring in what others say; None: nowhere."""
    processes: ProcessDoor | None = None
    """What it starts on this machine; None: nothing, whatever its manifest lists."""
    speaks_for: str | None = None
    """Who proved to have sent the frame that was read last: whom an uplink publishes for."""
    current: Envelope | None = None
    """The invocation being served, or the message that a run loop received last; None outside of both."""
    is_loop: bool = False
    """Whether this is the context of a run loop: what it receives becomes `current`."""
    keeps_resources: bool = False
    """Whether handles outlive the hook that made them (run loops, capsules with host_process)."""
    resources: ResourceTable = field(default_factory=ResourceTable)
    """What the instance holds handles of."""
    yielded: Callable[[], None] = _do_nothing
    """Called after every wait of a guest; an instance that runs a loop renews its deadline there."""
    cancelled: Envelope | None = None
    """The invocation that nobody waits for any more: the guest is stopped while `current` is this very one.

    A mark that comes late is the mark of an invocation that is over, and stops nothing.
    """
    waiting: Inflow | None = None
    """What the guest waits for now, to be woken."""

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits any more for the invocation that is being served."""
        return self.cancelled is not None and self.cancelled is self.current
