"""astrid:uplink/host@1.0.0 (host-abi.md 1.12): bringing in what people say on other platforms.

Gate, limits and record are behind the context's port.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aos_runtime.host.codecs import Err
from aos_runtime.host.context import DENIED, GuestContext
from aos_runtime.host.factors.factor import published
from aos_runtime.host.people import UplinkRefused, Uplinks
from aos_runtime.host.wit import BOOL, STRING, Enum, Result, Variant

_T = TypeVar("_T")


def register(context: GuestContext, name: str, platform: str, profile: str) -> str | Err:
    """The id of a new uplink, for as long as this instance is not replaced."""
    return _attempt(context, lambda uplinks: uplinks.register(name, platform, profile))


def send(context: GuestContext, uplink: str, platform_user: str, content: str) -> bool | Err:
    """Whether a message was taken; False where it was dropped."""
    return _attempt(context, lambda uplinks: uplinks.send(uplink, platform_user, content))


def _attempt(context: GuestContext, operation: Callable[[Uplinks], _T]) -> _T | Err:
    """What the port answers; its refusal as an err arm."""
    if context.uplinks is None:
        return Err(DENIED)
    try:
        return operation(context.uplinks)
    except UplinkRefused as refusal:
        return Err(refusal.case)


_ERROR = Variant(
    (
        ("capability-denied", None),
        ("invalid-input", None),
        ("invalid-profile", None),
        ("unknown-uplink", None),
        ("no-session", None),
        ("quota", None),
        ("unknown", STRING),
    )
)
_PROFILE = Enum(("chat", "interactive", "notify", "bridge"))

FUNCTIONS = {
    "uplink-register": published(
        register, Result(STRING, _ERROR), name=STRING, platform=STRING, profile=_PROFILE
    ),
    "uplink-send": published(
        send,
        Result(BOOL, _ERROR),
        uplink_id=STRING,
        platform_user_id=STRING,
        content=STRING,
    ),
}
