"""What one principal may use, held to: fuel, bytes on the bus, time, memory; and what it has used.

`policy.quotas`, `policy.fuel` and `policy.rates` decide; here are the lock, the clock and the waiting.  One
budget serves all capsules of a principal for the life of the daemon; its limits may change under it.  A
principal that is exempt is measured and never held up: two plain attribute reads on the hot path.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from aos_runtime.errors import LimitExceeded
from aos_runtime.policy.fuel import FuelLedger, NoFuel, fuel_share
from aos_runtime.policy.quotas import Quotas
from aos_runtime.policy.rates import Throughput

MAX_FUEL_PER_CALL = 10_000_000_000
_WAIT_S = 1.0
"""A waiter looks again after this long, though nobody called it."""


class Budget:
    """The limits of one principal.  `fuel_retired` is what capsules used that it has no longer; those that
    it has count in their meters.
    """

    __slots__ = (
        "_changed",
        "_clock",
        "_ledger",
        "_lock",
        "_throughput",
        "fuel_ceiling",
        "fuel_retired",
        "is_exempt",
        "principal",
        "quotas",
        "timeout_s",
    )

    def __init__(
        self,
        principal: str,
        quotas: Quotas,
        *,
        is_exempt: bool,
        fuel_ceiling: int = MAX_FUEL_PER_CALL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.principal = principal
        self.fuel_retired = 0
        self._clock = clock
        self.fuel_ceiling = fuel_ceiling
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ledger = FuelLedger(1, 1)
        self._throughput = Throughput(quotas.max_ipc_throughput_bytes)
        self.is_exempt = is_exempt
        self.limit(quotas, is_exempt=is_exempt)

    def limit(self, quotas: Quotas, *, is_exempt: bool) -> None:
        """Hold the principal to other quotas from now on."""
        rate = quotas.max_cpu_fuel_per_sec
        with self._changed:
            self.quotas = quotas
            if is_exempt != self.is_exempt:  # what was reserved under the other rule counts no longer
                self._ledger = FuelLedger(1, 1)
            self.is_exempt = is_exempt
            self.timeout_s = float(quotas.max_timeout_secs)
            self._ledger.limit(rate, fuel_share(rate, quotas.max_in_flight_calls, self.fuel_ceiling))
            self._throughput.limit(quotas.max_ipc_throughput_bytes)
            self._changed.notify_all()

    @property
    def fuel_rate(self) -> int:
        return self.quotas.max_cpu_fuel_per_sec

    def time_left(self, queued_s: float) -> float:
        """Seconds that a call may take which was queued at `queued_s`.

        LimitExceeded `invocation-deadline` where it has waited too long for its instance.
        """
        waited_s = self._clock() - queued_s
        if waited_s < _WAIT_S < self.timeout_s:
            return self.timeout_s
        if waited_s >= self.timeout_s:
            raise LimitExceeded(
                "invocation-deadline",
                "invocation deadline expired waiting for capsule instance",
                hint="its capsule was busy with earlier calls: call less, or raise the principal's timeout",
            )
        return self.timeout_s - waited_s

    def reserve(self, wait_s: float, before_block: Callable[[], None]) -> int:
        """The fuel that a call may use; waits up to `wait_s` while other calls have reserved what is left.

        LimitExceeded `cpu-budget` where there is none.  Every reservation is settled.
        """
        if self.is_exempt:
            return self.fuel_ceiling
        with self._lock:
            given = self._ledger.reserve(self._clock())
        if isinstance(given, int):
            return given
        if given is NoFuel.RESERVED:
            before_block()
            return self._wait(self._clock() + wait_s)
        raise self._over_budget()

    def settle(self, reserved: int, used: int) -> None:
        """A call has ended: it used that much of what `reserve` gave it."""
        with self._lock:
            self._ledger.settle(reserved, used)
            self._changed.notify()

    def admit(self, size_bytes: int) -> bool:
        """Whether a publish of that many bytes is within the rate; counted where it is."""
        if self.is_exempt:
            return True
        with self._lock:
            return self._throughput.charge(size_bytes, self._clock())

    def _wait(self, deadline_s: float) -> int:
        with self._changed:
            while True:
                now = self._clock()
                given = self._ledger.reserve(now)
                if isinstance(given, int):
                    return given
                if given is NoFuel.EXHAUSTED or now >= deadline_s:
                    raise self._over_budget()
                window_s = self._ledger.window_ends_in(now) or _WAIT_S
                self._changed.wait(min(window_s, deadline_s - now, _WAIT_S))

    def _over_budget(self) -> LimitExceeded:
        return LimitExceeded(
            "cpu-budget",
            f"principal '{self.principal}' exceeded CPU budget of {self.fuel_rate} fuel/sec",
            hint=f"call less, or raise it: `aos quota set --agent {self.principal} --cpu-rate N`",
        )


def unbounded(principal: str = "nobody") -> Budget:
    """A budget that measures and holds nobody up: for what runs outside of any principal's quotas."""
    return Budget(principal, Quotas(), is_exempt=True)
