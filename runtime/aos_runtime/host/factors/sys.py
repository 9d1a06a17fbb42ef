"""astrid:sys/host@1.0.0 (host-abi.md 1.5): log, configuration, clocks, entropy, and who is asking."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from aos_runtime.capsule.capability import held_names
from aos_runtime.errors import AosError
from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.factor import published
from aos_runtime.host.wit import (
    BOOL,
    BYTES,
    STRING,
    U64,
    Enum,
    ListOf,
    Option,
    Record,
    Result,
    Variant,
)

MAX_RANDOM_BYTES = 4096
MAX_SLEEP_NS = 60_000_000_000
MAX_LOG_BYTES = 64 << 10
"""A longer message is cut, and says so (case LOG-08)."""
_MAX_BYTES_A_CHARACTER = 4


def get_config(context: GuestContext, key: str) -> str | Err | None:
    """The value of an `[env]` key, or None."""
    try:
        return context.config(key)
    except AosError as error:
        return Err("unknown", error.message)


def get_caller(context: GuestContext) -> dict[str, object]:
    """Who caused the current invocation; nobody outside of one."""
    current = context.current
    if current is None:
        return {"principal": None, "source-id": "", "timestamp": ""}
    moment = datetime.fromtimestamp(current.timestamp_ms / 1000, UTC)
    return {
        "principal": current.principal,
        "source-id": current.source_id,
        "timestamp": moment.isoformat(timespec="milliseconds"),
    }


def log(context: GuestContext, level: str, message: str) -> None:
    """One record in the capsule's log."""
    context.log(level, _bounded(message))


def signal_ready(context: GuestContext) -> None:
    """The run loop is up."""
    context.signal_ready()


def clock_ms(context: GuestContext) -> int:
    """Milliseconds since 1970."""
    return context.now_ms()


def clock_monotonic_ns(context: GuestContext) -> int:
    """Nanoseconds since some moment."""
    return context.monotonic_ns()


def sleep_ns(context: GuestContext, duration_ns: int) -> Err | None:
    """Wait; `too-large` over a minute, `cancelled` when cut short."""
    if duration_ns > MAX_SLEEP_NS:
        return Err("too-large")
    assert context.sleep is not None  # an instance fills it in
    context.before_block()
    slept = context.sleep(duration_ns / 1e9)
    context.yielded()
    return None if slept else Err("cancelled")


def random_bytes(_context: GuestContext, length: int) -> bytes | Err:
    """Entropy of the operating system, at most 4096 bytes a call (case ABI-35)."""
    return Err("too-large") if length > MAX_RANDOM_BYTES else os.urandom(length)


def check_capsule_capability(context: GuestContext, request: dict[str, str]) -> dict[str, bool] | Err:
    """Whether the capsule with that source uuid holds that capability."""
    if context.has_capability is None:
        return Err("registry-unavailable")
    return {"allowed": context.has_capability(request["source-uuid"], request["capability"])}


def enumerate_capabilities(context: GuestContext) -> list[str]:
    """The names of the capabilities held, sorted."""
    return sorted(held_names(context.capabilities))


def _bounded(message: str) -> str:
    if len(message) * _MAX_BYTES_A_CHARACTER <= MAX_LOG_BYTES:
        return message
    data = message.encode()
    if len(data) <= MAX_LOG_BYTES:
        return message
    kept = data[:MAX_LOG_BYTES].decode("utf-8", "ignore")
    return f"{kept} [cut: {len(data)} bytes]"


_ERROR = Variant(
    (
        ("capability-denied", None),
        ("config-key-reserved", None),
        ("too-large", None),
        ("registry-unavailable", None),
        ("cancelled", None),
        ("unknown", STRING),
    )
)
_LEVEL = Enum(("trace", "debug", "info", "warn", "error"))
_CALLER = Record((("principal", Option(STRING)), ("source-id", STRING), ("timestamp", STRING)))
_CHECK = Record((("source-uuid", STRING), ("capability", STRING)))
_CHECKED = Record((("allowed", BOOL),))

FUNCTIONS = {
    "get-config": published(get_config, Result(Option(STRING), _ERROR), key=STRING),
    "get-caller": published(get_caller, Result(_CALLER, _ERROR)),
    "log": published(log, None, level=_LEVEL, message=STRING),
    "signal-ready": published(signal_ready, None),
    "clock-ms": published(clock_ms, U64),
    "clock-monotonic-ns": published(clock_monotonic_ns, U64),
    "sleep-ns": published(sleep_ns, Result(None, _ERROR), duration_ns=U64),
    "random-bytes": published(random_bytes, Result(BYTES, _ERROR), length=U64),
    "check-capsule-capability": published(check_capsule_capability, Result(_CHECKED, _ERROR), request=_CHECK),
    "enumerate-capabilities": published(enumerate_capabilities, ListOf(STRING)),
}
