"""The canonical ABI: against wasmtime's own, against hand-made bytes, and there and back again."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wasmtime import Engine, Store
from wasmtime import component as wc

from aos_runtime.host import wit
from aos_runtime.host.codecs import Case, Err
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.functions import FunctionCodec, compile_type
from tests.support.guests import component_of

P = wit.Primitive
ZOO = wit.Record(
    (
        ("yes", P("bool")),
        ("tiny", P("s8")),
        ("big", P("u64")),
        ("letter", P("char")),
        ("ratio", P("f64")),
        ("name", P("string")),
        ("blob", wit.ListOf(P("u8"))),
        ("small-ratio", P("f32")),
        ("words", wit.ListOf(P("string"))),
        ("pair", wit.TupleOf((P("u8"), P("s64"), P("u16")))),
        ("maybe", wit.Option(P("u64"))),
        ("maybe-maybe", wit.Option(wit.Option(P("u16")))),
        ("outcome", wit.Result(P("u32"), P("string"))),
        ("empty-outcome", wit.Result(None, None)),
        (
            "shape",
            wit.Variant((("dot", None), ("line", P("u8")), ("area", P("f64")), ("label", P("string")))),
        ),
        ("colour", wit.Enum(("red", "green", "blue"))),
        ("marks", wit.Flags(tuple(f"m{i}" for i in range(11)))),
        ("shapes", wit.ListOf(wit.TupleOf((P("u8"), P("u32"))))),
        ("last", P("s16")),
    )
)
WIT = """package test:zoo;
world zoo {
  variant shape { dot, line(u8), area(f64), label(string) }
  enum colour { red, green, blue }
  flags marks { m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10 }
  record animal {
    yes: bool, tiny: s8, big: u64, letter: char, ratio: f64, name: string, blob: list<u8>, small-ratio: f32,
    words: list<string>, pair: tuple<u8, s64, u16>, maybe: option<u64>, maybe-maybe: option<option<u16>>,
    outcome: result<u32, string>, empty-outcome: result, shape: shape, colour: colour, marks: marks,
    shapes: list<tuple<u8, u32>>, last: s16,
  }
  export put: func(animal: animal) -> u32;
  export get: func() -> animal;
  export peek: func(at: u32, size: u32) -> list<u8>;
  export poke: func(at: u32, data: list<u8>);
  export reset: func();
}"""
ANIMAL_AT = 16384
CORE = f"""(module
 (memory (export "memory") 2)
 (global $heap (mut i32) (i32.const 32768))
 (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $p i32)
  (local.set $p (i32.and
    (i32.add (global.get $heap) (i32.sub (local.get 2) (i32.const 1))) (i32.sub (i32.const 0) (local.get 2))))
  (global.set $heap (i32.add (local.get $p) (local.get 3))) (local.get $p))
 (func (export "put") (param i32) (result i32) (local.get 0))
 (func (export "get") (result i32) (i32.const {ANIMAL_AT}))
 (func (export "peek") (param i32 i32) (result i32)
  (i32.store (i32.const 8) (local.get 0)) (i32.store (i32.const 12) (local.get 1)) (i32.const 8))
 (func (export "poke") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (local.get 2)))
 (func (export "reset") (global.set $heap (i32.const 32768))))"""


@dataclass
class Bench:
    """A door over plain bytes, allocating upwards; what it lifts is bounded like a guest's."""

    data: bytearray
    heap: int = 0
    allocations: list[tuple[int, int]] = field(default_factory=list)

    def view(self, at: int, size: int) -> memoryview:
        if at + size > len(self.data):
            raise AbiViolation("outside")
        return memoryview(self.data)[at : at + size]

    def unpack(self, layout: struct.Struct, at: int) -> tuple[Any, ...]:
        return layout.unpack(self.view(at, layout.size))

    def pack(self, layout: struct.Struct, at: int, *values: Any) -> None:
        layout.pack_into(self.view(at, layout.size), 0, *values)

    def allocate(self, align: int, size: int) -> int:
        at = -(-self.heap // align) * align
        self.heap = at + size
        self.allocations.append((align, size))
        return at

    take = view

    def spend(self, size: int) -> None:
        pass


def values_of(kind: wit.Type) -> st.SearchStrategy[Any]:
    """Every Python value of an interface type."""
    match kind:
        case P(name):
            return _primitive_values(name)
        case wit.ListOf(P("u8")):
            return st.binary(max_size=40)
        case wit.ListOf(element):
            return st.lists(values_of(element), max_size=5)
        case wit.Record(fields):
            return st.fixed_dictionaries({name: values_of(field) for name, field in fields})
        case wit.TupleOf(elements):
            return st.tuples(*(values_of(element) for element in elements))
        case wit.Variant(cases):
            return st.one_of(*(_payloads(case).map(lambda p, n=name: Case(n, p)) for name, case in cases))
        case wit.Enum(names):
            return st.sampled_from(names)
        case wit.Option(wit.Option() as inner):
            return st.none() | values_of(inner).map(lambda value: (value,))
        case wit.Option(payload):
            return st.none() | values_of(payload)
        case wit.Result(ok, err):
            return _payloads(ok) | _payloads(err).map(lambda p: Err(None, p))
        case wit.Flags(names):
            return st.frozensets(st.sampled_from(names))
    raise AssertionError(kind)


def _payloads(kind: wit.Type | None) -> st.SearchStrategy[Any]:
    return st.none() if kind is None else values_of(kind)


def _primitive_values(name: str) -> st.SearchStrategy[Any]:
    if name == "bool":
        return st.booleans()
    if name == "char":
        return st.characters(exclude_categories=("Cs",))
    if name == "string":
        return st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
    if name in ("f32", "f64"):
        return st.floats(width=int(name[1:]), allow_nan=False)  # type: ignore[arg-type]
    bits = int(name[1:])
    return st.integers(*((-(1 << bits - 1), (1 << bits - 1) - 1) if name[0] == "s" else (0, (1 << bits) - 1)))


def to_stock(value: Any, kind: wit.Type) -> Any:
    """The value as wasmtime's own binding wants it."""
    match kind:
        case wit.Record(fields):
            return SimpleNamespace(**{name: to_stock(value[name], field) for name, field in fields})
        case wit.TupleOf(elements):
            return tuple(to_stock(item, element) for item, element in zip(value, elements, strict=True))
        case wit.ListOf(element) if element != P("u8"):
            return [to_stock(item, element) for item in value]
        case wit.Variant():
            return value.payload  # the binding tells cases apart by the payload's class where it can
        case wit.Option(wit.Option()):
            return wc.Variant("none") if value is None else wc.Variant("some", value[0])
        case wit.Result(None, None):
            return wc.Variant("ok") if value is None else wc.Variant("err")
        case wit.Result():
            return value.payload if isinstance(value, Err) else value
        case wit.Flags():
            return set(value)
    return value


_SHAPES = {type(None): "dot", int: "line", float: "area", str: "label"}


def from_stock(value: Any, kind: wit.Type) -> Any:
    """Inverse of `to_stock`."""
    match kind:
        case wit.Record(fields):
            return {name: from_stock(getattr(value, name), field) for name, field in fields}
        case wit.TupleOf(elements):
            return tuple(from_stock(item, element) for item, element in zip(value, elements, strict=True))
        case wit.ListOf(element) if element != P("u8"):
            return [from_stock(item, element) for item in value]
        case wit.Variant():
            return Case(_SHAPES[type(value)], value)
        case wit.Option(wit.Option()):
            return None if value.tag == "none" else (value.payload,)
        case wit.Result(None, None):
            return None if value.tag == "ok" else Err(None)
        case wit.Result():
            return Err(None, value) if isinstance(value, str) else value
        case wit.Flags():
            return frozenset(value)
    return value


class Zoo:
    """A component on wasmtime's own component lane, whose memory can be read and written."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.store = Store(self.engine)
        component = wc.Component(self.engine, component_of(CORE, WIT))
        self._instance = wc.Linker(self.engine).instantiate(self.store, component)

    def call(self, name: str, *arguments: Any) -> Any:
        function = self._instance.get_func(self.store, name)
        assert function is not None
        result = function(self.store, *arguments)
        function.post_return(self.store)
        return result


@pytest.fixture(scope="module")
def zoo() -> Zoo:
    return Zoo()


@settings(max_examples=25, deadline=None)
@given(value=values_of(ZOO))
def test_what_wasmtime_lowers_is_lifted(zoo: Zoo, value: dict[str, Any]) -> None:
    zoo.call("reset")
    at = zoo.call("put", to_stock(value, ZOO))
    door = Bench(bytearray(zoo.call("peek", 0, 65536)))
    assert compile_type(ZOO).load(door, at) == value


@settings(max_examples=25, deadline=None)
@given(value=values_of(ZOO))
def test_what_is_lowered_wasmtime_lifts(zoo: Zoo, value: dict[str, Any]) -> None:
    codec = compile_type(ZOO)
    door = Bench(bytearray(32768), heap=ANIMAL_AT + codec.size)
    codec.store(door, ANIMAL_AT, value)
    zoo.call("reset")
    zoo.call("poke", ANIMAL_AT, bytes(door.data[ANIMAL_AT : door.heap]))
    assert from_stock(zoo.call("get"), ZOO) == value


@settings(deadline=None)
@given(value=values_of(ZOO))
def test_the_flat_form_there_and_back(value: dict[str, Any]) -> None:
    codec = compile_type(ZOO)
    door = Bench(bytearray(32768))
    words = codec.lower(door, value)
    assert len(words) == len(codec.flat)
    # The upper half of a 32-bit word is noise: lifting must not look at it.
    noisy = [
        word | (0xDEADBEEF << 32 if kind in ("i32", "f32") else 0)
        for word, kind in zip(words, codec.flat, strict=True)
    ]
    assert codec.lift(door, noisy, 0) == value


@pytest.mark.parametrize(
    ("kind", "size", "align", "flat"),
    [
        (P("u8"), 1, 1, ("i32",)),
        (P("u64"), 8, 8, ("i64",)),
        (P("string"), 8, 4, ("i32", "i32")),
        (wit.Record((("a", P("u8")), ("b", P("u64")), ("c", P("u16")))), 24, 8, ("i32", "i64", "i32")),
        (wit.Option(P("u8")), 2, 1, ("i32", "i32")),
        (wit.Option(P("u64")), 16, 8, ("i32", "i64")),
        (wit.Result(None, None), 1, 1, ("i32",)),
        (wit.Result(None, wit.IPC_ERROR), 16, 4, ("i32", "i32", "i32", "i32")),
        (wit.Variant((("a", P("f32")), ("b", P("u32")))), 8, 4, ("i32", "i32")),
        (wit.Variant((("a", P("f32")), ("b", P("f32")))), 8, 4, ("i32", "f32")),
        (wit.Variant((("a", P("f64")), ("b", P("u32")))), 16, 8, ("i32", "i64")),
        (wit.Variant((("a", P("string")), ("b", P("u64")))), 16, 8, ("i32", "i64", "i32")),
        (wit.Enum(tuple(f"e{i}" for i in range(257))), 2, 2, ("i32",)),
        (wit.Flags(("a",)), 1, 1, ("i32",)),
        (wit.Flags(tuple(f"f{i}" for i in range(9))), 2, 2, ("i32",)),
        (wit.Flags(tuple(f"f{i}" for i in range(17))), 4, 4, ("i32",)),
        (wit.Handle(False), 4, 4, ("i32",)),
        (wit.TupleOf(()), 0, 1, ()),
    ],
)
def test_layouts_of_the_canonical_abi(kind: wit.Type, size: int, align: int, flat: tuple[str, ...]) -> None:
    codec = compile_type(kind)
    assert (codec.size, codec.align, codec.flat) == (size, align, flat)


def test_core_types_of_published_functions() -> None:
    publish = FunctionCodec(wit.PUBLISH)
    assert (publish.core_params, publish.core_results) == (("i32",) * 5, ())
    clock = FunctionCodec(wit.Signature((), P("u64")))
    assert (clock.core_params, clock.core_results) == ((), ("i64",))
    many = FunctionCodec(wit.Signature(tuple((f"p{i}", P("u64")) for i in range(17)), P("bool")))
    assert (many.core_params, many.core_results) == (("i32",), ("i32",))
    sixteen = FunctionCodec(wit.Signature(tuple((f"p{i}", P("u8")) for i in range(16)), P("string")))
    assert (sixteen.core_params, sixteen.core_results) == (("i32",) * 17, ())


def test_more_than_sixteen_parameters_come_through_memory() -> None:
    codec = FunctionCodec(wit.Signature(tuple((f"p{i}", P("u16")) for i in range(17)), None))
    door = Bench(bytearray(64))
    door.data[8:42] = struct.pack("<17H", *range(17))
    assert codec.lift_arguments(door, [8]) == tuple(range(17))
    with pytest.raises(AbiViolation, match="misaligned"):
        codec.lift_arguments(door, [9])


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (P("char"), [0xD800], "no Unicode scalar value"),
        (P("char"), [0x110000], "no Unicode scalar value"),
        (wit.Enum(("a",)), [1], "unknown case"),
        (wit.Option(P("u8")), [2, 0], "unknown case"),
        (wit.ListOf(P("u32")), [2, 0], "misaligned"),
        (P("string"), [0, 1], "not UTF-8"),
        (P("string"), [4, 4], "not UTF-8"),
    ],
)
def test_lies_in_flat_values(kind: wit.Type, words: list[int], message: str) -> None:
    door = Bench(bytearray(b"\xff\0\0\0\xed\xa0\x80\0"))
    with pytest.raises(AbiViolation, match=message):
        compile_type(kind).lift(door, words, 0)


@settings(deadline=None)
@given(st.binary(max_size=256), st.lists(st.integers(0, 2**64 - 1), min_size=80, max_size=80))
def test_any_bytes_and_words_lift_or_are_a_lie(data: bytes, words: list[int]) -> None:
    door, codec = Bench(bytearray(data)), compile_type(ZOO)
    with contextlib.suppress(AbiViolation):
        codec.load(door, 0)
    with contextlib.suppress(AbiViolation):
        codec.lift(door, words, 0)


@given(st.integers())
def test_integers_that_do_not_fit_are_never_lowered(value: int) -> None:
    codec, door = compile_type(P("u16")), Bench(bytearray(2))
    if 0 <= value < 65536:
        assert codec.lower(door, value) == [value]
    else:
        with pytest.raises(struct.error):
            codec.lower(door, value)
