"""Lying pointers at the door: nothing outside a guest's memory is ever read or written."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aos_runtime.host import GuestTrap, Instance, TrapReason
from aos_runtime.host.door import LIFT_BUDGET_BYTES, AbiViolation, GuestMemory, check_aligned
from tests.support.guests import CONTINUE, KV, SYS, Recorder

PAGE = 65536
numbers = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 4, PAGE - 1, PAGE, PAGE + 1, 2**31, 2**32 - 1, 2**32 - 4, 2**32 - PAGE]),
)
LOG = f'(import "{SYS}" "log" (func $call (param i32 i32 i32)))'
RANDOM = f'(import "{SYS}" "random-bytes" (func $call (param i64 i32)))'
KV_GET = f'(import "{KV}" "kv-get" (func $call (param i32 i32 i32)))'
KV_SET = f'(import "{KV}" "kv-set" (func $call (param i32 i32 i32 i32 i32)))'
KV_CAS = f'(import "{KV}" "kv-cas" (func $call (param i32 i32 i32 i32 i32 i32 i32 i32)))'
KEY = '(data (i32.const 64) "k")'
properties = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Plain:
    """A GuestMemory over plain bytes with sentinels around them."""

    def __init__(self, size: int, later: int = 0) -> None:
        self.bytes = bytearray(b"\xee" * 64 + bytes(size + later) + b"\xee" * 64)
        self.size = size
        self.pointer = 0
        self.memory = GuestMemory(self.current, lambda _align, _size: self.pointer)

    def current(self) -> memoryview:
        return memoryview(self.bytes)[64 : 64 + self.size]

    def is_whole(self) -> bool:
        return self.bytes[:64] == self.bytes[-64:] == b"\xee" * 64


@given(at=numbers, size=numbers)
def test_a_view_is_inside_or_a_lie(at: int, size: int) -> None:
    plain = Plain(PAGE)
    if at + size <= PAGE:
        assert len(plain.memory.view(at, size)) == size
    else:
        with pytest.raises(AbiViolation, match="outside its memory"):
            plain.memory.view(at, size)


@given(pointer=numbers, align=st.sampled_from([1, 2, 4, 8]), data=st.binary(min_size=1, max_size=64))
def test_what_realloc_gives_is_used_inside_only(pointer: int, align: int, data: bytes) -> None:
    plain = Plain(PAGE)
    plain.pointer = pointer
    try:
        at = plain.memory.allocate(align, len(data))
        plain.memory.view(at, len(data))[:] = data
        assert pointer % align == 0 and pointer + len(data) <= PAGE
    except AbiViolation:
        assert pointer % align or pointer + len(data) > PAGE
    assert plain.is_whole()


def test_memory_that_has_grown_is_seen() -> None:
    plain = Plain(16, later=16)
    plain.size = 32
    plain.memory.pack(struct.Struct("<Q"), 24, 7)
    assert plain.memory.unpack(struct.Struct("<Q"), 24) == (7,)
    assert plain.memory.size_bytes() == 32


def test_one_call_lifts_a_bounded_amount() -> None:
    memory = Plain(16).memory
    memory.spend(LIFT_BUDGET_BYTES)
    with pytest.raises(AbiViolation, match="more than 64 MiB"):
        memory.spend(1)
    memory.begin()
    memory.spend(1)


def test_a_closed_memory_gives_nothing() -> None:
    memory = Plain(16).memory
    memory.close()
    with pytest.raises(AbiViolation, match="closed"):
        memory.view(0, 1)


def test_alignment() -> None:
    check_aligned(8, 4)
    with pytest.raises(AbiViolation):
        check_aligned(6, 4)


def _run(instance: Instance) -> GuestTrap | None:
    try:
        instance.hook(b"", b"")
        return None
    except GuestTrap as trap:
        return trap


def _check(trap: GuestTrap | None, *, honest: bool) -> None:
    """An honest call goes through, a lie is a trap of the guest, and neither is a fault of the host."""
    assert trap is None if honest else trap is not None and trap.reason is TrapReason.TRAP, trap


def _constants(*values: int) -> str:
    return " ".join(f"(i32.const {value})" for value in values)


@properties
@given(pointer=numbers, length=numbers, level=numbers)
def test_log_reads_inside_only(
    hook_of: Callable[..., Instance], recorder: Recorder, pointer: int, length: int, level: int
) -> None:
    recorder.logged.clear()
    instance = hook_of(f"(call $call {_constants(level, pointer, length)}) {CONTINUE}", imports=LOG)
    honest = pointer + length <= PAGE and level < 5
    _check(_run(instance), honest=honest)
    assert not honest or len(recorder.logged) == 1


@properties
@given(length=st.integers(0, 2**64 - 1), area=numbers, pointer=numbers)
def test_random_writes_inside_only(
    hook_of: Callable[..., Instance], length: int, area: int, pointer: int
) -> None:
    instance = hook_of(
        f"(call $call (i64.const {length}) (i32.const {area})) {CONTINUE}",
        imports=RANDOM,
        realloc=f"(if (local.get 3) (then (return (i32.const {pointer}))))",
    )
    honest = area % 4 == 0 and area + 16 <= PAGE and (not 0 < length <= 4096 or pointer + length <= PAGE)
    _check(_run(instance), honest=honest)


@properties
@given(key=numbers, size=numbers, area=numbers)
def test_kv_get_reads_and_writes_inside_only(
    hook_of: Callable[..., Instance], key: int, size: int, area: int
) -> None:
    instance = hook_of(f"(call $call {_constants(key, size, area)}) {CONTINUE}", imports=KV_GET)
    _check(_run(instance), honest=key + size <= PAGE and area % 4 == 0 and area + 16 <= PAGE)


@properties
@given(key=numbers, size=numbers, value=numbers, value_size=numbers, area=numbers)
def test_kv_set_reads_inside_only(
    hook_of: Callable[..., Instance], key: int, size: int, value: int, value_size: int, area: int
) -> None:
    call = f"(call $call {_constants(key, size, value, value_size, area)})"
    honest = key + size <= PAGE and value + value_size <= PAGE and area % 4 == 0 and area + 16 <= PAGE
    _check(_run(hook_of(call + CONTINUE, imports=KV_SET)), honest=honest)


@properties
@given(case=numbers, pointer=numbers, size=numbers)
def test_kv_cas_looks_at_an_absent_option_no_further(
    hook_of: Callable[..., Instance], case: int, pointer: int, size: int
) -> None:
    call = f"(call $call {_constants(0, 1, case, pointer, size, 0, 0, 512)})"
    honest = case == 0 or (case == 1 and pointer + size <= PAGE)
    _check(_run(hook_of(call + CONTINUE, imports=KV_CAS)), honest=honest)


def test_a_guest_may_not_call_the_host_from_its_realloc(
    hook_of: Callable[..., Instance], recorder: Recorder
) -> None:
    recorder.kv.values["k"] = b"value"
    instance = hook_of(
        f"(call $call {_constants(64, 1, 512)}) {CONTINUE}",
        imports=KV_GET,
        more=KEY,
        realloc=f"(call $call {_constants(64, 1, 512)})",
    )
    trap = _run(instance)
    assert trap is not None and trap.message == "the guest called the host while the host was allocating"


def test_a_realloc_that_spins_inside_a_host_call_runs_out_of_fuel(
    hook_of: Callable[..., Instance], recorder: Recorder
) -> None:
    recorder.kv.values["k"] = b"value"
    instance = hook_of(
        f"(call $call {_constants(64, 1, 512)}) {CONTINUE}",
        imports=KV_GET,
        more=KEY,
        realloc="(loop $l (br $l))",
    )
    trap = _run(instance)
    assert trap is not None and trap.reason is TrapReason.FUEL
    assert instance.dead


def test_a_value_that_grows_the_memory_arrives(hook_of: Callable[..., Instance], recorder: Recorder) -> None:
    recorder.kv.values["k"] = bytes(range(256)) * 1024
    answer = """(i32.store (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (i32.const 0))
     (i32.store8 (i32.const 24) (i32.load8_u (i32.const 516)))
     (i32.store (i32.const 28) (i32.load (i32.const 520)))
     (i32.store (i32.const 32) (i32.const 128)) (i32.const 16)"""
    instance = hook_of(f"(call $call {_constants(64, 1, 512)}) {answer}", imports=KV_GET, more=KEY)
    assert instance.hook(b"", b"").data == bytes(range(128))
    assert instance.memory_bytes() > PAGE
