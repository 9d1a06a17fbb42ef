"""The component part of wasmtime's C API: linking, calling, values and handles.

With `raw` the only module that touches the binding's private names.  Its own classes for linking and calling
are not used: they convert values one Python call a byte, and keep what a host function raised in a place that
all threads share.  Rules of that API, beyond those in `raw`: what a callback is given stays wasmtime's, what
it gives must come from wasmtime's allocator, a borrowed handle is looked up exactly once a call, and a
callback outlives its store.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, byref, c_bool, c_char_p, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from wasmtime import Engine, Store, WasmtimeError
from wasmtime import _bindings as bindings
from wasmtime import _ffi as ffi
from wasmtime import component as wc

from aos_runtime.host import raw

VALUE_BYTES = 32
FIELD_BYTES = 48
"""A record's field: the name's length and pointer, then the value."""

ComponentFunction = Callable[[Any, Any, Any, int, int, int, int], int]
"""`(env, context, type, address of arguments, their count, address of results, their count)`: 0, or the
address of an error.  Must not raise."""

Destructor = Callable[[Any, Any, int], int]
"""`(env, context, what the host named the resource by)`: as a ComponentFunction."""

_CALLBACK = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)
_DESTRUCTOR = ctypes.CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_uint32)
_FINALIZER = ctypes.CFUNCTYPE(None, c_void_p)
_NO_FINALIZER = _FINALIZER()
_library = ctypes.CDLL(str(ffi.filename))
_TwoWords = c_uint64 * 2


def _function(name: str, result: Any, *arguments: Any) -> Any:
    found = getattr(_library, name)
    found.restype, found.argtypes = result, list(arguments)
    return found


_linker_new = _function("wasmtime_component_linker_new", c_void_p, c_void_p)
_linker_delete = _function("wasmtime_component_linker_delete", None, c_void_p)
_linker_root = _function("wasmtime_component_linker_root", c_void_p, c_void_p)
_linker_instantiate = _function(
    "wasmtime_component_linker_instantiate", c_size_t, c_void_p, c_void_p, c_void_p, c_void_p
)
_instance_delete = _function("wasmtime_component_linker_instance_delete", None, c_void_p)
_add_instance = _function(
    "wasmtime_component_linker_instance_add_instance", c_size_t, c_void_p, c_char_p, c_size_t, c_void_p
)
_add_func = _function(
    "wasmtime_component_linker_instance_add_func",
    c_size_t,
    *(c_void_p, c_char_p, c_size_t, _CALLBACK, c_void_p, _FINALIZER),
)
_add_resource = _function(
    "wasmtime_component_linker_instance_add_resource",
    c_size_t,
    *(c_void_p, c_char_p, c_size_t, c_void_p, _DESTRUCTOR, c_void_p, _FINALIZER),
)
_resource_type_new = _function("wasmtime_component_resource_type_new_host", c_void_p, c_uint32)
_resource_type_delete = _function("wasmtime_component_resource_type_delete", None, c_void_p)
_get_index = _function(
    "wasmtime_component_instance_get_export_index",
    c_void_p,
    *(c_void_p, c_void_p, c_void_p, c_char_p, c_size_t),
)
_delete_index = _function("wasmtime_component_export_index_delete", None, c_void_p)
_get_func = _function("wasmtime_component_instance_get_func", c_bool, c_void_p, c_void_p, c_void_p, c_void_p)
_call = _function(
    "wasmtime_component_func_call",
    c_size_t,
    *(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t),
)
_host_new = _function("wasmtime_component_resource_host_new", c_void_p, c_bool, c_uint32, c_uint32)
_host_rep = _function("wasmtime_component_resource_host_rep", c_uint32, c_void_p)
_host_delete = _function("wasmtime_component_resource_host_delete", None, c_void_p)
_any_to_host = _function("wasmtime_component_resource_any_to_host", c_size_t, c_void_p, c_void_p, c_void_p)
_host_to_any = _function("wasmtime_component_resource_host_to_any", c_size_t, c_void_p, c_void_p, c_void_p)
_value_new = _function("wasmtime_component_val_new", c_void_p, c_void_p)
_value_delete = _function("wasmtime_component_val_delete", None, c_void_p)
_bytes_new = _function("wasm_byte_vec_new", None, c_void_p, c_size_t, c_char_p)
_values_new = _function("wasmtime_component_vallist_new_uninit", None, c_void_p, c_size_t)
_fields_new = _function("wasmtime_component_valrecord_new_uninit", None, c_void_p, c_size_t)
_flags_new = _function("wasmtime_component_valflags_new_uninit", None, c_void_p, c_size_t)


class Linker:
    """What one instance may import.  Definitions first, then `instantiate` once, then `close`."""

    def __init__(self, engine: Engine, callbacks: list[object]) -> None:
        """`callbacks` collects what must be kept alive as long as the store."""
        self._linker = _linker_new(ctypes.cast(engine.ptr(), c_void_p))
        self._root = _linker_root(self._linker)
        self._callbacks = callbacks

    def add_interface(self, name: str) -> Interface:
        """An interface to define things in, one at a time; `close` it before the next."""
        place = c_void_p()
        _check(_add_instance(self._root, name.encode(), len(name.encode()), byref(place)))
        assert place.value is not None
        return Interface(place.value, self._callbacks)

    def instantiate(self, store: Store, component: wc.Component) -> ctypes.Structure:
        """The component's instance in `store`; WasmtimeError where that traps or something is missing."""
        _instance_delete(self._root)
        self._root = None
        made = bindings.wasmtime_component_instance_t()
        pointer = ctypes.cast(component.ptr(), c_void_p)
        _check(_linker_instantiate(self._linker, raw.context_of(store), pointer, byref(made)))
        return made

    def close(self) -> None:
        """Free it; an instance made by it stays."""
        if self._root is not None:
            _instance_delete(self._root)
        _linker_delete(self._linker)


class Interface:
    """One imported interface of a linker."""

    def __init__(self, place: int, callbacks: list[object]) -> None:
        self._place = place
        self._callbacks = callbacks

    def add_function(self, name: str, python: ComponentFunction) -> None:
        """Define a function."""
        callback = _CALLBACK(python)
        self._callbacks.append(callback)
        _check(_add_func(self._place, name.encode(), len(name.encode()), callback, None, _NO_FINALIZER))

    def add_resource(self, name: str, number: int, python: Destructor) -> None:
        """Define a resource type, which is the same one wherever it has the same number."""
        destructor, kind = _DESTRUCTOR(python), _resource_type_new(number)
        self._callbacks.append(destructor)
        try:
            size = len(name.encode())
            _check(_add_resource(self._place, name.encode(), size, kind, destructor, None, _NO_FINALIZER))
        finally:
            _resource_type_delete(kind)

    def close(self) -> None:
        """No more is defined here."""
        _instance_delete(self._place)


def function_of(store: Store, instance: ctypes.Structure, name: str) -> ctypes.Structure | None:
    """An exported function, None where there is none by that name."""
    context = raw.context_of(store)
    index = _get_index(addressof(instance), context, None, name.encode(), len(name.encode()))
    if index is None:
        return None
    found = bindings.wasmtime_component_func_t()
    try:
        return found if _get_func(addressof(instance), context, index, byref(found)) else None
    finally:
        _delete_index(index)


def call(
    function: ctypes.Structure,
    context: c_void_p,
    arguments: bytearray,
    result: ctypes.Array[ctypes.c_char] | None,
) -> None:
    """Call with values, which stay the caller's; WasmtimeError where the guest is stopped."""
    count = len(arguments) // VALUE_BYTES
    at = _address(arguments) if count else None
    error = _call(addressof(function), context, at, count, result, 0 if result is None else 1)
    if error:
        raise raw.own_error(error)


def lookup_handle(context: c_void_p, any_handle: int) -> int:
    """What the host named the resource by, whose handle the guest passed.  Once a handle and call."""
    host = c_void_p()
    _check(_any_to_host(context, any_handle, byref(host)))
    try:
        return int(_host_rep(host))
    finally:
        _host_delete(host)


def own_handle(context: c_void_p, number: int, named: int) -> int:
    """The address of a new handle for the guest to own, of the resource type with this number."""
    host, made = _host_new(True, named, number), c_void_p()
    try:
        _check(_host_to_any(context, host, byref(made)))
    finally:
        _host_delete(host)
    assert made.value is not None
    return made.value


def box(value: bytearray) -> int:
    """Move one value into wasmtime's memory; its address."""
    return int(_value_new(_address(value)))


def new_bytes(data: bytes) -> bytes:
    """A byte string in wasmtime's memory, as length and pointer."""
    words = _TwoWords()
    _bytes_new(words, len(data), data)
    return bytes(words)


def new_values(count: int) -> tuple[bytes, int]:
    """Room for values: length and pointer as bytes, and the pointer.  It must be filled at once."""
    return _room(_values_new, count)


def new_fields(count: int) -> tuple[bytes, int]:
    """Room for a record's fields, as `new_values`."""
    return _room(_fields_new, count)


def new_flags(count: int) -> tuple[bytes, int]:
    """Room for the names of flags, as `new_values`."""
    return _room(_flags_new, count)


def bytes_at(address: int, size: int) -> bytes:
    """A copy of wasmtime's memory."""
    return ctypes.string_at(address, size) if size else b""


def view_at(address: int, size: int) -> memoryview:
    """wasmtime's memory itself, for as long as the value lives that it belongs to."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def fill(address: int, data: bytes | bytearray) -> None:
    """Write to wasmtime's memory."""
    view_at(address, len(data))[:] = data


def delete_values(values: bytearray | ctypes.Array[ctypes.c_char]) -> None:
    """Free what these values hold; they are booleans afterwards."""
    at = _address(values) if isinstance(values, bytearray) else addressof(values)
    for offset in range(0, len(values), VALUE_BYTES):
        _value_delete(at + offset)
        ctypes.memset(at + offset, 0, VALUE_BYTES)


def _address(values: bytearray) -> int:
    return addressof((ctypes.c_char * len(values)).from_buffer(values))


def _room(create: Any, count: int) -> tuple[bytes, int]:
    words = _TwoWords()
    create(words, count)
    return bytes(words), words[1]


def _check(error: int) -> None:
    if error:
        failure: WasmtimeError = raw.own_error(error)
        raise failure
