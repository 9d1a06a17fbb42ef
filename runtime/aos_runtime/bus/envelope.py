"""One message on the bus: values and bytes, never a live object.

Source: daemon-kernel.md 3.1.  The kernel stamps every field; a guest's or client's own idea of them is
never read.
"""

from __future__ import annotations

from msgspec import Struct


class Envelope(Struct, frozen=True, gc=False):
    """A message as every capsule, client and log sees it.

    `seq` counts from 1 and never repeats within a boot.  `body` is a normalised JSON payload, `kind` its
    tag (None for custom).  `source_id` is the publisher's UUID text, nil for the daemon.  `principal`,
    `device_key_id`, `request_owner`, `origin` and `workspace` are those of the call that caused it and
    are inherited along a chain. `origin` is `local_socket`, `remote_gateway` or `system`.
    """

    seq: int
    topic: str
    body: bytes
    kind: str | None
    source_id: str
    principal: str | None
    device_key_id: str | None
    request_owner: str | None
    origin: str
    workspace: str | None
    timestamp_ms: int
    delivery_id: str | None = None
    """The id under which the publisher wants to hear that nobody took it; never leaves the process."""

    def event_id(self, boot_id: str) -> str:
        """A name for this message that no other boot gives out: `<boot id>-<seq>`."""
        return f"{boot_id}-{self.seq}"
