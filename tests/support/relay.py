"""A guest that makes any call of one interface of the ABI, with any values, in either lane.

Its hook is told which import to call, with which core values, and which bytes to have in its memory for them;
it answers with the bytes that the host has written.  Arguments are lowered and results lifted here, by the
specification (`canonical`) and not by the host, so a codec that errs is seen even where it errs both ways.

Behind the imports stand fakes that note what arrived and answer what they are told (`Relay.call`), or, with a
context, the factors themselves.  A handle among arguments or results is written `New(kind)`: the relay makes
one, and reads it back as that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

from aos_runtime.host import Code, Err, GuestContext, GuestTrap, HostEngine, Instance, linker, wit
from aos_runtime.host.boundary import Case
from aos_runtime.host.code import compile_component
from aos_runtime.host.factors import FACTORS, Published
from aos_runtime.host.factors.ipc import UNKNOWN_PREFIX
from aos_runtime.host.resources import Resource
from tests.support import abi, canonical
from tests.support.abi import Function, NamedHandle
from tests.support.canonical import Image
from tests.support.guests import IPC, Recorder, component_of, guest_text, in_component_lane, world_of

RELAY = "astrid:relay/host@1.0.0"
PUBLISH = (IPC, "publish")
LANES = ("edge", "component")
AREA, AREA_BYTES = 1024, 2048
MANY_HANDLES = 500
UNKNOWN_KIND = "unknown"
"""Of a handle that the guest was not given."""
IMAGE_AT = 8 << 20
MEMORY_BYTES = 10 << 20
_HEADER = struct.Struct("<IIII")

MORE = """
 (global $mark (mut i32) (i32.const 0))
 (global $lie (mut i32) (i32.const 0))
 (func $digit (param i32) (result i32)
  (i32.add (local.get 0) (select (i32.const 48) (i32.const 87) (i32.lt_u (local.get 0) (i32.const 10)))))
 ;; Writes n bytes from `from` as hexadecimal digits to `to`.
 (func $hex (param $from i32) (param $n i32) (param $to i32) (local $b i32)
  (block $done (loop $next
   (br_if $done (i32.eqz (local.get $n)))
   (local.set $b (i32.load8_u (local.get $from)))
   (i32.store8 (local.get $to) (call $digit (i32.shr_u (local.get $b) (i32.const 4))))
   (i32.store8 offset=1 (local.get $to) (call $digit (i32.and (local.get $b) (i32.const 15))))
   (local.set $from (i32.add (local.get $from) (i32.const 1)))
   (local.set $to (i32.add (local.get $to) (i32.const 2)))
   (local.set $n (i32.sub (local.get $n) (i32.const 1)))
   (br $next))))"""
REALLOC = "(if (global.get $lie) (then (return (global.get $lie))))"
HOOK = f"""
 ;; With an action: to return the pointer that the payload begins with, over a record that follows there.
 (if (local.get $action_size) (then
  (memory.copy (i32.const 16) (i32.add (local.get $payload) (i32.const 4)) (i32.const 20))
  (return (i32.load (local.get $payload)))))
 ;; The payload: which import, where its memory image lies in the payload, its size, what realloc
 ;; shall answer meanwhile, then the core values.
 (memory.copy (i32.const {IMAGE_AT})
  (i32.add (local.get $payload) (i32.load offset=4 (local.get $payload)))
  (i32.load offset=8 (local.get $payload)))
 (memory.fill (i32.const {AREA}) (i32.const 0) (i32.const {AREA_BYTES}))
 (local.set $i (i32.load (local.get $payload)))
 (global.set $mark (global.get $heap))
 (global.set $lie (i32.load offset=12 (local.get $payload)))
 %(calls)s
 (global.set $lie (i32.const 0))
 ;; The answer: where the heap began, the result area, and what the host had allocated.
 (i32.store (i32.const {AREA - 4}) (global.get $mark))
 (local.set $i (i32.sub (global.get $heap) (global.get $mark)))
 (local.set $payload (call $realloc (i32.const 0) (i32.const 0) (i32.const 1)
  (i32.shl (i32.add (local.get $i) (i32.const {AREA_BYTES + 4})) (i32.const 1))))
 (call $hex (i32.const {AREA - 4}) (i32.const {AREA_BYTES + 4}) (local.get $payload))
 (call $hex (global.get $mark) (local.get $i)
  (i32.add (local.get $payload) (i32.const {2 * (AREA_BYTES + 4)})))
 (i32.store (i32.const 16) (i32.const 64)) (i32.store (i32.const 20) (i32.const 0))
 (i32.store8 (i32.const 24) (i32.const 1)) (i32.store (i32.const 28) (local.get $payload))
 (i32.store (i32.const 32) (i32.shl (i32.add (local.get $i) (i32.const {AREA_BYTES + 4})) (i32.const 1)))
 (i32.const 16)"""


class New(NamedTuple):
    """A handle of a fresh resource of this kind."""

    kind: str


@dataclass
class Thing:
    """A resource that counts."""

    closes: int = 0

    def close(self) -> None:
        self.closes += 1


@dataclass
class Script:
    """What the fakes of one relay do and saw."""

    answer: Any = None
    result: wit.Type | None = None
    seen: list[tuple[Any, ...]] = field(default_factory=list)
    given: dict[int, str] = field(default_factory=dict)
    """The kind of each handle that the guest was given, by the host's number."""
    make: Callable[[], Resource] = Thing
    """What the next handle stands for."""
    lets_go: bool = False
    """Whether the host lets go of everything before the next call, as at the end of a hook."""

    def publish(self, topic: str, payload: bytes) -> str | None:
        """The port behind the one function that the edge serves itself."""
        self.seen.append((topic, payload.decode()))
        if self.answer is None:
            return None
        return UNKNOWN_PREFIX + self.answer.payload if self.answer.case == "unknown" else self.answer.case

    def fake(self, function: Function) -> Published:
        def run(context: GuestContext, *arguments: Any) -> Any:
            kinds = [kind for _, kind in function.signature.params]
            self.seen.append(
                tuple(
                    _rewrite(kind, value, self._name_given)
                    for kind, value in zip(kinds, arguments, strict=True)
                )
            )
            return _rewrite(
                function.signature.result, self.answer, lambda _kind, one: self.give(context, one)
            )

        return Published(run, abi.nameless(function.signature))

    def giver(self, function: Function, kind: str) -> Published:
        return Published(lambda context: self.give(context, New(kind)), abi.nameless(function.signature))

    def give(self, context: GuestContext, new: New) -> int:
        handle = context.resources.add(new.kind, self.make())
        assert handle is not None
        self.given[handle] = new.kind
        return handle

    def _name_given(self, _kind: NamedHandle, handle: int) -> New:
        return New(self.given.get(handle, UNKNOWN_KIND))


class Outcome(NamedTuple):
    """One call: what the host saw, and what came back to the guest or how it ended."""

    seen: tuple[Any, ...] | None
    result: Any
    stopped: str | None = None


class Relay:
    """The guest for one interface in one lane, and the fakes behind it."""

    def __init__(
        self,
        engine: HostEngine,
        interface: str,
        lane: str,
        *,
        is_built: bool = True,
        context: Callable[[], GuestContext] | None = None,
    ) -> None:
        """Not `is_built`: no function of the interface is there.  With `context`, which makes one, the
        factors themselves are.
        """
        self.interface = interface
        self._context = context
        self.functions = [one for one in (*abi.functions(), *abi.zoo()) if one.interface == interface]
        self._kinds = sorted({kind for one in self.functions for kind in _kinds_in(one.signature)})
        self._calls = [
            *self.functions,
            *map(_giver, self._kinds),
            *(_drop(interface, kind) for kind in self._kinds),
        ]
        self.script = Script()
        self.recorder = Recorder()
        self.recorder.answers = self.script.publish
        self.code = self._compile(engine, lane, is_built)
        self.instance: Instance | None = None

    def call(self, function: Function, arguments: Sequence[Any], answer: Any) -> Outcome:
        """Have the guest call `function`; its fake answers `answer`."""
        try:
            data = self._make(function, arguments, answer, Image(IMAGE_AT), AREA, 0)
            result = _read_answer(function.signature.result, data)
            return Outcome(self._seen(), _rewrite(function.signature.result, result, self._let_go))
        except GuestTrap as trap:
            return Outcome(self._seen(), None, f"{trap.reason}: {trap.message}")

    def lie(
        self,
        function: Function,
        arguments: Sequence[Any],
        answer: Any,
        *,
        image: Image,
        area: int = AREA,
        realloc: int = 0,
    ) -> GuestTrap | None:
        """As `call`, with made-up numbers in it; how it was stopped."""
        return _stopped(lambda: self._make(function, arguments, answer, image, area, realloc))

    def lie_about_its_result(self, pointer: int, record: bytes) -> GuestTrap | None:
        """The hook returns this pointer, with these 20 bytes at 16; how it was stopped."""
        return _stopped(lambda: self._ready().hook(b"x", pointer.to_bytes(4, "little") + record))

    def _make(
        self,
        function: Function,
        arguments: Sequence[Any],
        answer: Any,
        image: Image,
        area: int,
        realloc: int,
    ) -> bytes:
        self.script.seen.clear()
        self.script.answer = answer
        if self.instance is not None and self.instance.context.resources.live > MANY_HANDLES:
            self.close()  # it keeps what it has lent
        pairs = zip(function.signature.params, arguments, strict=True)
        lowered = [
            _rewrite(kind, value, lambda _kind, new: self._acquire(new.kind)) for (_, kind), value in pairs
        ]
        if self.script.lets_go:
            self._ready().context.resources.clear()
        index = self._calls.index(function)
        return self._hook(index, _words(image, function.signature, lowered, area), image, realloc)

    def close(self) -> None:
        if self.instance is not None:
            self.instance.close()
            self.instance = None

    def _seen(self) -> tuple[Any, ...] | None:
        return self.script.seen[0] if self.script.seen else None

    def _acquire(self, kind: str) -> int:
        """A handle that the guest owns, as the guest numbers it."""
        giver = _giver(kind)
        data = self._hook(self._calls.index(giver), [], Image(IMAGE_AT))
        return int(_read_answer(giver.signature.result, data))

    def _let_go(self, kind: NamedHandle, handle: int) -> New:
        """The guest drops what it was given, which the host must see."""
        resources, drop = self._ready().context.resources, _drop(self.interface, kind.resource)
        before = resources.closed
        self._hook(self._calls.index(drop), [handle], Image(IMAGE_AT))
        assert resources.closed == before + 1
        return New(kind.resource)

    def _ready(self) -> Instance:
        if self.instance is None or self.instance.dead:
            self.close()
            make = self._context or (lambda: self.recorder.context(keeps_resources=True))
            self.instance = Instance(self.code, make())
        return self.instance

    def _hook(self, index: int, words: Sequence[int], image: Image, realloc: int = 0) -> bytes:
        body = b"".join(word.to_bytes(8, "little") for word in words)
        header = _HEADER.pack(index, _HEADER.size + len(body), len(image.data), realloc)
        data = self._ready().hook(b"", header + body + bytes(image.data)).data
        assert data is not None
        return bytes.fromhex(data.decode())

    def _compile(self, engine: HostEngine, lane: str, is_built: bool) -> Code:
        built = self.functions if is_built else []
        known = {(one.interface, one.name): self.script.fake(one) for one in built}
        known.update({PUBLISH: FACTORS[PUBLISH]} if PUBLISH in known else {})
        if self._context is not None:
            known = dict(FACTORS)
        for kind in self._kinds:
            giver = _giver(kind)
            known[giver.interface, giver.name] = self.script.giver(giver, kind)
        imports = "".join(_import(i, one) for i, one in enumerate(self._calls))
        calls = "".join(_call(i, one.signature) for i, one in enumerate(self._calls))
        text = guest_text(
            HOOK % {"calls": calls},
            imports=imports,
            realloc=REALLOC,
            more=MORE,
            pages=str(MEMORY_BYTES >> 16),
        )
        interfaces = [self.interface, *([RELAY] if self._kinds else [])]
        world = world_of(*interfaces, packages=abi.packages() + _relay_package(self.interface, self._kinds))
        component = component_of(text, world)
        with mock.patch.object(linker, "FACTORS", known):
            code = compile_component(engine, component if lane == "edge" else in_component_lane(component))
        assert type(code).__name__ == {"edge": "EdgeCode", "component": "ComponentCode"}[lane]
        return code


def _stopped(call: Callable[[], object]) -> GuestTrap | None:
    try:
        call()
        return None
    except GuestTrap as trap:
        return trap


def _words(image: Image, signature: wit.Signature, arguments: Sequence[Any], area: int) -> list[int]:
    params = wit.TupleOf(tuple(kind for _, kind in signature.params))
    core_params, _ = canonical.core_type(signature)
    if len(canonical.flat_of(params)) > canonical.MAX_FLAT_PARAMS:
        at = image.allocate(canonical.align_of(params), canonical.size_of(params))
        canonical.store(image, params, arguments, at)
        words = [at]
    else:
        words = [word for _, word in canonical.lower_flat(image, params, arguments)]
    return [*words, area] if len(words) < len(core_params) else words


def _read_answer(result: wit.Type | None, data: bytes) -> Any:
    """The result, from the area or from what the host allocated at `mark`."""
    if result is None:
        return None
    mark = int.from_bytes(data[:4], "little")
    area, heap = data[4 : 4 + AREA_BYTES], data[4 + AREA_BYTES :]
    if len(canonical.flat_of(result)) == 1:
        return canonical.lift_flat(result, int.from_bytes(area[:8], "little"))
    memory = Image(AREA, area + bytes(mark - AREA - AREA_BYTES) + heap)
    return canonical.load(memory, result, AREA)


def _import(index: int, function: Function) -> str:
    params, results = canonical.core_type(function.signature)
    shape = f"(param {' '.join(params)})" + "".join(f" (result {one})" for one in results)
    return f'(import "{function.interface}" "{function.name}" (func $f{index} {shape}))\n'


def _call(index: int, signature: wit.Signature) -> str:
    params, results = canonical.core_type(signature)
    loads = " ".join(
        f"({kind}.load offset={_HEADER.size + 8 * i} (local.get $payload))" for i, kind in enumerate(params)
    )
    call = f"(call $f{index} {loads})"
    if results:
        call = f"({results[0]}.store (i32.const {AREA}) {call})"
    return f"(if (i32.eq (local.get $i) (i32.const {index})) (then {call}))\n"


def _giver(kind: str) -> Function:
    return Function(RELAY, f"give-{kind}", wit.Signature((), NamedHandle(True, kind)))


def _drop(interface: str, kind: str) -> Function:
    signature = wit.Signature((("self", NamedHandle(True, kind)),), None)
    return Function(abi.home_of(interface, kind), wit.RESOURCE_DROP + kind, signature)


def _relay_package(interface: str, kinds: Sequence[str]) -> str:
    """The interface that gives the guest what no function of its own interface does."""
    if not kinds:
        return ""
    body = "".join(
        f"use {abi.home_of(interface, kind)}.{{{kind} as the-{kind}}};\n give-{kind}: func() -> the-{kind};\n"
        for kind in kinds
    )
    return f"\npackage astrid:relay@1.0.0 {{ interface host {{ {body} }} }}"


def _kinds_in(kind: Any) -> set[str]:
    """The resources that a type or signature has handles of."""
    match kind:
        case NamedHandle():
            return {kind.resource}
        case wit.Signature(params, result):
            return _kinds_in(result).union(*(_kinds_in(one) for _, one in params))
        case wit.ListOf(inner) | wit.Option(inner):
            return _kinds_in(inner)
        case wit.TupleOf(elements):
            return set().union(*map(_kinds_in, elements))
        case wit.Record(named) | wit.Variant(named):
            return set().union(*(_kinds_in(one) for _, one in named))
        case wit.Result(ok, err):
            return _kinds_in(ok) | _kinds_in(err)
    return set()


def without_handles(kind: wit.Type, value: Any) -> Any:
    """The same value with a number for each handle."""
    return _rewrite(kind, value, lambda _kind, _new: 1)


def _rewrite(kind: Any, value: Any, change: Any) -> Any:
    """`value` with `change(handle type, handle)` in place of each handle."""
    match kind:
        case NamedHandle():
            return change(kind, value)
        case wit.ListOf(element) if not isinstance(value, bytes):
            return [_rewrite(element, one, change) for one in value]
        case wit.Record(fields):
            return {name: _rewrite(one, value[name], change) for name, one in fields}
        case wit.TupleOf(elements):
            return tuple(_rewrite(one, item, change) for one, item in zip(elements, value, strict=True))
        case wit.Option(payload) if value is not None:
            if isinstance(payload, wit.Option):
                return (_rewrite(payload, value[0], change),)
            return _rewrite(payload, value, change)
        case wit.Variant(cases):
            return Case(value.name, _rewrite(dict(cases)[value.name], value.payload, change))
        case wit.Result(ok, err):
            if not isinstance(value, Err):
                return _rewrite(ok, value, change)
            if isinstance(err, wit.Variant):
                return Err(value.case, _rewrite(dict(err.cases)[value.case], value.payload, change))
            return value if isinstance(err, wit.Enum) else Err(None, _rewrite(err, value.payload, change))
    return value
