"""What is put on record of a request, told on the bus to the capsules of whoever made it.

Source: daemon-kernel.md 3.6 (`astrid.v1.audit.entry`) and 9.5.  The trail is the record, this only tells of
it: nobody waits for a reader, and a message that is lost is still on record.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aos_runtime.kernel.audited import sanitised
from aos_runtime.store.audit_entry import SUCCESS, failure

AUDIT_TOPIC = "astrid.v1.audit.entry"

_encode = msgspec.json.Encoder().encode
_TARGETS = ("target_principal", "principal", "name")
"""Where methods name the principal that they are about; `name` only in those of agents."""


def audit_entry(
    *,
    at_s: float,
    principal: str,
    device_key_id: str | None,
    method: str,
    params: Mapping[str, object],
    capability: str | None,
    error: str | None,
) -> bytes:
    """The body of one entry.  `error` None: it succeeded.  Secrets are left out as they are in the trail."""
    return _encode(
        {
            "ts_epoch": int(at_s),
            "method": method,
            "required_capability": capability,
            "principal": principal,
            "device_key_id": device_key_id,
            "target_principal": _target(method, params),
            "params": sanitised(params),
            "outcome": SUCCESS if error is None else failure(error),
        }
    )


def _target(method: str, params: Mapping[str, object]) -> str | None:
    keys = _TARGETS if method.startswith("Agent") else _TARGETS[:2]
    return next((value for key in keys if isinstance(value := params.get(key), str)), None)
