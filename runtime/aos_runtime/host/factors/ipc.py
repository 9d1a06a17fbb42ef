"""astrid:ipc/host@1.0.0 (host-abi.md 1.3), as far as it is built: `publish`.

The edge serves `publish` itself and calls the context's port; this entry is its published shape.
"""

from __future__ import annotations

from aos_runtime.host import wit
from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.factor import Published

UNKNOWN_PREFIX = "unknown:"
"""How the port spells `unknown(text)`."""


def publish(context: GuestContext, topic: str, payload: str) -> Err | None:
    """Hand a message to the bus; the port decides."""
    refusal = context.publish(topic, payload.encode())
    if refusal is None:
        return None
    if refusal.startswith(UNKNOWN_PREFIX):
        return Err("unknown", refusal.removeprefix(UNKNOWN_PREFIX))
    return Err(refusal)


FUNCTIONS = {"publish": Published(publish, wit.PUBLISH)}
