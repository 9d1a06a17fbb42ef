"""Words for why wasmtime stopped a guest."""

from __future__ import annotations

from wasmtime import Trap, TrapCode, WasmtimeError

from aos_runtime.host.traps import GuestTrap, TrapReason

_WORDS = {
    TrapCode.STACK_OVERFLOW: "it exhausted its call stack",
    TrapCode.MEMORY_OUT_OF_BOUNDS: "it reached outside its memory",
    TrapCode.TABLE_OUT_OF_BOUNDS: "it reached outside a table",
    TrapCode.INDIRECT_CALL_TO_NULL: "it called a function that is not there",
    TrapCode.BAD_SIGNATURE: "it called a function of another type",
    TrapCode.INTEGER_OVERFLOW: "an integer overflowed",
    TrapCode.INTEGER_DIVISION_BY_ZERO: "it divided by zero",
    TrapCode.BAD_CONVERSION_TO_INTEGER: "a float did not fit an integer",
    TrapCode.UNREACHABLE: "it panicked or aborted",
}
_DETAIL_MAX_CHARACTERS = 16_384
_TRAP_MARK = "wasm trap: "
_CODES = {
    "call stack exhausted": TrapCode.STACK_OVERFLOW,
    "out of bounds memory access": TrapCode.MEMORY_OUT_OF_BOUNDS,
    "undefined element: out of bounds table access": TrapCode.TABLE_OUT_OF_BOUNDS,
    "uninitialized element": TrapCode.INDIRECT_CALL_TO_NULL,
    "indirect call type mismatch": TrapCode.BAD_SIGNATURE,
    "integer overflow": TrapCode.INTEGER_OVERFLOW,
    "integer divide by zero": TrapCode.INTEGER_DIVISION_BY_ZERO,
    "invalid conversion to integer": TrapCode.BAD_CONVERSION_TO_INTEGER,
    "wasm `unreachable` instruction executed": TrapCode.UNREACHABLE,
    "all fuel consumed by WebAssembly": TrapCode.OUT_OF_FUEL,
    "allocation size too large": TrapCode.ALLOCATION_TOO_LARGE,
}
"""How wasmtime spells a trap in an error, which is how it comes out of a component."""
_CAUSE_MARK = "Caused by:"
_LIES = (
    ("out of bounds", "the guest gave a pointer outside its memory"),
    ("beyond end of memory", "the guest gave a pointer outside its memory"),
    ("not aligned", "the guest gave a misaligned pointer"),
    ("invalid utf-8", "the guest passed a string that is not UTF-8"),
    ("out of range", "the guest passed a variant with an unknown case"),
    ("cannot leave component instance", "the guest called the host while the host was allocating"),
    ("hostcalls has been exhausted", "one call passed more data than can be taken"),
    ("unknown handle index", "the guest passed a handle that it does not have"),
)
"""What wasmtime says of a guest that breaks the canonical ABI, and what the edge lane says of it."""


def detail_of(cause: Trap | WasmtimeError) -> str:
    """Everything wasmtime said, bounded."""
    return str(cause)[:_DETAIL_MAX_CHARACTERS]


def verdict_of(cause: Trap | WasmtimeError) -> GuestTrap | None:
    """The trap, for what may be no trap at all: a guest that could not be started."""
    if isinstance(cause, Trap) or _TRAP_MARK in str(cause):
        return classify(cause, near_memory_limit=False)
    return None


def classify(cause: Trap | WasmtimeError, *, near_memory_limit: bool) -> GuestTrap:
    """The trap as a GuestTrap; one line outward, the whole text as detail.

    A Rust guest that gets no memory aborts without a word, so an abort `near_memory_limit` is taken for that.
    """
    detail = detail_of(cause)
    code = cause.trap_code if isinstance(cause, Trap) else _spelled_code(str(cause))
    if code is TrapCode.OUT_OF_FUEL:
        return GuestTrap(TrapReason.FUEL, "it ran more instructions than one call may", detail)
    if code is TrapCode.UNREACHABLE and near_memory_limit:
        return GuestTrap(TrapReason.MEMORY, "it ran out of memory", detail)
    if code is TrapCode.ALLOCATION_TOO_LARGE:
        return GuestTrap(TrapReason.MEMORY, "it asked for too much memory", detail)
    words = _WORDS.get(code) if code is not None else _lie(str(cause))
    return GuestTrap(TrapReason.TRAP, words or "it was stopped", detail)


def _spelled_code(text: str) -> TrapCode | None:
    _, mark, trap = text.rpartition(_TRAP_MARK)
    return _CODES.get(trap.splitlines()[0].strip()) if mark and trap else None


def _lie(text: str) -> str | None:
    _, mark, why = text.rpartition(_CAUSE_MARK)
    return next((words for part, words in _LIES if mark and part in why), None)
