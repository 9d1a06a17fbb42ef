"""What the kernel says by itself: capsules that come and go, the watchdog, losses."""

from __future__ import annotations

import json

import pytest

from aos_runtime.kernel.events import KernelEvents
from aos_runtime.kernel.kernel import system_cause
from aos_runtime.kernel.loading import Unready
from aos_runtime.kernel.subscriptions import Owner
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.wire.methods import NIL_SOURCE
from tests.support.kernels import ALICE, Bench, env_row


class Told:
    """A bench whose views are told as events."""

    def __init__(self) -> None:
        self.bench = Bench()
        kernel, lifecycle = self.bench.kernel, self.bench.lifecycle

        def announce(principal: PrincipalName, topic: str, body: bytes) -> None:
            kernel.publish(topic, body, None, NIL_SOURCE, system_cause(principal))

        self.events = KernelEvents(announce, lambda: lifecycle.views, kernel.subscriptions.lost_by_principal)
        lifecycle._on_change = self.events.changed

    def said(self) -> list[tuple[str, object]]:
        """Everything since the last look, by topic without `astrid.v1.`."""
        heard = [(one.topic.removeprefix("astrid.v1."), json.loads(one.body)) for one in self.bench.heard]
        assert {one.principal for one in self.bench.heard} <= {ALICE}
        self.bench.heard.clear()
        return heard


@pytest.fixture
def told() -> Told:
    return Told()


def loaded(name: str, version: str = "0.1.0", event: str = "capsule_loaded") -> tuple[str, object]:
    facts = {"event": event, "principal": "alice", "capsule_id": name, "version": version}
    return f"lifecycle.{event}", facts


def test_capsules_that_come_go_and_fail(told: Told) -> None:
    told.bench.capsule("one")
    broken = Unready(name="two", version="0.3.0", state="failed", reason="no")
    told.bench.loads[ALICE, CapsuleName("two")] = broken
    told.bench.lifecycle.load_all(ALICE)
    topic, facts = loaded("two", "0.3.0", "capsule_failed")
    assert isinstance(facts, dict)
    said = told.said()
    assert said[:2] == [loaded("one"), (topic, {**facts, "reason": "no"})]
    assert said[2][0] == "capsules_loaded" and len(said) == 3
    told.bench.capsule("one", version="0.2.0")
    told.bench.lifecycle.reload(ALICE, CapsuleName("one"))
    assert told.said() == [loaded("one", "0.2.0")], "what still fails is not told again"
    told.bench.lifecycle.unload(ALICE, CapsuleName("one"))
    assert told.said() == [loaded("one", "0.2.0", "capsule_unloaded")]


def test_clients_and_capsules_hear_which_values_a_capsule_waits_for(told: Told) -> None:
    rows = (
        env_row("TOKEN", type="secret", request="Your token", placeholder="sk-...", default="never shown"),
        env_row("CITY", enum_values=("Bern", "Oslo"), default="Bern", description="Where\x1b[2Jit is"),
        env_row("TAGS", type="array"),
        env_row("LINES", type="integer", default=3),
    )
    unset = Unready(name="unset", version="0.1.0", state="needs-config", reason="no TOKEN", missing=rows)
    told.bench.loads[ALICE, CapsuleName("unset")] = unset
    told.bench.lifecycle.load_all(ALICE)
    (body,) = [body for topic, body in told.said() if topic == "onboarding.required"]
    assert body == {
        "type": "onboarding_required",
        "capsule_id": "unset",
        "fields": [
            {"key": "TOKEN", "prompt": "Your token", "field_type": "Secret", "placeholder": "sk-..."},
            {
                "key": "CITY",
                "prompt": "Please enter value for CITY",
                "field_type": {"Enum": ["Bern", "Oslo"]},
                "default": "Bern",
                "description": "Where\\u{1b}[2Jit is",
            },
            {"key": "TAGS", "prompt": "Please enter value for TAGS", "field_type": "Array"},
            {"key": "LINES", "prompt": "Please enter value for LINES", "field_type": "Text"},
        ],
    }
    told.bench.capsule("other")
    told.bench.lifecycle.reload(ALICE, CapsuleName("other"))
    assert [topic for topic, _ in told.said() if topic == "onboarding.required"] == [], "told once"


def test_a_reload_of_the_same_version_is_a_loading(told: Told) -> None:
    told.bench.capsule("one")
    told.bench.lifecycle.load_all(ALICE)
    told.said()
    told.bench.capsule("one")
    told.bench.lifecycle.reload(ALICE, CapsuleName("one"))
    assert told.said() == [loaded("one")]


def test_the_daemon_itself(told: Told) -> None:
    told.events.started("b1")
    assert told.said() == [], "nobody is there yet"
    told.bench.lifecycle.load_all(ALICE)
    told.said()
    told.events.started("b1")
    told.events.stopping()
    assert told.said() == [
        ("lifecycle.kernel_started", {"event": "kernel_started", "principal": "alice", "boot_id": "b1"}),
        ("lifecycle.kernel_shutdown", {"event": "kernel_shutdown", "principal": "alice"}),
    ]


def test_the_watchdog_ticks_every_five_seconds(told: Told) -> None:
    told.bench.lifecycle.load_all(ALICE)
    told.said()
    ticks = []
    for now in (100.0, 100.25, 104.9, 105.0, 107.0, 110.1):
        told.events.sweep(now)
        ticks.append(len([one for one in told.said() if one == ("watchdog.tick", {})]))
    assert ticks == [1, 0, 0, 1, 0, 1]


def test_every_principal_that_is_served_hears_the_watchdog() -> None:
    told = Told()
    for principal in (ALICE, PrincipalName("bob")):
        told.bench.lifecycle.load_all(principal)
    told.bench.heard.clear()
    told.events.sweep(100.0)
    assert [(one.topic, one.principal, one.body) for one in told.bench.heard] == [
        ("astrid.v1.watchdog.tick", "alice", b"{}"),
        ("astrid.v1.watchdog.tick", "bob", b"{}"),
    ]


def test_losses_are_told_at_most_every_ten_seconds(told: Told) -> None:
    bench = told.bench
    bench.capsule("slow", subscribe={"n.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    lagged = []

    def look(now: float) -> None:
        told.events.sweep(now)
        lagged.extend((now, body) for topic, body in told.said() if topic == "event_bus.lagged")

    look(0.0)
    for _ in range(70):
        bench.publish("n.v1")
    with bench.kernel.order:
        bench.kernel.subscriptions.note_loss(Owner(CapsuleName("x"), ALICE).principal, 4)
    look(5.0)
    look(10.0)
    look(20.0)
    assert lagged == [(10.0, {"lagged_count": 10})]
    bench.lifecycle.unload(ALICE, CapsuleName("slow"))
    look(30.0)
    assert len(lagged) == 1
