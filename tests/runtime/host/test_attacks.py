"""Guests that lie to the edge.  Each must end as a trap of that instance, or in nothing at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aos_runtime.host import GuestTrap, Instance, TrapReason
from tests.support.guests import CONTINUE, Recorder, guest_text, publish_call

PAGE = 65536
TRAPS: dict[str, tuple[str, str, TrapReason, str]] = {
    # name: (realloc, hook, reason, message)
    "topic pointer outside": (
        "",
        publish_call(-16, 8, 0, 0) + CONTINUE,
        TrapReason.TRAP,
        "it reached outside its memory",
    ),
    "payload end outside": (
        "",
        publish_call(0, 1, PAGE - 6, 7) + CONTINUE,
        TrapReason.TRAP,
        "it reached outside its memory",
    ),
    "lengths of 4 GiB - 1": (
        "",
        publish_call(0, -1, 0, -1) + CONTINUE,
        TrapReason.TRAP,
        "the guest gave a pointer outside its memory",
    ),
    "lengths that wrap to small": (
        "",
        publish_call(0, -8, 0, 16) + CONTINUE,
        TrapReason.TRAP,
        "the guest gave a pointer outside its memory",
    ),
    "return area outside": (
        "",
        publish_call(0, 1, 0, 1, -4) + CONTINUE,
        TrapReason.TRAP,
        "the guest gave a pointer outside its memory",
    ),
    "return area misaligned": (
        "",
        publish_call(0, 1, 0, 1, 514) + CONTINUE,
        TrapReason.TRAP,
        "the guest gave a misaligned pointer",
    ),
    "result record outside": (
        "",
        "(i32.const -8)",
        TrapReason.TRAP,
        "the guest gave a pointer outside its memory",
    ),
    "result record that ends outside": (
        "",
        f"(i32.const {PAGE - 12})",
        TrapReason.TRAP,
        "the guest gave a pointer outside its memory",
    ),
    "result record misaligned": (
        "",
        "(i32.const 18)",
        TrapReason.TRAP,
        "the guest gave a misaligned pointer",
    ),
    "result string outside": (
        "",
        f"(i32.store (i32.const 16) (i32.const {PAGE - 1})) (i32.store (i32.const 20) (i32.const 2))"
        " (i32.const 16)",
        TrapReason.TRAP,
        "it reached outside its memory",
    ),
    "result data length huge": (
        "",
        "(i32.store8 (i32.const 24) (i32.const 1)) (i32.store (i32.const 32) (i32.const -1)) (i32.const 16)",
        TrapReason.TRAP,
        "the hook's result is too large",
    ),
    "result option with a third case": (
        "",
        "(i32.store8 (i32.const 24) (i32.const 2)) (i32.const 16)",
        TrapReason.TRAP,
        "the guest passed a variant with an unknown case",
    ),
    "result action is not UTF-8": (
        "",
        "(i32.store8 (i32.const 64) (i32.const 255)) (i32.store (i32.const 16) (i32.const 64))"
        " (i32.store (i32.const 20) (i32.const 1)) (i32.const 16)",
        TrapReason.TRAP,
        "the guest returned a string that is not UTF-8",
    ),
    "result data is not UTF-8": (
        "",
        "(i32.store8 (i32.const 64) (i32.const 255)) (i32.store8 (i32.const 24) (i32.const 1))"
        " (i32.store (i32.const 28) (i32.const 64)) (i32.store (i32.const 32) (i32.const 1)) (i32.const 16)",
        TrapReason.TRAP,
        "the guest returned a string that is not UTF-8",
    ),
    "realloc lies": ("(return (i32.const -1))", CONTINUE, TrapReason.TRAP, "it reached outside its memory"),
    "realloc spins": (
        "(loop $l (br $l))",
        CONTINUE,
        TrapReason.FUEL,
        "it ran more instructions than one call may",
    ),
    "realloc publishes": (
        publish_call(0, 0, 0, 0),
        CONTINUE,
        TrapReason.TRAP,
        "the guest called the host while the host was allocating",
    ),
    "spins": (
        "",
        "(loop $l (br $l)) " + CONTINUE,
        TrapReason.FUEL,
        "it ran more instructions than one call may",
    ),
    "recurses": (
        "",
        "(drop (call $again (i32.const 0)))" + CONTINUE,
        TrapReason.TRAP,
        "it exhausted its call stack",
    ),
    "topic is not UTF-8": (
        "",
        "(i32.store8 (i32.const 64) (i32.const 255))" + publish_call(64, 1, 0, 0) + CONTINUE,
        TrapReason.TRAP,
        "the guest published a string that is not UTF-8",
    ),
    "payload is not UTF-8": (
        "",
        "(i32.store8 (i32.const 64) (i32.const 255))" + publish_call(0, 1, 64, 1) + CONTINUE,
        TrapReason.TRAP,
        "the guest published a string that is not UTF-8",
    ),
    "unreachable": ("", "unreachable", TrapReason.TRAP, "it panicked or aborted"),
    "divides by zero": (
        "",
        "(i32.div_u (i32.const 1) (i32.const 0))",
        TrapReason.TRAP,
        "it divided by zero",
    ),
}
RECURSION = """(func $again (param i32) (result i32)
 (i32.add (call $again (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))"""


@pytest.mark.parametrize("name", TRAPS)
def test_a_lie_is_a_trap(name: str, instantiate: Callable[..., Instance], recorder: Recorder) -> None:
    realloc, hook, reason, message = TRAPS[name]
    instance = instantiate(guest_text(hook, realloc=realloc, more=RECURSION))
    with pytest.raises(GuestTrap) as caught:
        instance.hook(b"act", b"{}")
    assert (caught.value.reason, caught.value.message, instance.dead) == (reason, message, True)
    assert recorder.published == []


def test_post_return_may_not_publish(instantiate: Callable[..., Instance], recorder: Recorder) -> None:
    instance = instantiate(guest_text(post=publish_call(0, 0, 0, 0)))
    with pytest.raises(GuestTrap, match="while the host was allocating"):
        instance.hook(b"act", b"{}")
    assert recorder.published == []


def test_an_honest_guest_publishes(instantiate: Callable[..., Instance], recorder: Recorder) -> None:
    text = '(data (i32.const 64) "topic") (data (i32.const 80) "\\7b\\7d")'
    instance = instantiate(guest_text(publish_call(64, 5, 80, 2) + CONTINUE, more=text))
    assert instance.hook(b"act", b"{}").action == ""
    assert recorder.published == [("topic", b"{}")]


def test_the_very_last_byte_is_inside(instantiate: Callable[..., Instance], recorder: Recorder) -> None:
    instantiate(guest_text(publish_call(PAGE - 1, 1, PAGE, 0) + CONTINUE)).hook(b"", b"")
    assert recorder.published == [("\0", b"")]


def test_cmp_07_memory_cannot_grow_past_its_limit(instantiate: Callable[..., Instance]) -> None:
    grown = "(if (i32.ne (memory.grow (i32.const 16384)) (i32.const -1)) (then unreachable))"
    instance = instantiate(guest_text(grown + CONTINUE))
    assert instance.hook(b"act", b"{}").action == ""
    assert instance.memory_bytes() == PAGE


def test_cmp_07_tables_cannot_grow_past_their_limit(instantiate: Callable[..., Instance]) -> None:
    grown = (
        "(if (i32.ne (table.grow $t (ref.null func) (i32.const 1000000)) (i32.const -1)) (then unreachable))"
    )
    instance = instantiate(guest_text(grown + CONTINUE, more="(table $t 1 funcref)"))
    assert instance.hook(b"act", b"{}").action == ""


def test_a_flood_of_publishes_stays_within_the_window(
    instantiate: Callable[..., Instance], recorder: Recorder
) -> None:
    loop = f"""(local.set $i (i32.const 100))
     (loop $l {publish_call(0, 1, 0, 40000)}
       (local.set $i (i32.sub (local.get $i) (i32.const 1))) (br_if $l (local.get $i)))"""
    instantiate(guest_text(loop + CONTINUE)).hook(b"act", b"{}")
    assert len(recorder.published) == 100
    assert {len(payload) for _, payload in recorder.published} == {40000}


numbers = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 4, PAGE - 16, PAGE - 1, PAGE, PAGE + 1, 2**31, 2**32 - 1, 2**32 - 4]),
)
fuzzed = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def inside(at: int, size: int) -> bool:
    return at + size <= PAGE


@fuzzed
@given(topic=numbers, topic_size=numbers, payload=numbers, payload_size=numbers, area=numbers)
def test_publish_of_any_numbers_is_honest_or_a_trap(
    instantiate: Callable[..., Instance],
    recorder: Recorder,
    topic: int,
    topic_size: int,
    payload: int,
    payload_size: int,
    area: int,
) -> None:
    recorder.published.clear()
    call = publish_call(topic, topic_size, payload, payload_size, area)
    honest = (
        inside(topic, topic_size) and inside(payload, payload_size) and inside(area, 16) and area % 4 == 0
    )
    _expect(instantiate(guest_text(call + CONTINUE)), honest)
    assert len(recorder.published) == honest


@fuzzed
@given(action=numbers, action_size=numbers, case=st.integers(0, 255), data=numbers, size=numbers, at=numbers)
def test_a_result_of_any_numbers_is_honest_or_a_trap(
    instantiate: Callable[..., Instance],
    action: int,
    action_size: int,
    case: int,
    data: int,
    size: int,
    at: int,
) -> None:
    stores = "".join(
        f"(i32.store (i32.const {place}) (i32.const {value}))"
        for place, value in ((16, action), (20, action_size), (28, data), (32, size))
    )
    hook = f"{stores} (i32.store8 (i32.const 24) (i32.const {case})) (i32.const {at if at % 3 else 16})"
    trusted = inside(action, action_size) and (case == 0 or (case == 1 and inside(data, size)))
    trap = _run(instantiate(guest_text(hook)))
    assert trap is None or trap.reason is TrapReason.TRAP
    if at % 3 == 0:  # the record that was just written; elsewhere it is whatever is there
        assert (trap is None or "not UTF-8" in trap.message) == trusted


def _run(instance: Instance) -> GuestTrap | None:
    try:
        instance.hook(b"", b"")
        return None
    except GuestTrap as trap:
        return trap


def _expect(instance: Instance, honest: bool) -> None:
    trap = _run(instance)
    assert trap is None if honest else trap is not None and trap.reason is TrapReason.TRAP, trap
