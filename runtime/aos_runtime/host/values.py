"""Values as wasmtime's component C API spells them: one codec per interface type.

The counterpart of `codecs` for the component lane, with the same Python values on the other side.  There
wasmtime lifts and lowers and checks everything that a guest could lie about; what is left to do here is to
turn its tagged values of 32 bytes into Python ones and back.  Lists of bytes are moved by slices, never one
by one.

A value that is written belongs to wasmtime, down to the last name.  Where writing fails half-way, which only
a bug of ours can cause, what was written so far is lost.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from ctypes import c_void_p
from typing import Any, Protocol

from aos_runtime.host import raw_component as raw
from aos_runtime.host.door import ELEMENT_COST_BYTES, LiftBudget
from aos_runtime.host.resources import ResourceTable

SIZE = raw.VALUE_BYTES
Block = bytes | bytearray | memoryview

AT = 8
"""Where a value's content begins, behind its kind."""
WORDS = struct.Struct("<QQ")
WORD = struct.Struct("<Q")
_CHUNK_ELEMENTS = 1 << 15
KINDS = {
    name: number
    for number, name in enumerate(
        (
            *("bool", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64", "char", "string"),
            *("list", "record", "tuple", "variant", "enum", "option", "result", "flags", "resource"),
        )
    )
}
"""The first byte of a value."""
NUMBERS = {
    "s8": "<b",
    "u8": "<B",
    "s16": "<h",
    "u16": "<H",
    "s32": "<i",
    "u32": "<I",
    "s64": "<q",
    "u64": "<Q",
    "f32": "<f",
    "f64": "<d",
}


class Crossing(Protocol):
    """What values need of the instance that they cross to and from."""

    def spend(self, size: int) -> None:
        """Charge what is about to be copied to the running call."""
        ...

    def named(self, any_handle: int) -> int:
        """The host's number for what a handle stands for."""
        ...

    def handle(self, number: int) -> int:
        """The address of a new handle for the host's number."""
        ...


class ValueCrossing(LiftBudget):
    """Of one instance: `named` and `handle` go through its store.

    `numbers` gives the number that a resource type was linked under, by its WIT name.
    """

    __slots__ = ("_numbers", "_resources", "_store_context")

    def __init__(self, store_context: c_void_p, resources: ResourceTable, numbers: Mapping[str, int]) -> None:
        super().__init__()
        self._store_context = store_context
        self._resources = resources
        self._numbers = numbers

    def named(self, any_handle: int) -> int:
        """The host's handle behind the guest's."""
        return raw.lookup_handle(self._store_context, any_handle)

    def handle(self, number: int) -> int:
        """The address of a new handle for the guest to own."""
        kind = self._resources.kind_of(number)
        return raw.own_handle(self._store_context, self._numbers[kind], number)


class ValueCodec(ABC):
    """One interface type.  A block holds values of `SIZE` bytes; `at` says where one begins."""

    __slots__ = ()

    @abstractmethod
    def read(self, crossing: Crossing, block: Block, at: int) -> Any:
        """The value at `at`; it stays wasmtime's."""

    @abstractmethod
    def write(self, crossing: Crossing, block: bytearray, at: int, value: Any) -> None:
        """Write `value` at `at`, where all is zero."""


class Number(ValueCodec):
    __slots__ = ("_kind", "_layout")

    def __init__(self, name: str) -> None:
        self._kind, self._layout = KINDS[name], struct.Struct(NUMBERS[name])

    def read(self, crossing: Crossing, block: Block, at: int) -> Any:
        return self._layout.unpack_from(block, at + AT)[0]

    def write(self, crossing: Crossing, block: bytearray, at: int, value: Any) -> None:
        block[at] = self._kind
        self._layout.pack_into(block, at + AT, value)


class Bool(ValueCodec):
    __slots__ = ()

    def read(self, crossing: Crossing, block: Block, at: int) -> bool:
        return bool(block[at + AT])

    def write(self, crossing: Crossing, block: bytearray, at: int, value: bool) -> None:
        block[at], block[at + AT] = KINDS["bool"], 1 if value else 0


class Char(Number):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("u32")
        self._kind = KINDS["char"]

    def read(self, crossing: Crossing, block: Block, at: int) -> str:
        return chr(super().read(crossing, block, at))

    def write(self, crossing: Crossing, block: bytearray, at: int, value: str) -> None:
        super().write(crossing, block, at, ord(value))


class String(ValueCodec):
    __slots__ = ()

    def read(self, crossing: Crossing, block: Block, at: int) -> str:
        return read_text(crossing, block, at + AT)

    def write(self, crossing: Crossing, block: bytearray, at: int, value: str) -> None:
        block[at] = KINDS["string"]
        write_name(block, at + AT, value.encode())


class Bytes(ValueCodec):
    __slots__ = ()

    def read(self, crossing: Crossing, block: Block, at: int) -> bytes:
        count, data = WORDS.unpack_from(block, at + AT)
        crossing.spend(count)
        return raw.view_at(data, count * SIZE)[AT::SIZE].tobytes() if count else b""

    def write(self, crossing: Crossing, block: bytearray, at: int, value: bytes) -> None:
        block[at] = KINDS["list"]
        block[at + AT : at + AT + WORDS.size], data = raw.new_values(len(value))
        part = bytearray(min(len(value), _CHUNK_ELEMENTS) * SIZE)
        part[::SIZE] = bytes((KINDS["u8"],)) * (len(part) // SIZE)
        for start in range(0, len(value), _CHUNK_ELEMENTS):
            piece = value[start : start + _CHUNK_ELEMENTS]
            part = part if len(part) == len(piece) * SIZE else part[: len(piece) * SIZE]
            part[AT::SIZE] = piece
            raw.fill(data + start * SIZE, part)


class Values(ValueCodec):
    """Lists and tuples: values one after another."""

    __slots__ = ("_kind",)

    def __init__(self, kind: str) -> None:
        self._kind = KINDS[kind]

    def read(self, crossing: Crossing, block: Block, at: int) -> Any:
        count, data = WORDS.unpack_from(block, at + AT)
        codecs = self._codecs(crossing, count)
        inner = raw.bytes_at(data, count * SIZE)
        return [codec.read(crossing, inner, i * SIZE) for i, codec in enumerate(codecs)]

    def write(self, crossing: Crossing, block: bytearray, at: int, value: Sequence[Any]) -> None:
        inner = bytearray(len(value) * SIZE)
        for i, (codec, item) in enumerate(zip(self._all(len(value)), value, strict=True)):
            codec.write(crossing, inner, i * SIZE, item)
        block[at] = self._kind
        block[at + AT : at + AT + WORDS.size], data = raw.new_values(len(value))
        raw.fill(data, inner)

    def _codecs(self, crossing: Crossing, count: int) -> Sequence[ValueCodec]:
        """The codecs of so many values that are read."""
        return self._all(count)

    @abstractmethod
    def _all(self, count: int) -> Sequence[ValueCodec]:
        """The codecs of so many values."""


class List(Values):
    __slots__ = ("_element",)

    def __init__(self, element: ValueCodec) -> None:
        super().__init__("list")
        self._element = element

    def _codecs(self, crossing: Crossing, count: int) -> Sequence[ValueCodec]:
        crossing.spend(count * ELEMENT_COST_BYTES)
        return self._all(count)

    def _all(self, count: int) -> Sequence[ValueCodec]:
        return (self._element,) * count


def read_name(block: Block, at: int) -> str:
    size, data = WORDS.unpack_from(block, at)
    return raw.bytes_at(data, size).decode()


def read_text(crossing: Crossing, block: Block, at: int) -> str:
    crossing.spend(WORD.unpack_from(block, at)[0])
    return read_name(block, at)


def write_name(block: bytearray, at: int, encoded: bytes) -> None:
    block[at : at + WORDS.size] = raw.new_bytes(encoded)
