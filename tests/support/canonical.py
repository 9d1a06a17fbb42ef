"""The canonical ABI written down a second time, straight from its specification, to hold the host's against.

Slow and plain: everything is a record or a variant (`despecialized`), as in CanonicalABI.md.  Values are
spelled as the host spells them.  Nothing of the host's codecs is used here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from aos_runtime.host import wit
from aos_runtime.host.boundary import Case, Err

MAX_FLAT_PARAMS = 16
Flat = tuple[str, int]
"""A core value: its type and its bits."""

_NUMBERS = {
    **{f"s{bits}": (code.lower(), bits // 8) for bits, code in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))},
    **{f"u{bits}": (code, bits // 8) for bits, code in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))},
    "f32": ("f", 4),
    "f64": ("d", 8),
    "bool": ("?", 1),
}


class Record:
    """Fields by name, in order."""

    def __init__(self, fields: Sequence[tuple[str, wit.Type]]) -> None:
        self.fields = fields


class Variant:
    """Cases by name, in order."""

    def __init__(self, cases: Sequence[tuple[str, wit.Type | None]]) -> None:
        self.cases = cases


def despecialized(kind: wit.Type) -> wit.Type | Record | Variant:
    match kind:
        case wit.Record(fields):
            return Record(fields)
        case wit.TupleOf(elements):
            return Record([(str(i), element) for i, element in enumerate(elements)])
        case wit.Variant(cases):
            return Variant(cases)
        case wit.Enum(names):
            return Variant([(name, None) for name in names])
        case wit.Option(payload):
            return Variant([("none", None), ("some", payload)])
        case wit.Result(ok, err):
            return Variant([("ok", ok), ("error", err)])
    return kind


def align_of(kind: wit.Type) -> int:
    match despecialized(kind):
        case wit.Primitive("string") | wit.Primitive("char") | wit.ListOf() | wit.Handle():
            return 4
        case wit.Primitive(name):
            return _NUMBERS[name][1]
        case wit.Flags(names):
            return _bytes_for(len(names), bits=True)
        case Record() as record:
            return max((align_of(field) for _, field in record.fields), default=1)
        case Variant() as variant:
            return max(_bytes_for(len(variant.cases)), _payload_align(variant))
    raise AssertionError(kind)


def size_of(kind: wit.Type) -> int:
    match despecialized(kind):
        case wit.Primitive("string") | wit.ListOf():
            return 8
        case wit.Primitive("char") | wit.Handle():
            return 4
        case wit.Primitive(name):
            return _NUMBERS[name][1]
        case wit.Flags(names):
            return _bytes_for(len(names), bits=True)
        case Record() as record:
            size = 0
            for _, field in record.fields:
                size = _up(size, align_of(field)) + size_of(field)
            return _up(size, align_of(kind))
        case Variant() as variant:
            start = _up(_bytes_for(len(variant.cases)), _payload_align(variant))
            payload = max((size_of(case) for _, case in variant.cases if case is not None), default=0)
            return _up(start + payload, align_of(kind))
    raise AssertionError(kind)


def flat_of(kind: wit.Type) -> list[str]:
    match despecialized(kind):
        case wit.Primitive("string") | wit.ListOf():
            return ["i32", "i32"]
        case wit.Primitive("s64") | wit.Primitive("u64"):
            return ["i64"]
        case wit.Primitive("f32") | wit.Primitive("f64") as number:
            return [number.name]
        case wit.Primitive() | wit.Handle() | wit.Flags():
            return ["i32"]
        case Record() as record:
            return [one for _, field in record.fields for one in flat_of(field)]
        case Variant() as variant:
            joined: list[str] = []
            for _, case in variant.cases:
                for i, one in enumerate(flat_of(case) if case is not None else []):
                    if i == len(joined):
                        joined.append(one)
                    elif joined[i] != one:
                        joined[i] = "i32" if {joined[i], one} == {"i32", "f32"} else "i64"
            return ["i32", *joined]
    raise AssertionError(kind)


def core_type(signature: wit.Signature) -> tuple[list[str], list[str]]:
    """Core parameters and results of the lowered import."""
    params = [one for _, kind in signature.params for one in flat_of(kind)]
    results = [] if signature.result is None else flat_of(signature.result)
    if len(params) > MAX_FLAT_PARAMS:
        params = ["i32"]
    return (params, results) if len(results) < 2 else ([*params, "i32"], [])


class Image:
    """A piece of guest memory that grows from `base` on."""

    def __init__(self, base: int, data: bytes = b"") -> None:
        self.base = base
        self.data = bytearray(data)

    def allocate(self, align: int, size: int) -> int:
        self.data += bytes(_up(len(self.data), align) - len(self.data) + size)
        return self.base + len(self.data) - size

    def point(self, at: int, count: int, kind: wit.Type) -> tuple[int, int]:
        """What is written for a list of `kind` that lies at `at`; a lie would be told here."""
        return at, count

    def write(self, at: int, data: bytes) -> None:
        self.data[at - self.base : at - self.base + len(data)] = data

    def read(self, at: int, size: int) -> bytes:
        found = bytes(self.data[at - self.base : at - self.base + size]) if size else b""
        assert len(found) == size and (not size or at >= self.base), "the pointer leads nowhere"
        return found


def store(image: Image, kind: wit.Type, value: Any, at: int) -> None:
    assert at % align_of(kind) == 0
    match despecialized(kind):
        case wit.Primitive("string"):
            image.write(at, struct.pack("<II", *_store_bytes(image, value.encode())))
        case wit.Primitive("char"):
            image.write(at, struct.pack("<I", ord(value)))
        case wit.Primitive(name):
            image.write(at, struct.pack("<" + _NUMBERS[name][0], value))
        case wit.ListOf() as many:
            image.write(at, struct.pack("<II", *_store_list(image, many.element, value)))
        case wit.Handle():
            image.write(at, struct.pack("<I", value))
        case wit.Flags(names):
            image.write(at, _bits(names, value).to_bytes(size_of(kind), "little"))
        case Record() as record:
            offset = 0
            for (_, field), item in zip(record.fields, fields_of(kind, value), strict=True):
                offset = _up(offset, align_of(field))
                store(image, field, item, at + offset)
                offset += size_of(field)
        case Variant() as variant:
            index, payload = case_of(kind, value)
            tag = _bytes_for(len(variant.cases))
            image.write(at, index.to_bytes(tag, "little"))
            case = variant.cases[index][1]
            if case is not None:
                store(image, case, payload, at + _up(tag, _payload_align(variant)))


def load(image: Image, kind: wit.Type, at: int) -> Any:
    assert at % align_of(kind) == 0
    match despecialized(kind):
        case wit.Primitive("string"):
            return image.read(*struct.unpack("<II", image.read(at, 8))).decode()
        case wit.Primitive("char"):
            return chr(struct.unpack("<I", image.read(at, 4))[0])
        case wit.Primitive(name):
            return struct.unpack("<" + _NUMBERS[name][0], image.read(at, size_of(kind)))[0]
        case wit.ListOf() as many:
            return _load_list(image, many.element, *struct.unpack("<II", image.read(at, 8)))
        case wit.Handle():
            return struct.unpack("<I", image.read(at, 4))[0]
        case wit.Flags(names):
            bits = int.from_bytes(image.read(at, size_of(kind)), "little")
            return frozenset(name for i, name in enumerate(names) if bits >> i & 1)
        case Record() as record:
            values, offset = [], 0
            for _, field in record.fields:
                offset = _up(offset, align_of(field))
                values.append(load(image, field, at + offset))
                offset += size_of(field)
            return value_of_fields(kind, values)
        case Variant() as variant:
            tag = _bytes_for(len(variant.cases))
            index = int.from_bytes(image.read(at, tag), "little")
            case = variant.cases[index][1]
            start = at + _up(tag, _payload_align(variant))
            return value_of_case(kind, index, None if case is None else load(image, case, start))
    raise AssertionError(kind)


def lower_flat(image: Image, kind: wit.Type, value: Any) -> list[Flat]:
    match despecialized(kind):
        case wit.Primitive("string"):
            return [("i32", word) for word in _store_bytes(image, value.encode())]
        case wit.ListOf() as many:
            return [("i32", word) for word in _store_list(image, many.element, value)]
        case wit.Primitive("char"):
            return [("i32", ord(value))]
        case wit.Primitive("f32") | wit.Primitive("f64") as number:
            size = _NUMBERS[number.name][1]
            bits = struct.pack("<" + _NUMBERS[number.name][0], value)
            return [(number.name, int.from_bytes(bits[:size], "little"))]
        case wit.Primitive(name):
            core = "i64" if name.endswith("64") else "i32"
            return [(core, int(value) % (1 << int(core[1:])))]
        case wit.Handle():
            return [("i32", value)]
        case wit.Flags(names):
            return [("i32", _bits(names, value))]
        case Record() as record:
            pairs = zip(record.fields, fields_of(kind, value), strict=True)
            return [one for (_, field), item in pairs for one in lower_flat(image, field, item)]
        case Variant() as variant:
            index, payload = case_of(kind, value)
            case = variant.cases[index][1]
            words = [] if case is None else lower_flat(image, case, payload)
            kinds = flat_of(kind)
            bits = [index, *(word for _, word in words)] + [0] * (len(kinds) - 1 - len(words))
            return list(zip(kinds, bits, strict=True))
    raise AssertionError(kind)


def lift_flat(kind: wit.Type, bits: int) -> Any:
    """The value whose flat form is this one word: what a function returns without a result area."""
    image = Image(0, bits.to_bytes(8, "little"))
    match despecialized(kind):
        case Variant():
            return value_of_case(kind, bits & 0xFFFFFFFF, None)
        case Record() as record:
            return value_of_fields(kind, [lift_flat(field, bits) for _, field in record.fields])
    return load(image, kind, 0)


def fields_of(kind: wit.Type, value: Any) -> list[Any]:
    if isinstance(kind, wit.Record):
        return [value[name] for name, _ in kind.fields]
    return list(value)


def value_of_fields(kind: wit.Type, values: list[Any]) -> Any:
    if isinstance(kind, wit.Record):
        return {name: value for (name, _), value in zip(kind.fields, values, strict=True)}
    return tuple(values)


def case_of(kind: wit.Type, value: Any) -> tuple[int, Any]:
    match kind:
        case wit.Variant(cases):
            return [name for name, _ in cases].index(value[0]), value[1]
        case wit.Enum(names):
            return names.index(value), None
        case wit.Option(payload):
            inner = value[0] if isinstance(payload, wit.Option) and value is not None else value
            return (0, None) if value is None else (1, inner)
        case wit.Result(_, err):
            if not isinstance(value, Err):
                return 0, value
            if isinstance(err, wit.Variant):
                return 1, (value.case, value.payload)
            return 1, value.case if isinstance(err, wit.Enum) else value.payload
    raise AssertionError(kind)


def value_of_case(kind: wit.Type, index: int, payload: Any) -> Any:
    match kind:
        case wit.Variant(cases):
            return Case(cases[index][0], payload)
        case wit.Enum(names):
            return names[index]
        case wit.Option(inner):
            return None if index == 0 else (payload,) if isinstance(inner, wit.Option) else payload
        case wit.Result(_, err):
            if index == 0:
                return payload
            if isinstance(err, wit.Variant):
                return Err(payload[0], payload[1])
            return Err(payload) if isinstance(err, wit.Enum) else Err(None, payload)
    raise AssertionError(kind)


def _store_bytes(image: Image, data: bytes) -> tuple[int, int]:
    at = image.allocate(1, len(data))
    image.write(at, data)
    return image.point(at, len(data), wit.Primitive("u8"))


def _store_list(image: Image, element: wit.Type, values: Any) -> tuple[int, int]:
    if element == wit.Primitive("u8"):
        return _store_bytes(image, values)
    size = size_of(element)
    at = image.allocate(align_of(element), size * len(values))
    for i, value in enumerate(values):
        store(image, element, value, at + i * size)
    return image.point(at, len(values), element)


def _load_list(image: Image, element: wit.Type, at: int, count: int) -> Any:
    if element == wit.Primitive("u8"):
        return image.read(at, count)
    size = size_of(element)
    return [load(image, element, at + i * size) for i in range(count)]


def _payload_align(variant: Variant) -> int:
    return max((align_of(case) for _, case in variant.cases if case is not None), default=1)


def _bytes_for(count: int, *, bits: bool = False) -> int:
    if bits:
        return 1 if count <= 8 else 2 if count <= 16 else 4
    return 1 if count <= 1 << 8 else 2 if count <= 1 << 16 else 4


def _bits(names: Sequence[str], value: frozenset[str]) -> int:
    return sum(1 << i for i, name in enumerate(names) if name in value)


def _up(offset: int, align: int) -> int:
    return -(-offset // align) * align
