"""Codecs of compound types: records, tuples, and everything that is a discriminant with a payload.

See `codecs` for the rules and for what a value looks like in Python.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from aos_runtime.host.codecs import LOW32, U8, U16, U32, Case, Codec, Err
from aos_runtime.host.door import AbiViolation, Door


class Fields(Codec):
    """Values one after another: records and tuples."""

    __slots__ = ("_fields",)

    def __init__(self, codecs: Sequence[Codec]) -> None:
        self._fields: list[tuple[Codec, int, int]] = []
        size, align = 0, max((codec.align for codec in codecs), default=1)
        flat: list[str] = []
        for codec in codecs:
            size = _align(size, codec.align)
            self._fields.append((codec, size, len(flat)))
            size += codec.size
            flat += codec.flat
        super().__init__(_align(size, align), align, tuple(flat))

    def load(self, door: Door, at: int) -> Any:
        return self._join([codec.load(door, at + offset) for codec, offset, _ in self._fields])

    def store(self, door: Door, at: int, value: Any) -> None:
        for (codec, offset, _), item in zip(self._fields, self._split(value), strict=True):
            codec.store(door, at + offset, item)

    def lift(self, door: Door, words: Sequence[int], i: int) -> Any:
        return self._join([codec.lift(door, words, i + first) for codec, _, first in self._fields])

    def lower(self, door: Door, value: Any) -> list[int]:
        words: list[int] = []
        for (codec, _, _), item in zip(self._fields, self._split(value), strict=True):
            words += codec.lower(door, item)
        return words

    def _join(self, values: list[Any]) -> Any:
        return tuple(values)

    def _split(self, value: Any) -> Sequence[Any]:
        return tuple(value)


class Record(Fields):
    __slots__ = ("_names",)

    def __init__(self, names: Sequence[str], codecs: Sequence[Codec]) -> None:
        super().__init__(codecs)
        self._names = tuple(names)

    def _join(self, values: list[Any]) -> dict[str, Any]:
        return dict(zip(self._names, values, strict=True))

    def _split(self, value: Any) -> Sequence[Any]:
        return [value[name] for name in self._names]


class _Choice(Codec):
    """A discriminant and a payload: variants and all that is one underneath."""

    __slots__ = ("_cases", "_offset", "_tag")

    def __init__(self, cases: Sequence[Codec | None]) -> None:
        self._cases = tuple(cases)
        self._tag = U8 if len(cases) <= 1 << 8 else U16 if len(cases) <= 1 << 16 else U32
        payloads = [case for case in cases if case is not None]
        align = max((self._tag.size, *(case.align for case in payloads)))
        self._offset = _align(self._tag.size, max((case.align for case in payloads), default=1))
        size = self._offset + max((case.size for case in payloads), default=0)
        super().__init__(_align(size, align), align, ("i32", *_join_flat(payloads)))

    def load(self, door: Door, at: int) -> Any:
        index = door.unpack(self._tag, at)[0]
        case = self._case(index)
        return self._wrap(index, None if case is None else case.load(door, at + self._offset))

    def store(self, door: Door, at: int, value: Any) -> None:
        index, payload = self._unwrap(value)
        door.pack(self._tag, at, index)
        case = self._cases[index]
        if case is not None:
            case.store(door, at + self._offset, payload)

    def lift(self, door: Door, words: Sequence[int], i: int) -> Any:
        index = words[i] & LOW32
        case = self._case(index)
        return self._wrap(index, None if case is None else case.lift(door, words, i + 1))

    def lower(self, door: Door, value: Any) -> list[int]:
        index, payload = self._unwrap(value)
        case = self._cases[index]
        words = [index] if case is None else [index, *case.lower(door, payload)]
        return words + [0] * (len(self.flat) - len(words))

    def _case(self, index: int) -> Codec | None:
        if index >= len(self._cases):
            raise AbiViolation("the guest passed a variant with an unknown case")
        return self._cases[index]

    @abstractmethod
    def _wrap(self, index: int, payload: Any) -> Any:
        """The Python value of a case."""

    @abstractmethod
    def _unwrap(self, value: Any) -> tuple[int, Any]:
        """The case and the payload of a Python value."""


class Variant(_Choice):
    __slots__ = ("_index", "_names")

    def __init__(self, names: Sequence[str], cases: Sequence[Codec | None]) -> None:
        super().__init__(cases)
        self._names = tuple(names)
        self._index = {name: i for i, name in enumerate(names)}

    def _wrap(self, index: int, payload: Any) -> Any:
        return Case(self._names[index], payload)

    def _unwrap(self, value: Any) -> tuple[int, Any]:
        name, payload = value
        return self._index[name], payload


class Enum(Variant):
    __slots__ = ()

    def lift(self, door: Door, words: Sequence[int], i: int) -> str:
        index = words[i] & LOW32
        self._case(index)
        return self._names[index]

    def _wrap(self, index: int, payload: Any) -> str:
        return self._names[index]

    def _unwrap(self, value: str) -> tuple[int, Any]:
        return self._index[value], None


class Option(_Choice):
    __slots__ = ("_boxed",)

    def __init__(self, payload: Codec) -> None:
        super().__init__((None, payload))
        self._boxed = isinstance(payload, Option)

    def _wrap(self, index: int, payload: Any) -> Any:
        return None if not index else (payload,) if self._boxed else payload

    def _unwrap(self, value: Any) -> tuple[int, Any]:
        if value is None:
            return 0, None
        return 1, value[0] if self._boxed else value


class Result(_Choice):
    __slots__ = ()

    def _wrap(self, index: int, payload: Any) -> Any:
        if not index:
            return payload
        if isinstance(self._cases[1], Enum):
            return Err(payload)
        return Err(*payload) if isinstance(self._cases[1], Variant) else Err(None, payload)

    def _unwrap(self, value: Any) -> tuple[int, Any]:
        if not isinstance(value, Err):
            return 0, value
        if isinstance(self._cases[1], Enum):
            return 1, value.case
        return 1, (value.case, value.payload) if isinstance(self._cases[1], Variant) else value.payload


class Flags(Codec):
    __slots__ = ("_layout", "_names")

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._layout = U8 if len(names) <= 8 else U16 if len(names) <= 16 else U32
        super().__init__(self._layout.size, self._layout.size, ("i32",))

    def load(self, door: Door, at: int) -> frozenset[str]:
        return self._set(door.unpack(self._layout, at)[0])

    def store(self, door: Door, at: int, value: frozenset[str]) -> None:
        door.pack(self._layout, at, self._bits(value))

    def lift(self, door: Door, words: Sequence[int], i: int) -> frozenset[str]:
        return self._set(words[i] & LOW32)

    def lower(self, door: Door, value: frozenset[str]) -> list[int]:
        return [self._bits(value)]

    def _set(self, bits: int) -> frozenset[str]:
        return frozenset(name for i, name in enumerate(self._names) if bits >> i & 1)

    def _bits(self, value: frozenset[str]) -> int:
        return sum(1 << self._names.index(name) for name in value)


def _align(offset: int, align: int) -> int:
    return (offset + align - 1) // align * align


def _join_flat(payloads: Sequence[Codec]) -> list[str]:
    """The flat form that holds any of these."""
    joined: list[str] = []
    for codec in payloads:
        for i, kind in enumerate(codec.flat):
            if i == len(joined):
                joined.append(kind)
            elif joined[i] != kind:
                joined[i] = "i32" if {joined[i], kind} == {"i32", "f32"} else "i64"
    return joined
