"""Puts one edge guest together: a store with its limits, and trampoline, guest and edge linked in it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TypeVar

from wasmtime import Func, Global, Memory, Store
from wasmtime import Instance as CoreInstance

from aos_runtime.host import raw
from aos_runtime.host.boundary import Boundary
from aos_runtime.host.code import POST_RETURN_EXPORT, EdgeCode
from aos_runtime.host.component import HOOK_EXPORT
from aos_runtime.host.lane import open_store
from aos_runtime.host.linker import Binding

_MODULES, _TABLES, _MEMORIES = 3, 8, 2
"""What may be in one store: the three modules, the guest's memory and the window, and tables for all."""
_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class Assembly:
    """The parts of a linked instance that are used after linking."""

    store: Store
    memory: Memory
    window: Memory
    fault: Global
    hook: Func
    realloc: Func
    lifecycle: dict[str, Func]
    """The guest's exports without parameters, by name."""
    callbacks: list[object]
    """Alive as long as the store."""


def open_edge_store(
    code: EdgeCode, check: raw.EpochCheck, callbacks: list[object], memory_bytes: int
) -> Store:
    """A store for the three modules."""
    return open_store(
        code.engine,
        check,
        callbacks,
        memory_bytes=memory_bytes,
        instances=_MODULES,
        tables=_TABLES,
        memories=_MEMORIES,
    )


def assemble(
    code: EdgeCode,
    boundary: Boundary,
    on_publish: raw.HostFunction,
    check: raw.EpochCheck,
    *,
    memory_bytes: int,
) -> Assembly:
    """A new store with the three modules linked in it; its memories hold at most `memory_bytes` each.

    Trap or WasmtimeError where the guest does not fit or its start traps, TypeError where an export is of
    another kind than a capsule's.
    """
    callbacks: list[object] = []
    store = open_edge_store(code, check, callbacks, memory_bytes)
    with contextlib.ExitStack() as undo:
        undo.callback(store.close)
        assembly = _link(code, store, boundary, on_publish, callbacks)
        undo.pop_all()
    return assembly


def _link(
    code: EdgeCode,
    store: Store,
    boundary: Boundary,
    on_publish: raw.HostFunction,
    callbacks: list[object],
) -> Assembly:
    trampoline = CoreInstance(store, code.engine.trampoline, []).exports(store)
    publish = trampoline["publish"]
    imports = [
        publish if binding.kind is None else _host_function(store, binding, boundary, callbacks)
        for binding in code.bindings
    ]
    guest = CoreInstance(store, code.module, imports).exports(store)
    memory = _expect(guest["memory"], Memory)
    host_publish, callback = raw.new_host_function(store, code.engine.publish_type, on_publish)
    callbacks.append(callback)
    post_return = (
        guest[POST_RETURN_EXPORT] if code.interface.has_post_return else trampoline["no_post_return"]
    )
    # In the order of the edge's imports.
    links = [
        memory,
        guest["cabi_realloc"],
        guest[HOOK_EXPORT],
        post_return,
        host_publish,
        trampoline["slots"],
    ]
    edge = CoreInstance(store, code.engine.edge, links).exports(store)
    return Assembly(
        store=store,
        memory=memory,
        window=_expect(edge["window"], Memory),
        fault=_expect(edge["fault"], Global),
        hook=_expect(edge["hook"], Func),
        realloc=_expect(guest["cabi_realloc"], Func),
        lifecycle={name: _expect(guest[name], Func) for name in code.interface.implemented},
        callbacks=callbacks,
    )


def _host_function(store: Store, binding: Binding, boundary: Boundary, callbacks: list[object]) -> Func:
    assert binding.kind is not None
    python = boundary.drop(binding.drops)
    if binding.codec is not None and binding.factor is not None:
        factor = boundary.note_complaint(binding.factor) if binding.is_log else binding.factor
        python = boundary.serve(binding.codec, boundary.observed(binding.name, factor))
    func, callback = raw.new_host_function(store, binding.kind, python)
    callbacks.append(callback)
    return func


def _expect(export: object, kind: type[_T]) -> _T:
    if not isinstance(export, kind):
        raise TypeError(f"expected a wasm {kind.__name__}")  # the guest exports something else by that name
    return export
