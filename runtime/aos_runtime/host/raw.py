"""The few calls into wasmtime's C API that its Python binding does not offer or makes slow.

The only module that touches the binding's private names, so that a new wasmtime has one place to break.
Rules of that API, each learned from a crash: in a raw value only the low 32 bits of an `i32` mean anything; a
callback must outlive its store; a function type must outlive the call that registers it, and serves one
engine only; a returned error or trap belongs to us and is freed.  What runs a guest is called through `CDLL`,
which lets go of the interpreter lock, or the clock that interrupts it could not tick; only what sets or reads
a number of a store is called through `PyDLL`, so that it cannot cost a change of threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, byref, c_size_t, c_uint8, c_uint64, c_void_p
from typing import Any

from wasmtime import Config, Engine, Func, FuncType, Memory, Store, Trap, WasmtimeError
from wasmtime import _bindings as bindings
from wasmtime import _ffi as ffi

RAW_VALUE_WORDS = 2
"""A raw value is 16 bytes, two 64-bit words."""

HostFunction = Callable[[Any, Any, Any, int], int]
"""`(env, caller, address of raw values, their count)`: 0, or the address of a trap.  Must not raise."""

EpochCheck = Callable[[], bytes | None]
"""Asked when the clock passes a store's deadline: None lets its guest run one more tick, a text stops it."""

_EPOCH = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_void_p, c_void_p)
_NO_FINALIZER = ctypes.CFUNCTYPE(None, c_void_p)()
_CONTINUE = 0
_UNCHECKED = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_void_p, c_size_t)
_library = ctypes.CDLL(str(ffi.filename))
_quick = ctypes.PyDLL(str(ffi.filename))

# Argument types stay undeclared: every argument is a ready ctypes value, and converting costs as much as
# a small call.
call_unchecked = _library.wasmtime_func_call_unchecked
call_unchecked.restype = c_size_t
set_epoch_deadline = _quick.wasmtime_context_set_epoch_deadline
set_epoch_deadline.restype = None
set_fuel = _quick.wasmtime_context_set_fuel
set_fuel.restype = c_size_t
get_fuel = _quick.wasmtime_context_get_fuel
get_fuel.restype = c_size_t
_new_trap = _library.wasmtime_trap_new
_new_trap.restype = c_size_t
_new_trap.argtypes = [ctypes.c_char_p, c_size_t]
_new_error = _library.wasmtime_error_new
_new_error.restype = c_size_t
_new_error.argtypes = [ctypes.c_char_p]
_set_epoch_callback = _library.wasmtime_store_epoch_deadline_callback
_set_epoch_callback.restype = None
_set_epoch_callback.argtypes = [c_void_p, _EPOCH, c_void_p, type(_NO_FINALIZER)]
_increment_epoch = _library.wasmtime_engine_increment_epoch
_increment_epoch.restype = None
_increment_epoch.argtypes = [c_void_p]


def without_concurrency(config: Config) -> Config:
    """Turn off the component model's tasks, which nothing here uses.

    With them wasmtime 50.0.1 stops any guest that passes a host function two borrowed handles.
    """
    bindings.wasmtime_config_wasm_component_model_async_set(config.ptr(), False)
    bindings.wasmtime_config_concurrency_support_set(config.ptr(), False)
    return config


def context_of(store: Store) -> c_void_p:
    """The store's context, as an argument for the calls above; good while the store lives."""
    return c_void_p(addressof(store._context().contents))


def pointer_to_func(func: Func) -> c_void_p:
    """The function, as an argument for `call_unchecked`; good while `func` lives."""
    return c_void_p(addressof(func._func))


def new_host_function(store: Store, kind: FuncType, python: HostFunction) -> tuple[Func, object]:
    """A host function without boxing of values, and what must be kept alive as long as the store."""
    callback = _UNCHECKED(python)
    raw = ffi.wasmtime_func_t()
    create = bindings._wasmtime_func_new_unchecked
    create(
        store._context(),
        kind.ptr(),
        ctypes.cast(callback, ffi.wasmtime_func_unchecked_callback_t),
        None,
        create.argtypes[4](),
        byref(raw),
    )
    return Func._from_raw(raw), callback


def check_at_epochs(store: Store, check: EpochCheck) -> object:
    """Ask `check` whenever the clock passes the store's deadline; it must not raise.

    Returns what must be kept alive as long as the store.  It runs on the thread that is inside the guest.
    """

    def call(_context: object, _data: object, delta: int, kind: int) -> int:
        stop = check()
        if stop is not None:
            return new_error(stop)
        c_uint64.from_address(delta).value = 1
        c_uint8.from_address(kind).value = _CONTINUE
        return 0

    callback = _EPOCH(call)
    _set_epoch_callback(ctypes.cast(store.ptr(), c_void_p), callback, None, _NO_FINALIZER)
    return callback


def memory_bytes(store: Store, memory: Memory) -> memoryview:
    """The memory's bytes as they are now.  They never move; a later, larger view shares them."""
    size = memory.data_len(store)
    if not size:
        return memoryview(bytearray())
    base = addressof(memory.data_ptr(store).contents)
    return memoryview((ctypes.c_ubyte * size).from_address(base)).cast("B")


def new_trap(message: bytes) -> int:
    """The address of a new trap, for a host function to return; wasmtime frees it."""
    return int(_new_trap(message, len(message)))


def new_error(message: bytes) -> int:
    """The address of a new error, for a callback to return; wasmtime frees it."""
    return int(_new_error(message))


def own_error(address: int) -> WasmtimeError:
    """Take ownership of an error that a call returned."""
    return WasmtimeError._from_ptr(ctypes.cast(c_void_p(address), ctypes.POINTER(ffi.wasmtime_error_t)))


def own_trap(address: int) -> Trap:
    """Take ownership of a trap that a call left behind."""
    return Trap._from_ptr(ctypes.cast(c_void_p(address), ctypes.POINTER(ffi.wasm_trap_t)))


def increment_epoch(engine_address: int) -> None:
    """Advance the engine's clock by one tick; safe from any thread while the engine lives."""
    _increment_epoch(engine_address)


def address_of_engine(engine: Engine) -> int:
    """For `increment_epoch`."""
    address = ctypes.cast(engine.ptr(), c_void_p).value
    assert address is not None
    return address


def set_limits(
    store: Store, *, memory_bytes: int, table_elements: int, instances: int, tables: int, memories: int
) -> None:
    """Cap what the guest of this store may allocate; counts cover every module in the store."""
    store.set_limits(memory_bytes, table_elements, instances, tables, memories)


def slots_type(count: int) -> type[ctypes.Array[c_uint64]]:
    """The type of `count` raw values as 64-bit words, for reading arguments and writing results."""
    return c_uint64 * (RAW_VALUE_WORDS * count)
