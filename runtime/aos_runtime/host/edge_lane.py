"""The edge lane: a guest of one core module, linked to the edge (see `edge`).

A hook is one C call; `publish` comes back from inside it through the window, and every other import through
`boundary` and the one door to the guest's memory.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import addressof, c_size_t, c_uint64, c_void_p

from wasmtime import Trap, WasmtimeError

from aos_runtime.host import raw
from aos_runtime.host.assembly import assemble
from aos_runtime.host.boundary import Boundary
from aos_runtime.host.code import EdgeCode
from aos_runtime.host.door import AbiViolation, GuestMemory
from aos_runtime.host.edge import (
    FAULTS,
    HELD_AT,
    PUBLISH_CASES,
    PUBLISH_OK,
    PUBLISH_UNKNOWN,
    WINDOW_BYTES,
    WINDOW_START,
)
from aos_runtime.host.factors.ipc import UNKNOWN_PREFIX, unknown_text
from aos_runtime.host.lane import HookResult, payload_too_large
from aos_runtime.host.raw import call_unchecked

_PAGE_BYTES = 65536
_HEADER = struct.Struct("<III")
_TEXT_LENGTH = struct.Struct("<I")
_TEXT_LENGTH_AT = 12
_STATUS = {case: 1 + i for i, case in enumerate(PUBLISH_CASES)}
_PUBLISH_ARGUMENTS = ctypes.c_uint32 * 8
"""Two raw values; an `i32` is the first word of its four."""
_FOUR, _TWO, _NONE = c_size_t(4), c_size_t(2), c_size_t(0)


class EdgeLane:
    """A `Lane`."""

    def __init__(
        self, code: EdgeCode, boundary: Boundary, check: raw.EpochCheck, *, memory_bytes: int
    ) -> None:
        """Instantiate.  Raises as `assemble`."""
        self._guest_context = boundary.context
        self._memory_limit = memory_bytes
        self._words, self._trap = (c_uint64 * 8)(), c_void_p(0)
        self._words_pointer, self._trap_pointer = _address(self._words), _address(self._trap)
        self._realloc_words, self._realloc_trap = (c_uint64 * 8)(), c_void_p(0)
        guarded = boundary.guard(self._on_publish)
        self._assembly = assemble(code, boundary, guarded, check, memory_bytes=memory_bytes)
        self.store = self._assembly.store
        self._context = raw.context_of(self.store)
        self._hook = raw.pointer_to_func(self._assembly.hook)
        self._realloc_func = raw.pointer_to_func(self._assembly.realloc)
        self._window, self._window_size = memoryview(b""), 0
        self._refresh_window()
        self._memory = GuestMemory(self._guest_bytes, self._realloc, self._window[HELD_AT : HELD_AT + 1])
        boundary.memory = self._memory

    def hook(self, action: bytes, payload: bytes) -> HookResult:
        view, payload_at = self._window, WINDOW_START + len(action)
        end = payload_at + len(payload)
        if end > self._window_size:
            view = self._grow_window(end)
        view[WINDOW_START:payload_at] = action
        view[payload_at:end] = payload
        self._words[0], self._words[2] = len(action), len(payload)
        trap = self._trap
        error = call_unchecked(self._context, self._hook, self._words_pointer, _TWO, self._trap_pointer)
        if error or trap.value:
            raise self._cause(error, trap)
        return self._read_result()

    def has_lifecycle(self, name: str) -> bool:
        return name in self._assembly.lifecycle

    def lifecycle(self, name: str) -> None:
        export = raw.pointer_to_func(self._assembly.lifecycle[name])
        error = call_unchecked(self._context, export, self._words_pointer, _NONE, self._trap_pointer)
        if error or self._trap.value:
            raise self._cause(error, self._trap)

    def memory_bytes(self) -> int:
        return self._memory.size_bytes()

    def why_stopped(self) -> str | None:
        return FAULTS.get(self._assembly.fault.value(self.store))

    def close(self) -> None:
        self._window = memoryview(b"")
        self._memory.close()
        self.store.close()
        self._assembly.callbacks.clear()

    def _read_result(self) -> HookResult:
        view = self._window  # a publish may have replaced it
        action_size, has_data, data_size = _HEADER.unpack_from(view)
        data_at = WINDOW_START + action_size
        end = data_at + data_size
        if end > self._window_size:
            view = self._refresh_window()
        try:
            action = str(view[WINDOW_START:data_at], "utf-8")
            if not has_data:
                return HookResult(action, None)
            data = bytes(view[data_at:end])
            if not data.isascii():
                data.decode()
            return HookResult(action, data)
        except UnicodeDecodeError:
            raise AbiViolation("the guest returned a string that is not UTF-8") from None

    def _on_publish(self, address: int) -> None:
        """The edge's `publish(topic length, payload length) -> status`; both are in the window."""
        words = _PUBLISH_ARGUMENTS.from_address(address)
        payload_at = WINDOW_START + words[0]
        end = payload_at + words[4]
        view = self._window if end <= self._window_size else self._refresh_window()
        payload = bytes(view[payload_at:end])
        try:
            topic = str(view[WINDOW_START:payload_at], "utf-8")
            if not payload.isascii():
                payload.decode()
        except UnicodeDecodeError:
            raise AbiViolation("the guest published a string that is not UTF-8") from None
        refusal = self._guest_context.publish(topic, payload)
        words[0] = PUBLISH_OK if refusal is None else self._refuse(refusal)

    def _refuse(self, refusal: str) -> int:
        """The edge's status for an error case; the text of `unknown` goes into the window."""
        if not refusal.startswith(UNKNOWN_PREFIX):
            return _STATUS[refusal]
        text = unknown_text(refusal).encode()
        self._window[WINDOW_START : WINDOW_START + len(text)] = text
        _TEXT_LENGTH.pack_into(self._window, _TEXT_LENGTH_AT, len(text))
        return PUBLISH_UNKNOWN

    def _realloc(self, align: int, size: int) -> int:
        """The guest's `cabi_realloc(0, 0, align, size)`, from inside one of its calls."""
        words = self._realloc_words
        words[0] = words[2] = 0
        words[4], words[6] = align, size
        trap = self._realloc_trap
        error = call_unchecked(self._context, self._realloc_func, _address(words), _FOUR, _address(trap))
        if error or trap.value:
            raise self._cause(error, trap)
        return words[0] & 0xFFFFFFFF

    def _cause(self, error: int, trap: c_void_p) -> Trap | WasmtimeError:
        """Own what a call left behind."""
        cause = raw.own_error(error) if error else raw.own_trap(trap.value or 0)
        trap.value = None
        return cause

    def _guest_bytes(self) -> memoryview:
        assembly = self._assembly
        return raw.memory_bytes(assembly.store, assembly.memory)

    def _grow_window(self, end: int) -> memoryview:
        """The window, large enough for `end` bytes."""
        if end > WINDOW_BYTES:
            raise payload_too_large(WINDOW_BYTES, end)
        assembly = self._assembly
        missing = -(-end // _PAGE_BYTES) - assembly.window.size(assembly.store)
        if missing > 0:
            try:
                assembly.window.grow(assembly.store, missing)
            except WasmtimeError as error:
                raise payload_too_large(self._memory_limit, end) from error
        return self._refresh_window()

    def _refresh_window(self) -> memoryview:
        assembly = self._assembly
        self._window = raw.memory_bytes(assembly.store, assembly.window)
        self._window_size = len(self._window)
        return self._window


def _address(value: object) -> c_void_p:
    return c_void_p(addressof(value))  # type: ignore[arg-type]
