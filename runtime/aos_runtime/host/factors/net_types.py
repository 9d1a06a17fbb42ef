"""The WIT types of astrid:net; the functions are in `net`."""

from __future__ import annotations

from aos_runtime.host.wit import (
    BYTES,
    STRING,
    Enum,
    Handle,
    Primitive,
    Record,
    Result,
    Type,
    Variant,
)

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
DATAGRAM = Record((("data", BYTES), ("peer-host", STRING), ("peer-port", Primitive("u16"))))
U16, U32, U64, BOOL = Primitive("u16"), Primitive("u32"), Primitive("u64"), Primitive("bool")
OWN = Handle(owned=True)


def fallible(ok: Type | None) -> Result:
    """A result with this interface's `error-code`."""
    return Result(ok, ERROR)
