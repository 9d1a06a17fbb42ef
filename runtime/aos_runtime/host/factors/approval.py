"""astrid:approval/host@1.0.0 (host-abi.md 1.10): ask a person before something is done.

No capability gates it.  Whether, whom and how is asked is behind the context's port.
"""

from __future__ import annotations

from aos_runtime.host.codecs import Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors.factor import published
from aos_runtime.host.wit import STRING, Enum, Record, Result, Variant


def request_approval(context: GuestContext, request: dict[str, str]) -> dict[str, str] | Err:
    """The decision on one action; it may take a minute."""
    if context.request_approval is None:
        return {"decision": "denied"}
    gate = None if context.is_loop else context.gate
    if gate is not None and not gate.enter():
        return Err("unknown", "too many guests wait at once")
    try:
        decision = context.request_approval(context.current, request["action"], request["target-resource"])
    finally:
        if gate is not None:
            gate.leave()
    context.yielded()
    return decision if isinstance(decision, Err) else {"decision": decision}


_ERROR = Variant(
    (("invalid-input", None), ("timeout", None), ("store-unavailable", None), ("unknown", STRING))
)
_REQUEST = Record((("action", STRING), ("target-resource", STRING)))
_DECISION = Enum(("denied", "approved", "approved-session", "approved-always", "allowance"))
_RESPONSE = Record((("decision", _DECISION),))

FUNCTIONS = {"request-approval": published(request_approval, Result(_RESPONSE, _ERROR), request=_REQUEST)}
