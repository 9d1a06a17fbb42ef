"""Values of interface types: all that a result can be, and random ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

from aos_runtime.host import Err, wit
from aos_runtime.host.boundary import Case
from tests.support.abi import NamedHandle
from tests.support.relay import New

TEXTS = ("", "a", "Zürich", "\0", "\U0001f980 crab", "x" * 300, "tool.v1.execute.x", "e\u0301")
MAX_DEPTH_ITEMS = 4


def arms(kind: wit.Type | None, random_: random.Random) -> Iterator[Any]:
    """A value for each arm of a result: ok, and every error case; of what is no result, some."""
    if not isinstance(kind, wit.Result):
        yield from (None if kind is None else value_of(kind, random_) for _ in range(3))
        return
    yield from (None if kind.ok is None else value_of(kind.ok, random_) for _ in range(3))
    match kind.err:
        case wit.Variant(cases):
            for name, payload in cases:
                yield Err(name, None if payload is None else value_of(payload, random_))
        case wit.Enum(names):
            yield from (Err(name) for name in names)
        case None:
            yield Err(None)
        case other:
            yield Err(None, value_of(other, random_))


def value_of(kind: wit.Type, random_: random.Random) -> Any:
    """A random value; edges are likelier than chance would have them."""
    match kind:
        case wit.Primitive(name):
            return _primitive(name, random_)
        case wit.ListOf(wit.Primitive("u8")):
            return random_.randbytes(random_.choice((0, 1, 2, 7, 64, 1000)))
        case wit.ListOf(element):
            return [value_of(element, random_) for _ in range(random_.choice((0, 1, 1, 2, MAX_DEPTH_ITEMS)))]
        case wit.Record(fields):
            return {name: value_of(field, random_) for name, field in fields}
        case wit.TupleOf(elements):
            return tuple(value_of(element, random_) for element in elements)
        case wit.Variant(cases):
            name, payload = random_.choice(cases)
            return Case(name, None if payload is None else value_of(payload, random_))
        case wit.Enum(names):
            return random_.choice(names)
        case wit.Option(payload):
            if random_.random() < 0.4:
                return None
            value = value_of(payload, random_)
            return (value,) if isinstance(payload, wit.Option) else value
        case wit.Result():
            return random_.choice(list(arms(kind, random_)))
        case wit.Flags(names):
            return frozenset(name for name in names if random_.random() < 0.5)
        case NamedHandle():
            return New(kind.resource)
    raise AssertionError(kind)


def _primitive(name: str, random_: random.Random) -> Any:
    if name == "bool":
        return random_.random() < 0.5
    if name == "string":
        text = random_.choice(TEXTS)
        return text if random_.random() < 0.7 else text + chr(random_.choice((0x7F, 0x80, 0x7FF, 0xFFFD)))
    if name == "char":
        return chr(random_.choice((0, 65, 0xD7FF, 0xE000, 0x10FFFF)))
    if name in ("f32", "f64"):
        value = random_.choice((0.0, -0.0, 1.5, -2.25, float("inf"), random_.uniform(-1e9, 1e9)))
        return struct.unpack("<f", struct.pack("<f", value))[0] if name == "f32" else value
    bits, is_signed = int(name[1:]), name[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return random_.choice((low, high, 0, 1, random_.randint(low, high), min(high, random_.getrandbits(16))))
