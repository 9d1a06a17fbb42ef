"""Codecs of compound values of the component C API, and whole functions of them.

See `values` for the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aos_runtime.host import raw_component as raw
from aos_runtime.host import wit
from aos_runtime.host.codecs import Case, Err
from aos_runtime.host.values import (
    AT,
    KINDS,
    NUMBERS,
    SIZE,
    WORD,
    WORDS,
    Block,
    Bool,
    Bytes,
    Char,
    Crossing,
    List,
    Number,
    String,
    ValueCodec,
    Values,
    read_name,
    write_name,
)


class Tuple(Values):
    __slots__ = ("_elements",)

    def __init__(self, elements: Sequence[ValueCodec]) -> None:
        super().__init__("tuple")
        self._elements = tuple(elements)

    def read(self, crossing: Crossing, block: Block, at: int) -> tuple[Any, ...]:
        return tuple(super().read(crossing, block, at))

    def _all(self, count: int) -> Sequence[ValueCodec]:
        return self._elements


class Record(ValueCodec):
    __slots__ = ("_fields",)

    def __init__(self, fields: Sequence[tuple[str, ValueCodec]]) -> None:
        self._fields = tuple((name, name.encode(), codec) for name, codec in fields)

    def read(self, crossing: Crossing, block: Block, at: int) -> dict[str, Any]:
        count, data = WORDS.unpack_from(block, at + AT)
        inner = raw.bytes_at(data, count * raw.FIELD_BYTES)
        return {
            name: codec.read(crossing, inner, i * raw.FIELD_BYTES + WORDS.size)
            for i, (name, _, codec) in enumerate(self._fields)
        }

    def write(self, crossing: Crossing, block: bytearray, at: int, value: dict[str, Any]) -> None:
        inner = bytearray(len(self._fields) * raw.FIELD_BYTES)
        for i, (name, encoded, codec) in enumerate(self._fields):
            place = i * raw.FIELD_BYTES
            codec.write(crossing, inner, place + WORDS.size, value[name])
            write_name(inner, place, encoded)
        block[at] = KINDS["record"]
        block[at + AT : at + AT + WORDS.size], data = raw.new_fields(len(self._fields))
        raw.fill(data, inner)


class Variant(ValueCodec):
    __slots__ = ("_cases",)

    def __init__(self, cases: Sequence[tuple[str, ValueCodec | None]]) -> None:
        self._cases = dict(cases)

    def read(self, crossing: Crossing, block: Block, at: int) -> Case:
        name = read_name(block, at + AT)
        return Case(name, read_boxed(crossing, block, at + AT + WORDS.size, self._cases[name]))

    def write(self, crossing: Crossing, block: bytearray, at: int, value: Case) -> None:
        name, payload = value
        write_boxed(crossing, block, at + AT + WORDS.size, self._cases[name], payload)
        block[at] = KINDS["variant"]
        write_name(block, at + AT, name.encode())


class Enum(ValueCodec):
    __slots__ = ("_names",)

    def __init__(self, names: Sequence[str]) -> None:
        self._names = {name: name.encode() for name in names}

    def read(self, crossing: Crossing, block: Block, at: int) -> str:
        return read_name(block, at + AT)

    def write(self, crossing: Crossing, block: bytearray, at: int, value: str) -> None:
        encoded = self._names[value]
        block[at] = KINDS["enum"]
        write_name(block, at + AT, encoded)


class Option(ValueCodec):
    __slots__ = ("_is_boxed", "_payload")

    def __init__(self, payload: ValueCodec) -> None:
        self._payload, self._is_boxed = payload, isinstance(payload, Option)

    def read(self, crossing: Crossing, block: Block, at: int) -> Any:
        if not WORD.unpack_from(block, at + AT)[0]:
            return None
        value = read_boxed(crossing, block, at + AT, self._payload)
        return (value,) if self._is_boxed else value

    def write(self, crossing: Crossing, block: bytearray, at: int, value: Any) -> None:
        block[at] = KINDS["option"]
        if value is not None:
            write_boxed(crossing, block, at + AT, self._payload, value[0] if self._is_boxed else value)


class Result(ValueCodec):
    __slots__ = ("_err", "_ok")

    def __init__(self, ok: ValueCodec | None, err: ValueCodec | None) -> None:
        self._ok, self._err = ok, err

    def read(self, crossing: Crossing, block: Block, at: int) -> Any:
        if block[at + AT]:
            return read_boxed(crossing, block, at + 2 * AT, self._ok)
        payload = read_boxed(crossing, block, at + 2 * AT, self._err)
        if isinstance(self._err, Enum):
            return Err(payload)
        return Err(*payload) if isinstance(self._err, Variant) else Err(None, payload)

    def write(self, crossing: Crossing, block: bytearray, at: int, value: Any) -> None:
        if isinstance(value, Err):
            write_boxed(crossing, block, at + 2 * AT, self._err, self._error(value))
        else:
            write_boxed(crossing, block, at + 2 * AT, self._ok, value)
        block[at], block[at + AT] = KINDS["result"], 0 if isinstance(value, Err) else 1

    def _error(self, value: Err) -> Any:
        if isinstance(self._err, Enum):
            return value.case
        return (value.case, value.payload) if isinstance(self._err, Variant) else value.payload


class Flags(ValueCodec):
    __slots__ = ("_names",)

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def read(self, crossing: Crossing, block: Block, at: int) -> frozenset[str]:
        count, data = WORDS.unpack_from(block, at + AT)
        inner = raw.bytes_at(data, count * WORDS.size)
        return frozenset(read_name(inner, i * WORDS.size) for i in range(count))

    def write(self, crossing: Crossing, block: bytearray, at: int, value: frozenset[str]) -> None:
        names = sorted(value, key=self._names.index)
        inner = bytearray(len(names) * WORDS.size)
        for i, name in enumerate(names):
            write_name(inner, i * WORDS.size, name.encode())
        block[at] = KINDS["flags"]
        block[at + AT : at + AT + WORDS.size], data = raw.new_flags(len(names))
        raw.fill(data, inner)


class Handle(ValueCodec):
    __slots__ = ()

    def read(self, crossing: Crossing, block: Block, at: int) -> int:
        return crossing.named(WORD.unpack_from(block, at + AT)[0])

    def write(self, crossing: Crossing, block: bytearray, at: int, value: int) -> None:
        block[at] = KINDS["resource"]
        WORD.pack_into(block, at + AT, crossing.handle(value))


_SIMPLE: dict[str, ValueCodec] = {
    "bool": Bool(),
    "char": Char(),
    "string": String(),
    **{name: Number(name) for name in NUMBERS},
}
_HANDLE = Handle()


def compile_value(kind: wit.Type) -> ValueCodec:
    """The codec of one interface type."""
    match kind:
        case wit.Primitive(name):
            return _SIMPLE[name]
        case wit.ListOf(element):
            return Bytes() if element == wit.Primitive("u8") else List(compile_value(element))
        case wit.Record(fields):
            return Record([(name, compile_value(field)) for name, field in fields])
        case wit.TupleOf(elements):
            return Tuple([compile_value(element) for element in elements])
        case wit.Variant(cases):
            return Variant([(name, compile_payload(case)) for name, case in cases])
        case wit.Enum(names):
            return Enum(names)
        case wit.Option(payload):
            return Option(compile_value(payload))
        case wit.Result(ok, err):
            return Result(compile_payload(ok), compile_payload(err))
        case wit.Flags(names):
            return Flags(names)
        case wit.Handle():
            return _HANDLE


def compile_payload(kind: wit.Type | None) -> ValueCodec | None:
    """The codec of what may be there or not."""
    return None if kind is None else compile_value(kind)


class FunctionValues:
    """One imported function: how its arguments and result cross."""

    __slots__ = ("_params", "_result")

    def __init__(self, signature: wit.Signature) -> None:
        self._params = tuple(compile_value(kind) for _, kind in signature.params)
        self._result = compile_payload(signature.result)

    def lift_arguments(self, crossing: Crossing, address: int) -> list[Any]:
        """The arguments of one call, from the values at `address`."""
        block = raw.bytes_at(address, len(self._params) * SIZE)
        return [codec.read(crossing, block, i * SIZE) for i, codec in enumerate(self._params)]

    def lower_result(self, crossing: Crossing, address: int, value: Any) -> None:
        """Hand `value` to wasmtime in the place at `address`, if there is a result."""
        if self._result is not None:
            block = bytearray(SIZE)
            self._result.write(crossing, block, 0, value)
            raw.fill(address, block)


def read_boxed(crossing: Crossing, block: Block, at: int, codec: ValueCodec | None) -> Any:
    if codec is None:
        return None
    return codec.read(crossing, raw.bytes_at(WORD.unpack_from(block, at)[0], SIZE), 0)


def write_boxed(crossing: Crossing, block: bytearray, at: int, codec: ValueCodec | None, value: Any) -> None:
    if codec is not None:
        inner = bytearray(SIZE)
        codec.write(crossing, inner, 0, value)
        WORD.pack_into(block, at, raw.box(inner))
