"""The canonical ABI, compiled: one codec per interface type, made once per component and shared by its
instances.

A codec knows its size, alignment and flat form, lifts a guest's value into a plain Python value, and lowers
one back. Source: the component model's canonical ABI (CanonicalABI.md), synchronous functions, 32-bit
memories, UTF-8 strings. Nothing here holds state or touches memory but through a `Door`; a guest's lie is
an AbiViolation.

Simple types are here, compound ones in `compounds`.

| interface type | Python value |
|---|---|
| integers, bool, f32/f64 | int, bool, float |
| char, string | str |
| list<u8>, list<t> | bytes, list |
| record | dict by field name |
| tuple | tuple |
| variant | Case(name, payload) |
| enum, flags | str, frozenset of str |
| option | None or the value; the value in a 1-tuple where it is itself an option |
| result | the ok value (None for no payload), or Err(case, payload); never a result itself |
| own, borrow | int |
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aos_runtime.host.door import ELEMENT_COST_BYTES, AbiViolation, Door, check_aligned

U8, U16, U32 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I")
_POINTER = struct.Struct("<II")
LOW32 = 0xFFFFFFFF
"""All that means anything in the word of a 32-bit value."""


class Case(NamedTuple):
    """A value of a variant."""

    name: str
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Err:
    """The err arm of a result.  `case` names the error's case; it is None where the error is not a variant or
    enum.
    """

    case: str | None
    payload: Any = None


class Codec(ABC):
    """One interface type.  `flat` lists the core types of its flat form."""

    __slots__ = ("align", "flat", "size")

    def __init__(self, size: int, align: int, flat: tuple[str, ...]) -> None:
        self.size, self.align, self.flat = size, align, flat

    @abstractmethod
    def load(self, door: Door, at: int) -> Any:
        """Read the value at `at` of guest memory."""

    @abstractmethod
    def store(self, door: Door, at: int, value: Any) -> None:
        """Write `value` at `at` of guest memory."""

    @abstractmethod
    def lift(self, door: Door, words: Sequence[int], i: int) -> Any:
        """Read the value whose flat form starts at the i-th 64-bit word; upper halves of 32-bit words are
        noise.
        """

    @abstractmethod
    def lower(self, door: Door, value: Any) -> list[int]:
        """The flat form of `value`, one unsigned word each."""


class Integer(Codec):
    __slots__ = ("_layout", "_mask", "_signed")

    def __init__(self, bits: int, signed: bool) -> None:
        size = bits // 8
        super().__init__(size, size, ("i64",) if bits == 64 else ("i32",))
        code = "BHIQ"[size.bit_length() - 1]
        self._layout = struct.Struct("<" + (code.lower() if signed else code))
        self._mask, self._signed = (1 << bits) - 1, signed

    def load(self, door: Door, at: int) -> int:
        return int(door.unpack(self._layout, at)[0])

    def store(self, door: Door, at: int, value: int) -> None:
        door.pack(self._layout, at, value)

    def lift(self, door: Door, words: Sequence[int], i: int) -> int:
        value = words[i] & self._mask
        return value - self._mask - 1 if self._signed and value > self._mask >> 1 else value

    def lower(self, door: Door, value: int) -> list[int]:
        self._layout.pack(value)  # refuses what does not fit
        # A narrow signed integer is sign-extended to its core type, 32 bits unless it is itself wider.
        return [value & max(self._mask, LOW32)]


class Bool(Codec):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1, 1, ("i32",))

    def load(self, door: Door, at: int) -> bool:
        return bool(door.unpack(U8, at)[0])

    def store(self, door: Door, at: int, value: bool) -> None:
        door.pack(U8, at, 1 if value else 0)

    def lift(self, door: Door, words: Sequence[int], i: int) -> bool:
        return words[i] & LOW32 != 0

    def lower(self, door: Door, value: bool) -> list[int]:
        return [1 if value else 0]


class Float(Codec):
    __slots__ = ("_bits", "_layout")

    def __init__(self, bits: int) -> None:
        super().__init__(bits // 8, bits // 8, (f"f{bits}",))
        self._layout = struct.Struct("<f" if bits == 32 else "<d")
        self._bits = struct.Struct("<I" if bits == 32 else "<Q")

    def load(self, door: Door, at: int) -> float:
        return float(door.unpack(self._layout, at)[0])

    def store(self, door: Door, at: int, value: float) -> None:
        door.pack(self._layout, at, value)

    def lift(self, door: Door, words: Sequence[int], i: int) -> float:
        mask = (1 << 8 * self.size) - 1
        return float(self._layout.unpack(self._bits.pack(words[i] & mask))[0])

    def lower(self, door: Door, value: float) -> list[int]:
        return [int(self._bits.unpack(self._layout.pack(value))[0])]


class Char(Codec):
    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(4, 4, ("i32",))

    def load(self, door: Door, at: int) -> str:
        return _character(door.unpack(U32, at)[0])

    def store(self, door: Door, at: int, value: str) -> None:
        door.pack(U32, at, ord(value))

    def lift(self, door: Door, words: Sequence[int], i: int) -> str:
        return _character(words[i] & LOW32)

    def lower(self, door: Door, value: str) -> list[int]:
        return [ord(value)]


def _character(code: int) -> str:
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise AbiViolation("the guest passed a char that is no Unicode scalar value")
    return chr(code)


class _Pointed(Codec):
    """What is a pointer and a length: strings and lists."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(8, 4, ("i32", "i32"))

    def load(self, door: Door, at: int) -> Any:
        pointer, length = door.unpack(_POINTER, at)
        return self._read(door, pointer, length)

    def store(self, door: Door, at: int, value: Any) -> None:
        pointer, length = self._write(door, value)
        door.pack(_POINTER, at, pointer, length)

    def lift(self, door: Door, words: Sequence[int], i: int) -> Any:
        return self._read(door, words[i] & LOW32, words[i + 1] & LOW32)

    def lower(self, door: Door, value: Any) -> list[int]:
        return list(self._write(door, value))

    @abstractmethod
    def _read(self, door: Door, pointer: int, length: int) -> Any:
        """The value whose elements stand at `pointer`."""

    @abstractmethod
    def _write(self, door: Door, value: Any) -> tuple[int, int]:
        """Allocate and write the elements; their pointer and length."""


class Bytes(_Pointed):
    __slots__ = ()

    def _read(self, door: Door, pointer: int, length: int) -> bytes:
        return bytes(door.take(pointer, length))

    def _write(self, door: Door, value: bytes) -> tuple[int, int]:
        at = door.allocate(1, len(value))
        door.view(at, len(value))[:] = value
        return at, len(value)


class String(Bytes):
    __slots__ = ()

    def _read(self, door: Door, pointer: int, length: int) -> str:  # type: ignore[override]
        try:
            return str(door.take(pointer, length), "utf-8")
        except UnicodeDecodeError:
            raise AbiViolation("the guest passed a string that is not UTF-8") from None

    def _write(self, door: Door, value: str) -> tuple[int, int]:  # type: ignore[override]
        return super()._write(door, value.encode())


class List(_Pointed):
    __slots__ = ("_element",)

    def __init__(self, element: Codec) -> None:
        super().__init__()
        self._element = element

    def _read(self, door: Door, pointer: int, length: int) -> list[Any]:
        element = self._element
        check_aligned(pointer, element.align)
        door.spend(length * max(element.size, ELEMENT_COST_BYTES))
        door.view(pointer, length * element.size)
        return [element.load(door, pointer + i * element.size) for i in range(length)]

    def _write(self, door: Door, value: Sequence[Any]) -> tuple[int, int]:
        element = self._element
        at = door.allocate(element.align, len(value) * element.size)
        for i, item in enumerate(value):
            element.store(door, at + i * element.size, item)
        return at, len(value)
