"""The shapes of answers, from views that are on no disk."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.kernel import answers
from aos_runtime.kernel.loading import Unready
from aos_runtime.kernel.views import holds_capability
from aos_runtime.names import CapsuleName
from tests.support.guests import FakeInflow
from tests.support.kernels import ALICE, Bench, env_row

PROCESS = answers.Process(
    pid=7,
    started_at="2026-08-01T00:00:00+00:00",
    uptime_s=61,
    workspace="/work",
    ephemeral=True,
    clients={"b": 1, "a": 2},
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_status(bench: Bench) -> None:
    row = {"tool.v1.execute.x": "go"}
    bench.capsule("winner", subscribe=row, tools=["x"], installed_at="2026-01-01T00:00:00+00:00")
    bench.capsule("loser", subscribe=row, tools=["x"], installed_at="2026-02-01T00:00:00+00:00", bundled=True)
    bench.loads[ALICE, CapsuleName("unset")] = Unready(
        name="unset",
        version="0.3.0",
        state="needs-config",
        reason="capsule 'unset' is not configured (KEY)",
        missing=(env_row("KEY"),),
    )
    view = bench.lifecycle.load_all(ALICE)
    for _ in range(3):
        bench.publish("tool.v1.execute.x")
    bench.ready[0].run_one()
    data = answers.status(view, PROCESS)
    rows = data.pop("capsules")
    assert data == {
        "pid": 7,
        "uptime_secs": 61,
        "version": "2026.10.1",
        "ephemeral": True,
        "connected_clients": 3,
        "connections_by_principal": [{"principal": "a", "count": 2}, {"principal": "b", "count": 1}],
        "loaded_capsules": ["loser", "winner"],
        "capsule_install_batch_protocol": 1,
        "aos_version": answers.AOS_VERSION,
        "workspace": "/work",
        "started_at": "2026-08-01T00:00:00+00:00",
        "trouble": None,
    }
    zero = {"calls": 0, "errors": 0, "denied": 0, "queue_depth": 0, "drops": 0}
    ready = {"version": "0.1.0", "state": "ready", "principal": "alice", "tools": ["x"], "warnings": []}
    assert rows == [
        {
            "name": "loser",
            **ready,
            **zero,
            "bundled": True,
            "shadowed": [{"topic": "tool.v1.execute.x", "by": "winner"}],
        },
        {"name": "winner", **ready, **zero, "calls": 1, "queue_depth": 2, "bundled": False, "shadowed": []},
        {
            "name": "unset",
            "version": "0.3.0",
            "state": "needs-config",
            "reason": "capsule 'unset' is not configured (KEY)",
            "missing": ["KEY"],
            "principal": "alice",
            **zero,
            "bundled": False,
            "tools": [],
            "warnings": [],
            "shadowed": [],
        },
    ]


def test_a_replaced_version_that_does_not_load_is_a_warning_of_the_one_that_serves(bench: Bench) -> None:
    bench.capsule("one")
    bench.lifecycle.load_all(ALICE)
    bench.loads[ALICE, CapsuleName("one")] = Unready(
        name="one", version=None, state="failed", reason="it is damaged"
    )
    with pytest.raises(Exception, match="it is damaged"):
        bench.lifecycle.reload(ALICE, CapsuleName("one"))
    [row] = answers.status(bench.lifecycle.view(ALICE), PROCESS)["capsules"]  # type: ignore[misc]  # a list of rows
    assert row["state"] == "ready"
    assert row["warnings"] == ["the version that is installed now does not load: it is damaged"]


def test_handles_that_a_capsule_leaks_are_a_warning(bench: Bench) -> None:
    bench.capsule("one")
    view = bench.lifecycle.load_all(ALICE)
    resources = view.residents[CapsuleName("one")].actor.generation.context.resources
    for _ in range(3):
        resources.add("subscription", FakeInflow())
    resources.sweep()
    [row] = answers.status(view, PROCESS)["capsules"]  # type: ignore[misc]  # a list of rows
    assert row["warnings"] == ["its handlers left 3 handles open, which were closed for it"]


def test_commands_are_sorted_and_cli_ones_marked(bench: Bench) -> None:
    bench.capsule("b", extra='[[command]]\nname = "zap"\nkind = "cli"\ndescription = "Zaps"\n')
    bench.capsule("a", extra='[[command]]\nname = "ask"\n')
    assert answers.commands(bench.lifecycle.load_all(ALICE)) == [
        {"name": "ask", "description": "No description", "provider_capsule": "a"},
        {"name": "zap", "description": "Zaps", "provider_capsule": "b", "kind": "cli"},
    ]


def test_an_agent_answers_when_someone_listens_someone_speaks_and_imports_are_met(bench: Bench) -> None:
    bench.capsule("listener", subscribe={"user.v1.prompt": "go"}, extra='[imports]\n"acme:notes" = "^1.2"\n')
    bench.capsule("speaker", publish=["agent.v1.*"])
    view = bench.lifecycle.load_all(ALICE)
    assert answers.agent_readiness(view) == {
        "ready": False,
        "prompt_subscribers": ["listener"],
        "response_publishers": ["speaker"],
        "unsatisfied_required_imports": [
            {"capsule": "listener", "namespace": "acme", "interface": "notes", "requirement": "^1.2"}
        ],
        "loaded_capsules": ["listener", "speaker"],
    }
    bench.capsule("old", extra='[exports]\n"acme:notes" = "1.1.0"\n')
    assert answers.agent_readiness(bench.lifecycle.reload(ALICE, CapsuleName("old")))["ready"] is False
    bench.capsule("new", extra='[exports]\n"acme:notes" = "1.3.0"\n')
    assert answers.agent_readiness(bench.lifecycle.reload(ALICE, CapsuleName("new")))["ready"] is True


@pytest.mark.parametrize("missing", ["listener", "speaker", "exporter", None])
def test_an_agent_is_not_ready_without_any_one_of_the_three(bench: Bench, missing: str | None) -> None:
    capsules = {
        "listener": {"subscribe": {"user.v1.prompt": "go"}, "extra": '[imports]\n"acme:notes" = "^1"\n'},
        "speaker": {"publish": ["agent.v1.response"], "extra": '[imports]\n"acme:notes" = "^1"\n'},
        "exporter": {"extra": '[exports]\n"acme:notes" = "1.3.0"\n'},
    }
    for name, manifest in capsules.items():
        if name != missing:
            bench.capsule(name, **manifest)
    assert answers.agent_readiness(bench.lifecycle.load_all(ALICE))["ready"] is (missing is None)


def test_capsules_loaded_has_no_tools_where_they_are_unknown(bench: Bench) -> None:
    bench.capsule("asked", tools=["x"])
    bench.capsule("unknown", tools=None)
    rows = json.loads(answers.capsules_loaded(bench.lifecycle.load_all(ALICE)))["capsules"]
    assert [(row["name"], row["meta"].get("tools")) for row in rows] == [
        ("asked", [{"name": "x", "description": "", "input_schema": {}}]),
        ("unknown", None),
    ]


def test_capsules_loaded_tells_who_each_is_and_what_its_meta_says(bench: Bench) -> None:
    bench.capsule("one", tools=["x"], installed_at="2026-01-01T00:00:00+00:00")
    body = json.loads(answers.capsules_loaded(bench.lifecycle.load_all(ALICE)))
    assert body == {
        "status": "ready",
        "capsules": [
            {
                "principal": "alice",
                "name": "one",
                "source_id": "source-of-one",
                "meta": {
                    "version": "0.1.0",
                    "installed_at": "2026-01-01T00:00:00+00:00",
                    "updated_at": "2026-01-01T00:00:00+00:00",
                    "wasm_hash": "ab" * 32,
                    "tools": [{"name": "x", "description": "", "input_schema": {}}],
                },
            }
        ],
    }


def test_agents_are_sorted() -> None:
    profiles = [
        answers.AgentProfile(principal=name, enabled=True, groups=("agent",), grants=(), revokes=())
        for name in ("b", "a")
    ]
    rows = answers.agents(profiles)
    assert [row["principal"] for row in rows] == ["a", "b"]
    assert len({row["owner_uid"] for row in rows}) == 2
    assert all(len(str(row["owner_uid"])) == 64 for row in rows)


def test_what_a_capsule_holds_is_told_by_its_source(bench: Bench) -> None:
    bench.capsule("plain")
    view = bench.lifecycle.load_all(ALICE)
    resident = view.residents[CapsuleName("plain")]
    receipt = replace(resident.loaded.installed.receipt, capabilities=Capabilities(net=("*",)))
    installed = replace(resident.loaded.installed, receipt=receipt)
    holding = replace(resident, loaded=replace(resident.loaded, installed=installed))
    view = replace(view, residents={holding.name: holding})
    assert holds_capability(view, "source-of-plain", "net")
    assert not holds_capability(view, "source-of-plain", "fs_read")
    assert not holds_capability(view, "source-of-plain", "nothing")
    assert not holds_capability(view, "somebody", "net")
