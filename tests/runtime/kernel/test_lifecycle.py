"""Loading, hot swap, unloading: no queued call is lost, one broken capsule stops nobody, one provider per
tool.
"""

from __future__ import annotations

import json
from itertools import permutations
from types import SimpleNamespace

import pytest

from aos_runtime.errors import NotFound, Unavailable
from aos_runtime.host import HookResult
from aos_runtime.kernel.loading import Loaded, Unready
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.wire.payloads import TOOL_EXECUTE_REQUEST, encode_tool_request
from tests.support.kernels import ALICE, Bench, Call

ONE = CapsuleName("one")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def unready(name: str, state: str = "failed", reason: str = "it is broken") -> Unready:
    return Unready(name=name, version=None, state=state, reason=reason)


def test_dmn_19_one_broken_capsule_stops_nobody(bench: Bench) -> None:
    calls: list[Call] = []
    bench.capsule("good", calls.append, subscribe={"a.v1": "go"})
    bench.loads[ALICE, CapsuleName("bad")] = unready("bad")
    bench.loads[ALICE, CapsuleName("new")] = unready(
        "new", "needs-config", "capsule 'new' is not configured (KEY)"
    )
    view = bench.lifecycle.load_all(ALICE)
    bench.publish("a.v1")
    bench.run()
    assert len(calls) == 1
    assert view.names == ("good",)
    assert [(one.name, one.state) for one in view.unready.values()] == [
        ("bad", "failed"),
        ("new", "needs-config"),
    ]


def test_a_principal_is_loaded_once(bench: Bench) -> None:
    bench.capsule("one")
    assert bench.lifecycle.load_all(ALICE) is bench.lifecycle.load_all(ALICE)
    assert bench.lifecycle.is_loaded(ALICE)
    assert not bench.lifecycle.is_loaded(PrincipalName("bob"))
    assert bench.lifecycle.view(PrincipalName("bob")).names == ()


def test_a_reload_keeps_the_queue_and_the_counts(bench: Bench) -> None:
    seen: list[tuple[str, bytes]] = []
    bench.capsule("one", lambda call: seen.append(("old", call.payload)), subscribe={"a.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    for number in range(3):
        bench.publish("a.v1", str(number).encode())
    actor = bench.ready[0]
    actor.run_one()
    bench.capsule(
        "one", lambda call: seen.append(("new", call.payload)), subscribe={"a.v1": "go"}, version="0.2.0"
    )
    view = bench.lifecycle.reload(ALICE, ONE)
    bench.run()
    assert seen == [("old", b"0"), ("new", b"1"), ("new", b"2")]
    assert view.residents[ONE].version == "0.2.0"
    assert view.residents[ONE].actor is actor
    assert actor.meter.calls == 3
    assert [one.closed for one in bench.instances] == [True, False]


def test_a_version_that_is_there_serves_from_its_reload_on_and_not_before(bench: Bench) -> None:
    seen: list[str] = []
    bench.capsule("one", lambda call: seen.append("old"), subscribe={"a.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    bench.capsule("one", lambda call: seen.append("new"), subscribe={"a.v1": "go"}, version="0.2.0")
    for _ in range(2):
        bench.publish("a.v1")
        bench.run()
    assert seen == ["old", "old"]
    bench.lifecycle.reload(ALICE, ONE)
    bench.publish("a.v1")
    bench.run()
    assert seen == ["old", "old", "new"]


def test_an_idle_capsules_old_instance_is_closed_by_the_reload(bench: Bench) -> None:
    bench.capsule("one", subscribe={"a.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    bench.publish("a.v1")
    bench.run()
    bench.capsule("one", subscribe={"b.v1": "go"})
    bench.lifecycle.reload(ALICE, ONE)
    assert [one.closed for one in bench.instances] == [True]
    bench.publish("a.v1")
    assert not bench.ready


def test_a_version_that_does_not_load_leaves_the_old_one_serving(bench: Bench) -> None:
    calls: list[Call] = []
    bench.capsule("one", calls.append, subscribe={"a.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    bench.loads[ALICE, ONE] = unready("one", reason="its code is damaged")
    with pytest.raises(Unavailable, match="its code is damaged"):
        bench.lifecycle.reload(ALICE, ONE)
    bench.publish("a.v1")
    bench.run()
    assert len(calls) == 1
    view = bench.lifecycle.view(ALICE)
    assert view.names == (ONE,)
    assert view.unready[ONE].reason == "its code is damaged"
    bench.capsule("one", calls.append, subscribe={"a.v1": "go"})
    assert bench.lifecycle.reload(ALICE, ONE).unready == {}


def test_a_capsule_that_is_not_installed_cannot_be_reloaded(bench: Bench) -> None:
    def load(principal: PrincipalName, name: CapsuleName) -> Unready:
        raise NotFound("capsule-not-installed", "it is not there", hint="install it")

    bench.load = load  # type: ignore[method-assign]
    with pytest.raises(NotFound) as raised:
        bench.lifecycle.reload(ALICE, CapsuleName("nope"))
    assert raised.value.message == (
        "capsule 'nope' was not found in the install directories or failed to load"
    )


def test_an_unloaded_capsule_answers_what_waited_for_it(bench: Bench) -> None:
    bench.capsule("one", subscribe={"tool.v1.execute.x": "go"}, tools=["x"])
    bench.lifecycle.load_all(ALICE)
    bench.publish("tool.v1.execute.x", encode_tool_request("c1", "x", {}), TOOL_EXECUTE_REQUEST)
    assert bench.lifecycle.unload(ALICE, ONE)
    assert not bench.lifecycle.unload(ALICE, ONE)
    receipt = bench.heard[-1]
    assert receipt.topic == "astrid.v1.response.failure.c1"
    assert json.loads(receipt.body) == {"req_id": "c1", "reason": "capsule 'one' was unloaded"}
    bench.run()
    assert bench.instances == []
    assert not bench.kernel.is_handled("tool.v1.execute.x", ALICE)


def test_bus_12_the_provider_of_a_tool_does_not_depend_on_load_order() -> None:
    """The earlier installed one serves, the other is shown, and follows when that goes."""
    for order in permutations(("late", "early")):
        bench = Bench()
        served: list[str] = []
        for name in order:
            bench.capsule(
                name,
                lambda call, name=name, served=served: served.append(name),
                subscribe={"tool.v1.execute.search": "go"},
                tools=["search"],
                installed_at="2026-01-01T00:00:00+00:00" if name == "early" else "2026-02-01T00:00:00+00:00",
            )
        view = bench.lifecycle.load_all(ALICE)
        bench.publish("tool.v1.execute.search")
        bench.run()
        assert served == ["early"]
        assert (view.tools["search"].capsule, view.tools["search"].shadowed) == ("early", ("late",))
        assert [(one.topic, one.winner, one.loser) for one in view.surfaces.shadowed] == [
            ("tool.v1.execute.search", "early", "late")
        ]
        bench.lifecycle.unload(ALICE, CapsuleName("early"))
        bench.publish("tool.v1.execute.search")
        bench.run()
        assert served == ["early", "late"]


def test_a_bundled_capsule_yields_to_an_installed_one(bench: Bench) -> None:
    row = {"tool.v1.execute.x": "go"}
    bench.capsule(
        "bundled", subscribe=row, tools=["x"], bundled=True, installed_at="2020-01-01T00:00:00+00:00"
    )
    bench.capsule("own", subscribe=row, tools=["x"])
    assert bench.lifecycle.load_all(ALICE).tools["x"].capsule == "own"


def test_an_installed_router_takes_the_place_of_the_bundled_one(bench: Bench) -> None:
    """Two routers would run every call twice."""
    rows = {"tool.v1.request.execute": "request", "tool.v1.execute.*.result": "result"}
    routed: list[str] = []
    for name, bundled in (("aos-router", False), ("router", True)):
        bench.capsule(name, lambda call, name=name: routed.append(name), subscribe=rows, bundled=bundled)
    view = bench.lifecycle.load_all(ALICE)
    bench.publish("tool.v1.request.execute")
    bench.run()
    assert routed == ["aos-router"]
    assert {(one.loser, one.winner) for one in view.surfaces.shadowed} == {("router", "aos-router")}
    bench.lifecycle.unload(ALICE, CapsuleName("aos-router"))
    bench.publish("tool.v1.request.execute")
    bench.run()
    assert routed == ["aos-router", "router"]


def test_bus_13_tools_come_and_go_with_their_capsules(bench: Bench) -> None:
    bench.capsule("one", subscribe={"tool.v1.execute.x": "go"}, tools=["x"])
    assert list(bench.lifecycle.load_all(ALICE).tools) == ["x"]
    bench.capsule("two", subscribe={"tool.v1.execute.y": "go"}, tools=["y"])
    assert list(bench.lifecycle.reload(ALICE, CapsuleName("two")).tools) == ["x", "y"]
    bench.lifecycle.unload(ALICE, ONE)
    assert list(bench.lifecycle.view(ALICE).tools) == ["y"]


def test_two_principals_have_their_own_capsules_of_one_name(bench: Bench) -> None:
    bob = PrincipalName("bob")
    served: list[str] = []
    for principal in (ALICE, bob):
        bench.capsule(
            "one",
            lambda call, principal=principal: served.append(f"{principal} for {call.envelope.principal}"),
            subscribe={"a.v1": "go"},
            principal=principal,
        )
        bench.lifecycle.load_all(principal)
    bench.publish("a.v1", principal="bob")
    bench.publish("a.v1", principal="alice")
    bench.run()
    assert served == ["bob for bob", "alice for alice"]


def test_closing_drops_every_instance(bench: Bench) -> None:
    bench.capsule("one", lambda call: HookResult("continue", None), subscribe={"a.v1": "go"})
    bench.lifecycle.load_all(ALICE)
    bench.publish("a.v1")
    bench.run()
    bench.lifecycle.close()
    assert [one.closed for one in bench.instances] == [True]


def test_a_reload_for_a_principal_that_nobody_used_yet_loads_all_of_it(bench: Bench) -> None:
    bench.capsule("one")
    bench.capsule("two")
    assert bench.lifecycle.reload(ALICE, ONE).names == ("one", "two")


def test_a_load_that_is_under_way_ends_with_the_daemon(bench: Bench) -> None:
    """Each of many capsules may take its time."""
    loaded: list[str] = []
    for name in ("one", "two", "three"):
        bench.capsule(name)
    load = bench.lifecycle._loader.load

    def load_and_stop(principal: PrincipalName, name: CapsuleName) -> Loaded | Unready:
        loaded.append(name)
        bench.lifecycle.stop_loops()
        return load(principal, name)

    bench.lifecycle._loader = SimpleNamespace(load=load_and_stop)
    with pytest.raises(Unavailable, match="the daemon is stopping"):
        bench.lifecycle.load_all(ALICE)
    assert len(loaded) == 1 and not bench.lifecycle.is_loaded(ALICE)


def test_a_closed_lifecycle_loads_nothing_more(bench: Bench) -> None:
    bench.capsule("one")
    assert bench.lifecycle.close()
    with pytest.raises(Unavailable, match="the daemon is stopping"):
        bench.lifecycle.load_all(ALICE)
