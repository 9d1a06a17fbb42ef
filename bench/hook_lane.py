"""One hook through the host over the same guest without a host: what the boundary costs.

Both sides run the same compiled module on the same engine, with epoch, fuel and memory limit on.  The bare
side loops in wasm: a small module allocates and copies the arguments, calls the hook and the post-return, and
stands in for `publish` and `log`, the two imports that a tool call makes; nothing leaves wasm.  Batches of
both sides alternate and the fastest of each counts, since what else the machine does only ever adds time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from wasmtime import Func, Memory, Module
from wasmtime import Instance as CoreInstance

from aos_runtime.capsule.archive import Member
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.host import EdgeCode, GuestContext, HostEngine, Instance, KvSpace
from aos_runtime.host.assembly import open_edge_store
from aos_runtime.host.code import POST_RETURN_EXPORT, compile_component
from aos_runtime.host.component import HOOK_EXPORT
from aos_runtime.host.linker import Binding
from aos_runtime.host.raw import new_host_function, new_trap
from aos_runtime.host.wit import CoreImport
from aos_runtime.names import CapsuleName, PrincipalName

SIZES = (0, 1_000, 10_000, 100_000)
"""Bytes of the argument of a tool call; the request around it has about 100 more."""
BATCHES = 31
BATCH_S = 0.008

_ACTION = b"tool_execute_hello"
_START = 64
_STUBS = """(module
  (type $publish (func (param i32 i32 i32 i32 i32)))
  (table (export "slots") 1 funcref)
  (func (export "publish") (param i32 i32 i32 i32 i32)
    (call_indirect (type $publish)
      (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (i32.const 0)))
  (func (export "log") (param i32 i32 i32)))"""
_LOOP = f"""(module
  (import "guest" "memory" (memory $guest 0))
  (import "guest" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
  (import "guest" "hook" (func $hook (param i32 i32 i32 i32) (result i32)))
  (import "guest" "post_return" (func $post_return (param i32)))
  (import "stubs" "slots" (table 1 funcref))
  (elem (i32.const 0) $publish)
  (memory $window (export "window") 4)
  ;; A publish that always succeeds.
  (func $publish (param i32 i32 i32 i32 i32) (i32.store8 $guest (local.get 4) (i32.const 0)))
  (func $put (param $at i32) (param $n i32) (result i32) (local $p i32)
    (if (i32.eqz (local.get $n)) (then (return (i32.const 1))))
    (local.set $p (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (local.get $n)))
    (memory.copy $guest $window (local.get $p) (local.get $at) (local.get $n))
    (local.get $p))
  (func (export "run") (param $times i32) (param $la i32) (param $lp i32) (local $r i32)
    (loop $again
      (local.set $r (call $hook
        (call $put (i32.const {_START}) (local.get $la)) (local.get $la)
        (call $put (i32.add (i32.const {_START}) (local.get $la)) (local.get $lp)) (local.get $lp)))
      (call $post_return (local.get $r))
      (local.set $times (i32.sub (local.get $times) (i32.const 1)))
      (br_if $again (local.get $times)))))"""


def measure_ratios(members: Iterable[Member]) -> dict[int, float]:
    """Time of a hook over time of the bare guest, by argument size, for the tool `hello` of this archive."""
    component = next(member.data for member in members if member.path.endswith(".wasm"))
    return {size: hooked / bare for size, (hooked, bare) in measure_times(component).items()}


def measure_times(component: bytes) -> dict[int, tuple[float, float]]:
    """Seconds of one hook through the host and of the bare guest, by argument size."""
    engine = HostEngine()
    try:
        code = compile_component(engine, component)
        if not isinstance(code, EdgeCode):
            raise RuntimeError("the tool does not run in the edge lane")
        instance, bare, times = Instance(code, _context()), BareGuest(code), {}
        for size in SIZES:
            payload = _request(size)
            if instance.hook(_ACTION, payload).action != "continue":
                raise RuntimeError("the guest did not answer")
            hooked_s, bare_s = _fastest(_hook_batch(instance, payload), bare.batch(_ACTION, payload))
            times[size] = (hooked_s, bare_s)
        bare.close()
        return times
    finally:
        engine.close()


class BareGuest:
    """The guest with everything that it calls in wasm, looped in wasm."""

    def __init__(self, code: EdgeCode) -> None:
        engine = code.engine.engine
        self._callbacks: list[object] = []
        self._store = open_edge_store(code, lambda: None, self._callbacks, code.engine.settings.memory_bytes)
        self._store.set_fuel(1 << 62)
        stubs = CoreInstance(self._store, Module(engine, _STUBS), []).exports(self._store)
        pairs = zip(code.interface.imports, code.bindings, strict=True)
        imports = [self._import(one, binding, stubs) for one, binding in pairs]
        guest = CoreInstance(self._store, code.module, imports).exports(self._store)
        links = [guest["memory"], guest["cabi_realloc"], guest[HOOK_EXPORT], guest[POST_RETURN_EXPORT]]
        loop = CoreInstance(self._store, Module(engine, _LOOP), [*links, stubs["slots"]]).exports(self._store)
        self._run, self._window = loop["run"], loop["window"]

    def batch(self, action: bytes, payload: bytes) -> Callable[[int], None]:
        """A function that calls the hook so many times."""
        assert isinstance(self._window, Memory) and isinstance(self._run, Func)
        self._window.write(self._store, action + payload, _START)
        self._store.set_epoch_deadline(1 << 30)
        run, store, sizes = self._run, self._store, (len(action), len(payload))
        return lambda times: run(store, times, *sizes)

    def close(self) -> None:
        """Free the store."""
        self._store.close()
        self._callbacks.clear()

    def _import(self, one: CoreImport, binding: Binding, stubs: Mapping[str, object]) -> object:
        if binding.kind is None or one.name == "log":
            return stubs[one.name]
        func, callback = new_host_function(self._store, binding.kind, _never)
        self._callbacks.append(callback)
        return func


def _never(_environment: object, _caller: object, _address: int, _count: int) -> int:
    """Stands in for what a tool call does not call."""
    return new_trap(b"the bare guest called the host")


def _hook_batch(instance: Instance, payload: bytes) -> Callable[[int], None]:
    def run(times: int) -> None:
        hook = instance.hook
        for _ in range(times):
            hook(_ACTION, payload)

    return run


def _fastest(*batches: Callable[[int], None]) -> tuple[float, ...]:
    """Seconds a call, the best of several batches of each."""
    times = [_times_in(batch) for batch in batches]
    best = [float("inf")] * len(batches)
    for _ in range(BATCHES):
        for i, batch in enumerate(batches):
            best[i] = min(best[i], _seconds(batch, times[i]) / times[i])
    return tuple(best)


def _times_in(batch: Callable[[int], None]) -> int:
    """How many calls fill a batch."""
    times = 1
    while (spent := _seconds(batch, times)) < BATCH_S / 4:
        times *= 4
    return max(1, int(times * BATCH_S / spent))


def _seconds(batch: Callable[[int], None], times: int) -> float:
    start = time.perf_counter()
    batch(times)
    return time.perf_counter() - start


def _request(size: int) -> bytes:
    arguments = {"name": "x" * size}
    return json.dumps({"call_id": "c1", "tool_name": "hello", "arguments": arguments}).encode()


class _NoKv:
    """The tool keeps nothing."""

    def __getattr__(self, name: str) -> object:
        raise LookupError(name)


def _context() -> GuestContext:
    return GuestContext(
        capsule=CapsuleName("hello"),
        principal=PrincipalName("default"),
        source_id="11111111-2222-3333-4444-555555555555",
        capabilities=Capabilities(),
        kv=cast("KvSpace", _NoKv()),
        publish=lambda _topic, _payload: None,
        config=lambda _key: None,
        log=lambda _level, _message: None,
    )
