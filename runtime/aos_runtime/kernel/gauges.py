"""How much every capsule does, as numbers for `top`: counters and buckets, never rates.

Whoever asks twice has the rates.  Pure: from views and counters to plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aos_runtime.kernel.meter import LATENCY_BOUNDS_NS
from aos_runtime.kernel.views import View


def gauges(views: Iterable[View], process: Mapping[str, object], now_ns: int) -> dict[str, object]:
    """`latency` counts invocations by the upper bounds `latency_bounds_us`, one more than those.

    `handles_leaked` counts those that a hook left behind and the host has closed.  `now_ns` is a monotonic
    time; memory is in bytes, null where no handler of the capsule has run yet.
    """
    rows = [row for view in sorted(views, key=lambda one: one.principal) for row in _rows(view)]
    bounds = [bound // 1000 for bound in LATENCY_BOUNDS_NS]
    return {"monotonic_ns": now_ns, "process": dict(process), "latency_bounds_us": bounds, "capsules": rows}


def _rows(view: View) -> Iterable[dict[str, object]]:
    for resident in view.residents.values():
        actor = resident.actor
        resources = actor.generation.context.resources
        yield {
            "principal": view.principal,
            "capsule": resident.name,
            **actor.meter.to_json(),
            "is_busy": actor.mailbox.busy,
            "queue_depth": actor.depth,
            "queue_peak": actor.mailbox.peak,
            "drops": actor.mailbox.drops,
            "memory_bytes": actor.meter.memory_bytes,
            "handles": resources.live,
            "handles_leaked": resources.leaked,
            "latency": list(actor.meter.latency),
        }
