"""Every bound that a benchmark is held to, in one table (the reasons are in docs/benchmarks.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One figure.  `bound` is in `unit`; with `at_least` the figure must reach it, else it must stay
    below."""

    measure: str
    key: str
    title: str
    unit: str
    bound: float | None
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        if self.bound is None:
            return True
        return value >= self.bound if self.at_least else value < self.bound


def _target(
    measure: str, key: str, title: str, unit: str, bound: float | None, *, at_least: bool = False
) -> Target:
    return Target(measure=measure, key=key, title=title, unit=unit, bound=bound, at_least=at_least)


PAYLOADS = {
    "fs_read": "fs read of",
    "fs_write": "fs write of",
    "kv_get": "kv get of",
    "kv_set": "kv set of",
    "http_get": "http answer of",
    "http_put": "http request of",
}
"""Host calls that move bytes, each held to the same bounds."""

TARGETS: dict[str, Target] = {
    target.key: target
    for target in (
        _target("hook", "hook_0b", "hook over bare guest, 0 B", "x", 2.5),
        _target("hook", "hook_1kb", "hook over bare guest, 1 KB", "x", 2.0),
        _target("hook", "hook_10kb", "hook over bare guest, 10 KB", "x", 1.3),
        _target("hook", "hook_100kb", "hook over bare guest, 100 KB", "x", 1.2),
        _target("call", "call_p50", "one tool call, p50", "ms", 0.4),
        _target("call", "call_echo", "one tool call over an echo server", "x", 4.0),
        _target("load", "load_8_rate", "8 clients", "calls/s", 9000, at_least=True),
        _target("load", "load_8_p99", "8 clients, p99", "ms", 3.0),
        _target("load", "load_32_rate", "32 clients", "calls/s", 9000, at_least=True),
        _target("load", "load_32_over_8", "32 clients over 8, rate", "x", 0.8, at_least=True),
        _target("load", "load_beside_16", "a small call beside 16 blocked ones, over alone", "x", 2.0),
        _target("boot", "boot_ready", "boot with 11 capsules, exec to ready", "s", 0.5),
        _target("boot", "boot_rss", "resident with 11 capsules", "MB", 97),
        _target("install", "install_100kb", "install of a 100 KB capsule, daemon up", "s", 0.4),
        _target("build", "build_over_cargo", "no-op build, more than cargo's own", "s", 0.35),
        _target("status", "status_time", "aos status", "s", 0.25),
        _target("status", "status_typer", "aos status over a one-command Typer program", "x", 1.5),
        *(
            _target(
                "payload",
                f"payload_{key}_{label}",
                f"{title} {size}, less 20 us, over a plain copy",
                "x",
                3.0,
            )
            for label, size in (("1kb", "1 KB"), ("100kb", "100 KB"), ("1mb", "1 MB"), ("9mb", "9 MB"))
            for key, title in PAYLOADS.items()
        ),
        *(
            _target("payload", f"payload_{key}_memory", f"{title} 9 MB, memory over the payload", "x", 4.0)
            for key, title in PAYLOADS.items()
        ),
        _target("kv", "kv_get", "kv get of 100 B over bare sqlite3", "x", 4.0),
        _target("kv", "kv_set", "kv set of 100 B over bare sqlite3", "x", 3.0),
        _target("kv", "kv_cas", "kv cas of 100 B over bare sqlite3", "x", 3.0),
    )
}

MEASURES = tuple(dict.fromkeys(target.measure for target in TARGETS.values()))
