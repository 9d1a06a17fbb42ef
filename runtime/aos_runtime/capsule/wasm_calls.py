"""The calls that a core function's body makes, in order.

Walks instructions by the size of their immediates and looks at nothing but `call`.  Covers the opcodes that
compilers emit today (MVP, bulk memory, references, tail calls, exceptions, SIMD, atomics); at another one the
walk ends, and the body counts as one that does more than call.
Source: WebAssembly core specification, binary format of instructions; host-abi.md 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from aos_runtime.capsule.wasm_bytes import Cursor
from aos_runtime.capsule.wasm_core import skip_value_type
from aos_runtime.errors import Corrupt

_NOP, _END, _RETURN, _CALL = 0x01, 0x0B, 0x0F, 0x10
_BLOCKS = frozenset((0x02, 0x03, 0x04, 0x06))
_PLAIN = frozenset(
    (0x00, 0x01, 0x05, 0x0A, 0x0B, 0x0F, 0x19, 0x1A, 0x1B, 0xD1, 0xD3, 0xD4, *range(0x45, 0xC5))
)
_ONE_NUMBER = frozenset(
    (
        *(0x07, 0x08, 0x09, 0x0C, 0x0D, 0x12, 0x14, 0x15, 0x18),
        *range(0x20, 0x27),
        *(0x3F, 0x40, 0x41, 0x42),
        *(0xD0, 0xD2, 0xD5, 0xD6),
    )
)
_TWO_NUMBERS = frozenset((0x11, 0x13))
_MEMORY = frozenset(range(0x28, 0x3F))
_BULK_NUMBERS = {
    **dict.fromkeys(range(8), 0),
    8: 2,
    9: 1,
    10: 2,
    11: 1,
    12: 2,
    13: 1,
    14: 2,
    15: 1,
    16: 1,
    17: 1,
}
_EMPTY_BLOCK = 0x40
_MULTI_MEMORY_FLAG = 0x40


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What a body calls.  `only_calls`: it does nothing else."""

    targets: tuple[int, ...]
    only_calls: bool


def read_calls(body: bytes) -> Calls:
    """The direct calls of a function body (locals and instructions)."""
    targets: list[int] = []
    only_calls = True
    cursor = Cursor(body)
    try:
        for _ in range(cursor.count()):
            cursor.unsigned()
            skip_value_type(cursor)
            only_calls = False
        while cursor.left:
            opcode = cursor.byte()
            if opcode == _CALL:
                targets.append(cursor.unsigned())
                continue
            only_calls = only_calls and opcode in (_NOP, _END, _RETURN)
            if not _skip_immediates(cursor, opcode):
                return Calls(targets=tuple(targets), only_calls=False)
    except Corrupt:
        return Calls(targets=tuple(targets), only_calls=False)
    return Calls(targets=tuple(targets), only_calls=only_calls)


def _skip_immediates(cursor: Cursor, opcode: int) -> bool:
    """Step over what follows `opcode`; False for an opcode that is not known."""
    if opcode in _PLAIN:
        return True
    if opcode in _ONE_NUMBER:
        cursor.skip_number()
    elif opcode in _MEMORY:
        _skip_memory_argument(cursor)
    elif opcode in _BLOCKS:
        _skip_block_type(cursor)
    elif opcode in _TWO_NUMBERS:
        cursor.skip_number()
        cursor.skip_number()
    else:
        return _skip_rarer(cursor, opcode)
    return True


def _skip_rarer(cursor: Cursor, opcode: int) -> bool:
    match opcode:
        case 0x0E:  # br_table
            for _ in range(cursor.count() + 1):
                cursor.skip_number()
        case 0x1C:  # select with types
            for _ in range(cursor.count()):
                skip_value_type(cursor)
        case 0x1F:  # try_table
            _skip_block_type(cursor)
            for _ in range(cursor.count()):
                if cursor.byte() < 2:
                    cursor.skip_number()
                cursor.skip_number()
        case 0x43:  # f32.const
            cursor.skip(4)
        case 0x44:  # f64.const
            cursor.skip(8)
        case 0xFC | 0xFD | 0xFE:
            return _skip_prefixed(cursor, opcode)
        case _:
            return False
    return True


def _skip_prefixed(cursor: Cursor, prefix: int) -> bool:
    code = cursor.unsigned()
    if prefix == 0xFC:
        numbers = _BULK_NUMBERS.get(code)
        for _ in range(numbers or 0):
            cursor.skip_number()
        return numbers is not None
    if prefix == 0xFE:
        cursor.skip(1) if code == 3 else _skip_memory_argument(cursor)
        return True
    if code in (12, 13):  # v128.const, i8x16.shuffle
        cursor.skip(16)
    elif code <= 11 or 84 <= code <= 93:
        _skip_memory_argument(cursor)
        cursor.skip(1 if 84 <= code <= 91 else 0)
    elif 21 <= code <= 34:  # extract and replace lane
        cursor.skip(1)
    return True


def _skip_memory_argument(cursor: Cursor) -> None:
    if cursor.unsigned() & _MULTI_MEMORY_FLAG:
        cursor.skip_number()
    cursor.skip_number()


def _skip_block_type(cursor: Cursor) -> None:
    first = cursor.data[cursor.at] if cursor.left else 0
    if first == _EMPTY_BLOCK:
        cursor.skip(1)
    elif 0x60 < first < 0x80:
        skip_value_type(cursor)
    else:
        cursor.skip_number()
