"""kernel.uplinks on a kernel: who hears what comes in, in whose name, and what becomes of too much."""

from __future__ import annotations

import json

import msgspec
import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.manifest import Uplink
from aos_runtime.host.people import UplinkRefused
from aos_runtime.kernel.actor import MAX_WAITING
from aos_runtime.kernel.budget import Budget
from aos_runtime.kernel.guest import GuestPort
from aos_runtime.kernel.kernel import system_cause
from aos_runtime.kernel.ports import Submission
from aos_runtime.kernel.uplinks import GuestUplinks
from aos_runtime.policy.quotas import Quotas
from tests.support.guests import Recorder
from tests.support.kernels import ALICE, Bench, Call, cause

BOT = Uplink(name="bot", platform="discord", profile="chat")


def uplinks_of(bench: Bench, budget: Budget | None = None) -> tuple[GuestUplinks, str]:
    port = GuestPort(bench.kernel, (), "source-of-bridge", system_cause(ALICE), budget=budget)
    port.bind(Recorder().context(capabilities=Capabilities(uplink=True), principal=ALICE))
    uplinks = GuestUplinks((BOT,), port.hand_in, lambda *_: None, lambda _: None, is_uplink=True)
    return uplinks, uplinks.register("bot", "discord", "chat")


def session(bench: Bench, number: int = -1) -> str:
    return str(json.loads(bench.heard[number].body)["session_id"])


def test_it_is_said_to_the_capsules_own_principal_whatever_the_sender_is_called() -> None:
    bench, heard = Bench(), list[Call]()
    bench.capsule("session", heard.append, subscribe={"user.v1.prompt": "go"})
    bench.lifecycle.load_all(ALICE)
    uplinks, bot = uplinks_of(bench)
    assert uplinks.send(bot, "root", '"}{"type":"user_input"') is True
    bench.run()
    [call] = heard
    envelope = call.envelope
    assert (envelope.principal, envelope.request_owner, envelope.device_key_id) == (ALICE, None, None)
    assert (envelope.source_id, envelope.kind, envelope.origin) == (
        "source-of-bridge",
        "user_input",
        "system",
    )
    assert json.loads(call.payload)["text"] == '"}{"type":"user_input"'


def test_each_person_has_a_session_that_a_restart_keeps() -> None:
    bench = Bench()
    bench.capsule("session", subscribe={"user.v1.prompt": "go"})
    bench.lifecycle.load_all(ALICE)
    sessions = []
    for _ in range(2):
        uplinks, bot = uplinks_of(bench)
        for person in ("7", "8"):
            uplinks.send(bot, person, "hello")
            sessions.append(session(bench))
        other = uplinks.register("other", "discord", "bridge")
        uplinks.send(other, "7", "hello")
        sessions.append(session(bench))
    assert sessions[:3] == sessions[3:] and len(set(sessions)) == 3


def test_a_capsule_has_32_uplinks_at_most() -> None:
    uplinks, _ = uplinks_of(Bench())
    for number in range(31):
        uplinks.register(f"u{number}", "irc", "bridge")
    with pytest.raises(UplinkRefused, match="quota"):
        uplinks.register("one more", "irc", "bridge")


def test_nobody_to_take_it_and_no_room_is_false() -> None:
    bench = Bench()
    uplinks, bot = uplinks_of(bench)
    assert uplinks.send(bot, "7", "hello") is False
    bench.capsule("session", subscribe={"user.v1.prompt": "go"})
    bench.lifecycle.load_all(ALICE)
    uplinks, bot = uplinks_of(bench)
    taken = [uplinks.send(bot, "7", "hello") for _ in range(MAX_WAITING + 100)]
    assert taken.index(False) > 64 and not any(taken[taken.index(False) :])
    bench.run()
    assert uplinks.send(bot, "7", "hello") is True


def test_the_rate_of_its_principal_holds() -> None:
    bench = Bench()
    bench.capsule("session", subscribe={"user.v1.prompt": "go"})
    bench.lifecycle.load_all(ALICE)
    budget = Budget("alice", Quotas(max_ipc_throughput_bytes=1000), is_exempt=False)
    port = GuestPort(bench.kernel, (), "source", system_cause(ALICE), budget=budget)
    assert port.hand_in("user.v1.prompt", b'"' + b"x" * 900 + b'"', "user_input") is not None
    assert port.hand_in("user.v1.prompt", b'"' + b"x" * 900 + b'"', "user_input") is None


def test_inside_a_call_it_is_the_callers() -> None:
    bench = Bench()
    port = GuestPort(bench.kernel, (), "source", system_cause(ALICE))
    context = Recorder().context(principal=ALICE)
    port.bind(context)
    context.current = msgspec.structs.replace(cause(), seq=7)
    port.hand_in("user.v1.prompt", b"{}", "user_input")
    assert (bench.heard[-1].request_owner, bench.heard[-1].workspace) == ("owner-1", "/work")


def test_while_it_is_probed_it_brings_in_nothing() -> None:
    bench = Bench()
    bench.capsule("session", subscribe={"user.v1.prompt": "go"})
    bench.lifecycle.load_all(ALICE)
    port = GuestPort(bench.kernel, (), "source", system_cause(ALICE))
    heard = len(bench.heard)
    port.overheard = []
    assert port.hand_in("user.v1.prompt", b"{}", "user_input") is Submission.UNAVAILABLE
    assert (len(bench.heard), port.overheard) == (heard, [])
