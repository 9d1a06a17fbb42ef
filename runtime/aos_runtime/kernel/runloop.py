"""A capsule's run loop on a thread of its own, started again when it fails.

The thread never leads and serves nobody else.  Each start is an *attempt* with a new instance, a new context
and its own subscriptions, so nothing of a failed one is left.  A loop is stopped by asking: its subscriptions
close and its sleeps are cut short; one that goes on all the same is trapped half a second later.  Source:
host-abi.md 2.6, daemon-kernel.md 6.4, 6.5 and 6.8.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.topics import covers
from aos_runtime.errors import AosError
from aos_runtime.host import GuestContext, GuestTrap, TrapReason
from aos_runtime.host.traps import STOPPED_PREFIX
from aos_runtime.kernel.restarts import Restarts
from aos_runtime.kernel.subscriptions import Owner, Subscriptions
from aos_runtime.names import CapsuleName, PrincipalName

READY_S = 0.5
ACTIVATION_S = 30.0
WINDOW_S = 15.0
"""Three windows of 50 ticks: how long a loop may go without recv, accept or sleep."""
EXEMPT_WINDOW_S = 3600.0
"""For uplinks and capsules that listen on a socket, whose own waits are not all seen."""
MAX_REASON_CHARS = 500

NOT_READY = "did not signal ready within 500ms"
NOT_ACTIVE = "did not activate within 30000ms"
ENDED_EARLY = "exited before signaling ready"


class LoopState(StrEnum):
    """What a loop is doing."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    """It failed and waits for its next start."""
    DISABLED = "disabled"
    """It failed too often; a reload or a new version starts it again."""
    STOPPED = "stopped"


class LoopInstance(Protocol):
    """The part of `host.Instance` that is needed here."""

    def run_loop(self, *, window_s: float, is_stopping: Callable[[], bool]) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Attempt:
    """One start of a loop, as the ports of its instance see it."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.context: GuestContext | None = None
        """What its instance serves; None before there is one."""
        self.instance: LoopInstance | None = None
        self.is_ready = False
        self.ready_at = 0.0
        self.reason: str | None = None
        """Why it ended; None while it runs."""
        self.last_error: str | None = None
        self.opened = threading.Event()
        self.settled = threading.Event()
        """Ready or ended."""
        self._stop = threading.Event()

    def signal_ready(self) -> None:
        """A port: the guest says that it listens."""
        if not self.is_ready:
            self.ready_at = time.monotonic()
            self.is_ready = True
            self.settled.set()

    def sleep(self, duration_s: float) -> bool:
        """A port: False when the loop is being stopped."""
        return not self._stop.wait(duration_s)

    def note(self, level: str, message: str) -> None:
        """What is logged: the guest's last error is the best reason for its end, the host's word for that
        end is not.
        """
        if level == "error" and not message.startswith(STOPPED_PREFIX):
            self.last_error = message.partition("\n")[0][:MAX_REASON_CHARS]

    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()

    def interrupt(self, is_meant: Callable[[Envelope], bool]) -> None:
        """Stop the guest where it computes for what is meant; one that waits for a message does not."""
        context, instance = self.context, self.instance
        serving = None if context is None or context.waiting is not None else context.current
        if context is not None and instance is not None and serving is not None and is_meant(serving):
            context.cancelled = serving
            instance.wake()

    def end(self, reason: str) -> None:
        self.reason = reason
        self.opened.set()
        self.settled.set()


class RunLoop:
    """See the module's text.

    `open_instance(attempt)` makes an instance whose ports are the attempt's.  `on_failed(loop, reason,
    delay_s)` hears of each failure of a loop that was in service, delay None when it is disabled.
    """

    def __init__(
        self,
        *,
        name: CapsuleName,
        version: str,
        principal: PrincipalName,
        open_instance: Callable[[Attempt], LoopInstance],
        subscriptions: Subscriptions,
        window_s: float = WINDOW_S,
        pause: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self.name = name
        self.version = version
        self.principal = principal
        self.reason: str | None = None
        """Why it failed last."""
        self.restarts = Restarts()
        self.on_failed: Callable[[RunLoop, str, float | None], None] = lambda loop, reason, delay_s: None
        self._open_instance = open_instance
        self._subscriptions = subscriptions
        self._window_s = window_s
        self._pause = pause
        self._stop = threading.Event()
        self._decided = threading.Event()
        """Whether the first attempt is good was decided: the loop is in service, or it is closed."""
        self.attempt = Attempt(Owner(name, principal))
        self._is_disabled = False
        self._started_at = 0.0
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> LoopState:
        attempt = self.attempt
        if self._is_disabled:
            return LoopState.DISABLED
        if self._stop.is_set():
            return LoopState.STOPPED
        if attempt.is_ready and attempt.reason is None:
            return LoopState.READY
        return LoopState.RESTARTING if self.restarts.count else LoopState.STARTING

    def start(self, *, is_staged: bool) -> str | None:
        """Start it and wait until it is ready; else why it is not, and then it is being stopped.

        While `is_staged` its subscriptions receive nothing: another version serves until `promote`.
        """
        attempt = self.attempt
        attempt.owner.is_staged = is_staged
        self._thread = threading.Thread(target=self._work, name=f"aos-loop-{self.name}", daemon=True)
        self._thread.start()
        reason = _wait_ready(attempt)
        if reason is not None:
            self.reason = reason
            self.close()
            return reason
        self._decided.set()
        return None

    def close(self) -> None:
        """Ask it to stop, now and for good; returns at once."""
        self._stop.set()
        self._stop_attempt(self.attempt)
        self._decided.set()

    def join(self, timeout_s: float) -> bool:
        """Whether its thread has ended within that time."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(max(0.0, timeout_s))
        return not thread.is_alive()

    def sweep(self, now: float) -> None:
        """A chore: a restarted loop that does not become ready in time has failed."""
        attempt = self.attempt
        if not self._decided.is_set() or not attempt.opened.is_set() or attempt.settled.is_set():
            return
        if now - self._started_at > READY_S:
            attempt.last_error = NOT_READY
            self._stop_attempt(attempt)

    def receives(self, topic: str) -> bool:
        """Whether one of its subscriptions covers `topic`."""
        return any(covers(one.pattern, topic) for one in tuple(self.attempt.owner.held))

    def _work(self) -> None:
        self._run(self.attempt)
        self._decided.wait()
        while not self._stop.is_set():
            attempt = self.attempt
            up_s = time.monotonic() - attempt.ready_at if attempt.is_ready else 0.0
            self.reason = attempt.reason or ""
            delay_s = self.restarts.failed(up_s)
            self._is_disabled = delay_s is None
            self.on_failed(self, self.reason, delay_s)
            if delay_s is None or self._pause(self._stop, delay_s):
                break
            self.attempt = attempt = Attempt(Owner(self.name, self.principal))
            self._run(attempt)

    def _run(self, attempt: Attempt) -> None:
        """One attempt, from its instance to its end."""
        reason = "it ended"
        try:
            instance = self._open_instance(attempt)
            try:
                self._started_at = time.monotonic()
                attempt.instance = instance
                attempt.opened.set()
                if self._stop.is_set():
                    attempt.stop()
                else:
                    instance.run_loop(window_s=self._window_s, is_stopping=attempt.is_stopping)
            finally:
                attempt.instance = None
                instance.close()
        except GuestTrap as trap:
            reason = "it ran too long without a wait" if trap.reason is TrapReason.DEADLINE else trap.message
        except AosError as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001 - the top of an instance thread: a bug must end this loop only
            reason = f"internal fault: {type(error).__name__}: {error}"
        finally:
            self._stop_attempt(attempt)
        attempt.end(f"{reason}: {attempt.last_error}" if attempt.last_error else reason)

    def _stop_attempt(self, attempt: Attempt) -> None:
        attempt.stop()
        with self._subscriptions.order:
            self._subscriptions.retire(attempt.owner)


def _wait_ready(attempt: Attempt) -> str | None:
    """Why the attempt is not ready; None where it is."""
    if not attempt.opened.wait(ACTIVATION_S):
        return NOT_ACTIVE
    attempt.settled.wait(READY_S)
    if attempt.is_ready:
        return None
    return NOT_READY if attempt.reason is None else f"{ENDED_EARLY}: {attempt.reason}"
