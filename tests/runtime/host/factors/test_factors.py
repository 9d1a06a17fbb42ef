"""The list of factors as a whole: which there are, which may wait, and that each crosses the boundary."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.home import Home
from aos_runtime.host import Case, GuestTrap, HostEngine, Instance, wit
from aos_runtime.host.door import AbiViolation
from aos_runtime.host.factors import FACTORS
from aos_runtime.host.functions import FunctionCodec
from aos_runtime.kernel.identities import GuestIdentities
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.file_tree import has_room
from aos_runtime.store.identity import IdentityStore
from tests.support.guests import (
    CONTINUE,
    FS,
    HTTP,
    HTTP_OLD,
    IDENTITY,
    IO_ERROR,
    IPC,
    KV,
    NET,
    POLL,
    REQUEST_CONTEXT,
    STREAMS,
    SYS,
    UPLINK,
    FakeInflow,
    Recorder,
    guest_text,
)
from tests.support.network import Net

WAITING = {
    # Every function that can wait, with arguments that make it.
    (SYS, "sleep-ns"): (1,),
    (IPC, "[method]subscription.recv"): (1, 5),
    (KV, "kv-set"): ("k", bytes(1 << 17)),
    (KV, "kv-cas"): ("k", None, bytes(1 << 17)),
    (KV, "kv-clear-prefix"): ("",),
}
ALWAYS_WAITING = (FS, IDENTITY)
"""Interfaces whose every function may wait."""
REACHING = (HTTP_OLD, HTTP, NET)
"""Interfaces whose every function but the methods of what it gave may wait."""


def test_what_is_built() -> None:
    expected = {FS: 23, HTTP_OLD: 8, HTTP: 15, IO_ERROR: 1, IPC: 7, KV: 7, NET: 47, POLL: 3, STREAMS: 15}
    expected |= {SYS: 10, IDENTITY: 5, UPLINK: 2, REQUEST_CONTEXT: 2}
    assert {one: sum(key[0] == one for key in FACTORS) for one in expected} == expected


def smallest(kind: wit.Type) -> Any:
    """Some value of a type."""
    match kind:
        case wit.Primitive("string"):
            return "k"
        case wit.Primitive():
            return 0
        case wit.ListOf():
            return b"" if kind == wit.BYTES else []
        case wit.Option():
            return None
        case wit.Handle():
            return 1
        case wit.Enum(names):
            return names[0]
        case wit.Variant(cases):
            return Case(cases[0][0])
        case wit.Record(fields):
            return {name: smallest(field) for name, field in fields}
    raise AssertionError(kind)


def takes_a_lie(key: tuple[str, str]) -> bool:
    """Whether a handle that the guest does not hold stops it: the function has no error to answer with."""
    signature = FACTORS[key].signature
    handles = any(isinstance(kind, wit.Handle) for _, kind in signature.params)
    return handles and not isinstance(signature.result, wit.Result)


@pytest.mark.parametrize("key", sorted(FACTORS), ids=lambda key: key[1])
def test_those_that_wait_make_way_first(key: tuple[str, str], recorder: Recorder, tmp_path: Path) -> None:
    published = FACTORS[key]
    order: list[str] = []
    context = recorder.context(
        before_block=lambda: order.append("way"),
        sleep=lambda _s: order.append("wait") or True,
        network=Net().door(),
        identities=GuestIdentities(
            IdentityStore(Home(tmp_path)),
            DEFAULT_PRINCIPAL,
            ("admin",),
            has_room,
            lambda _call, _target, _error: order.append("act"),
            lambda _denial: None,
            lambda _problem: None,
        ),
    )
    if key[0] == IPC:
        context.resources.add("subscription", FakeInflow())
    arguments = WAITING.get(key) or [smallest(kind) for _, kind in published.signature.params]
    is_lie = takes_a_lie(key) and key[0] != IPC  # its one handle is a subscription's
    with pytest.raises(AbiViolation) if is_lie else contextlib.nullcontext():
        published.run(context, *arguments)
    may_wait = key in WAITING or key[0] in ALWAYS_WAITING
    may_wait = may_wait or (key[0] in REACHING and not key[1].startswith("[method]"))
    assert order[:1] == (["way"] if may_wait else [])


@pytest.mark.parametrize("key", sorted(FACTORS), ids=lambda key: key[1])
def test_each_crosses_the_boundary(
    key: tuple[str, str], engine: HostEngine, instantiate: Callable[..., Instance]
) -> None:
    """The core type is what the codec says, and a call with plain zeros comes back."""
    codec = FunctionCodec(FACTORS[key].signature)
    params = list(codec.core_params)
    zeros = [f"({kind}.const 0)" for kind in params]
    if codec.core_results == () and FACTORS[key].signature.result is not None:
        zeros[-1] = "(i32.const 512)"
    results = f"(result {' '.join(codec.core_results)})" if codec.core_results else ""
    kind = f"(func $call (param {' '.join(params)}) {results})" if params else f"(func $call {results})"
    call = f"(call $call {' '.join(zeros)})"
    call = f"(drop {call})" if codec.core_results else call
    instance = instantiate(guest_text(call + CONTINUE, imports=f'(import "{key[0]}" "{key[1]}" {kind})'))
    with pytest.raises(GuestTrap) if takes_a_lie(key) else contextlib.nullcontext():
        assert instance.hook(b"", b"").action == ""
