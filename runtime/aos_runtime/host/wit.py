"""Interface types as values: what a component says about the functions that it imports.

Read once from wasmtime's own view of a validated component, kept beside the precompiled code as JSON, and
turned into codecs by `codecs`.  Nothing here touches guest memory.
"""

from __future__ import annotations

import msgspec

MAX_TYPE_NODES = 20_000
"""A component's types are a graph that can unfold exponentially; no published interface comes near this."""

PRIMITIVES = ("bool", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f32", "f64", "char", "string")


class TypeBudget:
    """How many more nodes one component's types may unfold to."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_TYPE_NODES

    def take(self) -> bool:
        """Whether one more node is allowed."""
        self._left -= 1
        return self._left >= 0


class Node(msgspec.Struct, frozen=True, tag_field="t", array_like=True):
    """Base of all types."""


class Primitive(Node, frozen=True, tag="p", array_like=True):
    """One of `PRIMITIVES`."""

    name: str


class ListOf(Node, frozen=True, tag="l", array_like=True):
    """`list<element>`."""

    element: Type


class Record(Node, frozen=True, tag="r", array_like=True):
    """Named fields in order."""

    fields: tuple[tuple[str, Type], ...]


class TupleOf(Node, frozen=True, tag="t", array_like=True):
    """Unnamed fields in order."""

    elements: tuple[Type, ...]


class Variant(Node, frozen=True, tag="v", array_like=True):
    """Named cases in order, each with a payload or none."""

    cases: tuple[tuple[str, Type | None], ...]


class Enum(Node, frozen=True, tag="e", array_like=True):
    """A variant whose cases carry nothing."""

    names: tuple[str, ...]


class Option(Node, frozen=True, tag="o", array_like=True):
    """`option<payload>`."""

    payload: Type


class Result(Node, frozen=True, tag="x", array_like=True):
    """`result<ok, err>`; None where an arm carries nothing."""

    ok: Type | None
    err: Type | None


class Flags(Node, frozen=True, tag="f", array_like=True):
    """A set of names, one bit each."""

    names: tuple[str, ...]


class Handle(Node, frozen=True, tag="h", array_like=True):
    """`own<resource>` or `borrow<resource>`: an index into the host's table for this instance."""

    owned: bool


Type = Primitive | ListOf | Record | TupleOf | Variant | Enum | Option | Result | Flags | Handle


class Signature(msgspec.Struct, frozen=True, array_like=True):
    """Parameters by name, and the result or None."""

    params: tuple[tuple[str, Type], ...]
    result: Type | None


class CoreImport(msgspec.Struct, frozen=True, array_like=True):
    """One imported function.  No signature: a resource, under the name of its drop."""

    module: str
    name: str
    signature: Signature | None

    @property
    def path(self) -> str:
        """`module::name`, as messages write it."""
        return f"{self.module}::{self.name}"


class Interface(msgspec.Struct, frozen=True, array_like=True):
    """What must be known of a component beside its code.

    `memory_pages` None: it runs in the edge lane, and `imports` are those of its core module; else in the
    component lane, with what each memory of its modules starts with, and `imports` are the component's.
    """

    imports: tuple[CoreImport, ...]
    has_post_return: bool
    implemented: tuple[str, ...]
    """Which of `run`, `astrid-install`, `astrid-upgrade` do something (capsule.wasm.implemented_exports)."""
    memory_pages: tuple[int, ...] | None = None


def encode_interface(interface: Interface) -> bytes:
    """The form kept beside precompiled code."""
    return msgspec.json.encode(interface)


def decode_interface(data: bytes) -> Interface:
    """Inverse of `encode_interface`; msgspec.DecodeError or ValidationError for anything else."""
    return _DECODER.decode(data)


BOOL, STRING = Primitive("bool"), Primitive("string")
U8, U16, U32, U64 = Primitive("u8"), Primitive("u16"), Primitive("u32"), Primitive("u64")
S32, S64 = Primitive("s32"), Primitive("s64")
BYTES = ListOf(U8)
OWN, BORROW = Handle(owned=True), Handle(owned=False)
IPC_ERROR = Variant(
    (
        ("capability-denied", None),
        ("invalid-input", None),
        ("closed", None),
        ("rate-limited", None),
        ("backpressure", None),
        ("quota", None),
        ("timeout", None),
        ("unknown", STRING),
    )
)
RESOURCE_DROP = "[resource-drop]"
"""What the name of a resource's drop starts with."""
LIFECYCLE = Signature((), None)
"""`run`, `astrid-install` and `astrid-upgrade` of `astrid:guest@1.0.0`."""
PUBLISH = Signature((("topic", STRING), ("payload", STRING)), Result(None, IPC_ERROR))
"""`astrid:ipc/host@1.0.0` `publish`: the one import that the edge serves."""
HOOK = Signature(
    (("action", STRING), ("payload", BYTES)),
    Record((("action", STRING), ("data", Option(STRING)))),
)
"""`astrid-hook-trigger` of `astrid:guest@1.0.0`."""

_DECODER = msgspec.json.Decoder(Interface)
