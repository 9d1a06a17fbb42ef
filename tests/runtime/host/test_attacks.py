"""Guests that lie to the edge.  Each must end as a trap of that instance, or in nothing at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
        "it panicked or aborted",
    ),
    "lengths that wrap to small": (
        "",
        publish_call(0, -8, 0, 16) + CONTINUE,
        TrapReason.TRAP,
        "it panicked or aborted",
    ),
    "return area outside": (
        "",
        publish_call(0, 1, 0, 1, -4) + CONTINUE,
        TrapReason.TRAP,
        "it panicked or aborted",
    ),
    "return area misaligned": (
        "",
        publish_call(0, 1, 0, 1, 514) + CONTINUE,
        TrapReason.TRAP,
        "the guest gave a misaligned pointer",
    ),
    "result record outside": ("", "(i32.const -8)", TrapReason.TRAP, "it reached outside its memory"),
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
        "the hook's result is larger than 12 MiB",
    ),
    "result option with a third case": (
        "",
        "(i32.store8 (i32.const 24) (i32.const 2)) (i32.const 16)",
        TrapReason.TRAP,
        "it panicked or aborted",
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
