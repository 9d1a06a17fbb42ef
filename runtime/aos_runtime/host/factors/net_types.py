"""The WIT types of astrid:net; the functions are in `net`."""

from __future__ import annotations

from aos_runtime.host.wit import BYTES, STRING, U16, Enum, Record, Result, Type, Variant

ERROR = Variant(
    (
        *(
            (name, None)
            for name in (
                "would-block",
                "closed",
                "capability-denied",
                "airlock-rejected",
                "connection-refused",
                "connection-reset",
                "timeout",
                "address-in-use",
                "address-not-available",
                "name-unresolvable",
                "invalid-handle",
                "not-tcp",
                "quota",
            )
        ),
        ("unknown", STRING),
    )
)
STATUS = Variant((("data", BYTES), ("closed", None), ("pending", None)))
HOW = Enum(("receive", "send", "both"))
DATAGRAM = Record((("data", BYTES), ("peer-host", STRING), ("peer-port", U16)))


def fallible(ok: Type | None) -> Result:
    """A result with this interface's `error-code`."""
    return Result(ok, ERROR)
