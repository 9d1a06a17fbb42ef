"""A guest that subscribes, receives and lets go, through the canonical ABI of the edge lane."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aos_runtime.host import GuestTrap, HostEngine, Instance
from tests.support.guests import CONTINUE, IPC, FakeInflow, Recorder, code_of, envelope_from, guest_text

IMPORTS = f"""
 (import "{IPC}" "subscribe" (func $subscribe (param i32 i32 i32)))
 (import "{IPC}" "[method]subscription.poll" (func $poll (param i32 i32)))
 (import "{IPC}" "[method]subscription.recv" (func $recv (param i32 i64 i32)))
 (import "{IPC}" "[resource-drop]subscription" (func $drop (param i32)))"""
SUBSCRIBE = "(call $subscribe (i32.const 0) (i32.const 1) (i32.const 512))"
HANDLE = "(i32.load (i32.const 516))"
ANSWER = """(i32.store8 (i32.const 100) (i32.load8_u (i32.const 600)))
 (i32.store8 (i32.const 101) (i32.load8_u (i32.const 608)))
 (i32.store8 (i32.const 102) (i32.load8_u (i32.const 612)))
 (i32.store (i32.const 16) (i32.const 100)) (i32.store (i32.const 20) (i32.const 3))
 (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)"""
"""Returns of the result at 600: which arm, the error case, and the number of messages."""


def receive(handle: str = HANDLE) -> str:
    return f"(call $recv {handle} (i64.const 5) (i32.const 600))"


def poll(handle: str = HANDLE) -> str:
    return f"(call $poll {handle} (i32.const 600))"


Build = Callable[..., tuple[Instance, FakeInflow]]


@pytest.fixture
def guest(engine: HostEngine, recorder: Recorder, instantiate: Callable[..., Instance]) -> Build:
    def build(hook: str, *, envelopes: int = 1, **changes: object) -> tuple[Instance, FakeInflow]:
        inflow = FakeInflow(*[envelope_from("alice")] * envelopes)
        code = code_of(engine, guest_text(hook, imports=IMPORTS))
        return instantiate(code, subscribe=lambda _pattern: inflow, **changes), inflow

    return build


def test_cmp_21_a_message_crosses(guest: Build) -> None:
    instance, inflow = guest(SUBSCRIBE + receive() + ANSWER)
    got = instance.hook(b"", b"").action
    assert (got[0], got[2]) == ("\0", "\x01"), "the ok arm, one message"
    assert inflow.closes == 1, "the handle does not outlive the hook"
    assert instance.hook(b"", b"").action[:2] == "\x01\x02", "this fake is closed from here on"


@pytest.mark.parametrize("call", [receive, poll])
def test_cmp_21_unknown_and_dropped_handles_are_closed_and_the_guest_goes_on(
    guest: Build, call: Callable[..., str]
) -> None:
    unknown = call("(i32.const 99)")
    dropped = SUBSCRIBE + f"(call $drop {HANDLE})" + call()
    for hook in (unknown, dropped, dropped + f"(call $drop {HANDLE})"):
        instance, _ = guest(hook + ANSWER)
        assert instance.hook(b"", b"").action[:2] == "\x01\x02", "the err arm, case `closed`"
        assert instance.hook(b"", b"").action[:2] == "\x01\x02"


def test_a_refused_subscription_is_the_err_arm(guest: Build) -> None:
    instance, _ = guest(
        SUBSCRIBE + "(i32.store (i32.const 600) (i32.load (i32.const 512)))"
        "(i32.store (i32.const 608) (i32.load (i32.const 516)))" + ANSWER,
    )
    instance.context.subscribe = lambda _pattern: "quota"
    assert instance.hook(b"", b"").action[:2] == "\x01\x05"


def test_handles_outlive_a_hook_only_where_they_may(guest: Build) -> None:
    instance, inflow = guest(SUBSCRIBE + CONTINUE, keeps_resources=True)
    instance.hook(b"", b"")
    assert (inflow.closes, instance.context.resources.live) == (0, 1)
    instance.close()
    assert (inflow.closes, instance.context.resources.live) == (1, 0)


def test_a_trap_lets_go_of_everything(guest: Build) -> None:
    instance, inflow = guest(SUBSCRIBE + "unreachable", keeps_resources=True)
    with pytest.raises(GuestTrap):
        instance.hook(b"", b"")
    assert (inflow.closes, instance.context.resources.live) == (1, 0)


def test_ten_thousand_subscriptions_leave_nothing(guest: Build) -> None:
    instance, inflow = guest(SUBSCRIBE + f"(call $drop {HANDLE})" + CONTINUE)
    for _ in range(10_000):
        instance.hook(b"", b"")
    resources = instance.context.resources
    assert (resources.opened, resources.closed, resources.live, inflow.closes) == (10_000, 10_000, 0, 10_000)
