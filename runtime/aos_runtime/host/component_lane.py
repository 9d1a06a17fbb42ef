"""The component lane: a guest of any form, through wasmtime's own canonical ABI.

wasmtime lifts, lowers, copies and checks; a callback of ours stands behind each import and turns values into
Python ones (see `values`).  Slower than the edge and equal to it in what a guest and the kernel see.  What
cannot be seen here is the guest's memory: its size is known only as what it started with.
"""

from __future__ import annotations

import ctypes
from itertools import groupby

from wasmtime import Store

from aos_runtime.host import raw, raw_component
from aos_runtime.host.boundary import Boundary
from aos_runtime.host.code import ComponentCode
from aos_runtime.host.component import HOOK_EXPORT
from aos_runtime.host.compound_values import compile_value
from aos_runtime.host.edge import WINDOW_BYTES, WINDOW_START
from aos_runtime.host.lane import HookResult, open_store, payload_too_large
from aos_runtime.host.linker import ComponentBinding
from aos_runtime.host.values import SIZE, ValueCrossing
from aos_runtime.host.wit import BYTES, HOOK, STRING

_INSTANCES, _TABLES = 512, 32
"""What may be in one store, over all modules."""
_PAGE_BYTES = 65536
_ACTION, _PAYLOAD = compile_value(STRING), compile_value(BYTES)
assert HOOK.result is not None
_RESULT = compile_value(HOOK.result)


class ComponentLane:
    """A `Lane`."""

    def __init__(
        self, code: ComponentCode, boundary: Boundary, check: raw.EpochCheck, *, memory_bytes: int
    ) -> None:
        """Instantiate.  WasmtimeError where the guest does not fit or its start traps.

        All memories together have at most `memory_bytes`: several share it evenly.
        """
        pages = code.interface.memory_pages or ()
        memories = max(1, len(pages))
        self._start_bytes = sum(pages) * _PAGE_BYTES
        self._callbacks: list[object] = []
        self.store = open_store(
            code.engine,
            check,
            self._callbacks,
            memory_bytes=memory_bytes // memories,
            instances=_INSTANCES,
            tables=_TABLES,
            memories=memories,
        )
        self._context = raw.context_of(self.store)
        self._result = (ctypes.c_char * SIZE)()
        try:
            numbers = {one.name: i for i, one in enumerate(code.bindings) if one.codec is None}
            instance = self._link(code, boundary, numbers)
            self._crossing = ValueCrossing(self._context, boundary.context.resources, numbers)
            self._hook = _expect(self.store, instance, HOOK_EXPORT)
            self._lifecycle = {
                name: _expect(self.store, instance, name) for name in code.interface.implemented
            }
        except BaseException:
            self.store.close()
            raise
        boundary.crossing = self._crossing

    def hook(self, action: bytes, payload: bytes) -> HookResult:
        size = WINDOW_START + len(action) + len(payload)
        if size > WINDOW_BYTES:
            raise payload_too_large(WINDOW_BYTES, size)
        arguments = bytearray(2 * SIZE)
        _ACTION.write(self._crossing, arguments, 0, action.decode())
        _PAYLOAD.write(self._crossing, arguments, SIZE, payload)
        try:
            raw_component.call(self._hook, self._context, arguments, self._result)
        finally:
            raw_component.delete_values(arguments)
        try:
            self._crossing.renew()
            found = _RESULT.read(self._crossing, bytes(self._result), 0)
        finally:
            raw_component.delete_values(self._result)
        data = found["data"]
        return HookResult(found["action"], None if data is None else data.encode())

    def has_lifecycle(self, name: str) -> bool:
        return name in self._lifecycle

    def lifecycle(self, name: str) -> None:
        raw_component.call(self._lifecycle[name], self._context, bytearray(), None)

    def memory_bytes(self) -> int:
        """What its memories started with: what they are now nobody tells."""
        return self._start_bytes

    def why_stopped(self) -> str | None:
        return None

    def close(self) -> None:
        self.store.close()
        self._callbacks.clear()

    def _link(self, code: ComponentCode, boundary: Boundary, numbers: dict[str, int]) -> ctypes.Structure:
        linker = raw_component.Linker(code.engine.engine, self._callbacks)
        try:
            for name, bindings in groupby(code.bindings, lambda one: one.interface):
                interface = linker.add_interface(name)
                try:
                    for binding in bindings:
                        _define(interface, binding, boundary, numbers)
                finally:
                    interface.close()
            return linker.instantiate(self.store, code.component)
        finally:
            linker.close()


def _define(
    interface: raw_component.Interface,
    binding: ComponentBinding,
    boundary: Boundary,
    numbers: dict[str, int],
) -> None:
    name, factor = binding.name, binding.factor
    if binding.codec is None or factor is None:
        interface.add_resource(name, numbers[name], boundary.destroy(name))
        return
    if binding.is_log:
        factor = boundary.note_complaint(factor)
    if not binding.is_publish:  # the kernel sees those itself
        factor = boundary.observed(name, factor)
    interface.add_function(name, boundary.serve_values(binding.codec, factor))


def _expect(store: Store, instance: ctypes.Structure, name: str) -> ctypes.Structure:
    found = raw_component.function_of(store, instance, name)
    if found is None:
        raise TypeError(f"expected a function `{name}`")
    return found
