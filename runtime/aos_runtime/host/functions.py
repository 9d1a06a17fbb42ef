"""From an interface signature to something that can be called: argument lifting and result lowering.

Source: canonical ABI, `canon lower` of a synchronous import: up to 16 flat parameters are passed as such,
more as one pointer to a tuple; one flat result is returned as such, more through a pointer that the guest
passes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aos_runtime.host import wit
from aos_runtime.host.codecs import (
    LOW32,
    Bool,
    Bytes,
    Char,
    Codec,
    Float,
    Integer,
    List,
    String,
)
from aos_runtime.host.compounds import Enum, Fields, Flags, Option, Record, Result, Variant
from aos_runtime.host.door import Door, check_aligned

MAX_FLAT_PARAMS = 16
MAX_FLAT_RESULTS = 1

_PRIMITIVES: dict[str, Codec] = {
    "bool": Bool(),
    "char": Char(),
    "string": String(),
    "f32": Float(32),
    "f64": Float(64),
    **{f"s{bits}": Integer(bits, signed=True) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": Integer(bits, signed=False) for bits in (8, 16, 32, 64)},
}
_HANDLE = Integer(32, signed=False)


def compile_type(kind: wit.Type) -> Codec:
    """The codec of one interface type."""
    match kind:
        case wit.Primitive(name):
            return _PRIMITIVES[name]
        case wit.ListOf(element):
            return Bytes() if element == wit.Primitive("u8") else List(compile_type(element))
        case wit.Record(fields):
            return Record([name for name, _ in fields], [compile_type(field) for _, field in fields])
        case wit.TupleOf(elements):
            return Fields([compile_type(element) for element in elements])
        case wit.Variant(cases):
            return Variant([name for name, _ in cases], [_compile_payload(case) for _, case in cases])
        case wit.Enum(names):
            return Enum(names, [None] * len(names))
        case wit.Option(payload):
            return Option(compile_type(payload))
        case wit.Result(ok, err):
            return Result((_compile_payload(ok), _compile_payload(err)))
        case wit.Flags(names):
            return Flags(names)
        case wit.Handle():
            return _HANDLE


def _compile_payload(kind: wit.Type | None) -> Codec | None:
    return None if kind is None else compile_type(kind)


class FunctionCodec:
    """One imported function: its core type, and how its arguments and result cross.

    `words` in its methods has exactly one word a core parameter, the result pointer last.
    """

    __slots__ = ("_area", "_params", "_result", "_spilled", "core_params", "core_results")

    def __init__(self, signature: wit.Signature) -> None:
        self._params = Fields([compile_type(kind) for _, kind in signature.params])
        self._result = _compile_payload(signature.result)
        self._spilled = len(self._params.flat) > MAX_FLAT_PARAMS
        flat_result = () if self._result is None else self._result.flat
        self._area = self._result if len(flat_result) > MAX_FLAT_RESULTS else None
        params = ("i32",) if self._spilled else self._params.flat
        self.core_params = params if self._area is None else (*params, "i32")
        self.core_results = flat_result if self._area is None else ()

    def lift_arguments(self, door: Door, words: Sequence[int]) -> Any:
        """The arguments of one call, a tuple; `words` holds one 64-bit word a core parameter.

        A result pointer is checked here too: a lie about it must not come out after the call had its effect.
        """
        if self._area is not None:
            _check_area(door, words[-1], self._area)
        if not self._spilled:
            return self._params.lift(door, words, 0)
        _check_area(door, words[0], self._params)
        return self._params.load(door, words[0] & LOW32)

    def lower_result(self, door: Door, words: Sequence[int], value: Any) -> int | None:
        """Hand `value` to the guest: through its result pointer, or as the word returned here."""
        if self._area is not None:
            self._area.store(door, words[-1] & LOW32, value)
            return None
        return None if self._result is None else self._result.lower(door, value)[0]


def _check_area(door: Door, word: int, codec: Codec) -> None:
    at = word & LOW32
    check_aligned(at, codec.align)
    door.view(at, codec.size)
