"""`aos agent | caps | group | quota | keypair` with their whole output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aos_runtime.home import Home
from aos_runtime.store.layout import open_home
from tests.cli.conftest import RunAos
from tests.support.fake_daemon import FakeDaemon

BOB: dict[str, Any] = {
    "principal": "bob",
    "owner_uid": "ab" * 32,
    "accountable_user": "cd" * 32,
    "enabled": True,
    "groups": ["agent"],
    "grants": ["capsule:install"],
    "revokes": ["capsule:*"],
    "capsules": ["hello"],
}
EVE: dict[str, Any] = {**BOB, "principal": "eve", "enabled": False, "groups": [], "grants": [], "revokes": []}
AGENT = {
    "name": "agent",
    "capabilities": ["self:*"],
    "description": "d",
    "unsafe_admin": False,
    "builtin": True,
}
QUOTAS = {
    "max_memory_bytes": 67108864,
    "max_timeout_secs": 300,
    "max_ipc_throughput_bytes": 10485760,
    "max_background_processes": 8,
    "max_storage_bytes": 9223372036854775807,
    "max_cpu_fuel_per_sec": 2000000000,
    "max_in_flight_calls": 4,
}
USAGE = {
    "principal": "bob",
    "cpu_fuel_consumed_total": 5,
    "cpu_fuel_per_sec_limit": 2000000000,
    "exempt": False,
    "memory_bytes_limit_per_instance": 67108864,
    "memory_bytes_current_total": None,
    "memory_bytes_peak_total": 1376256,
    "storage_bytes": 0,
}
DENIED = {
    "principal": "bob",
    "capability": "capsule:install",
    "allowed": False,
    "denial": "permission denied for principal bob: capability capsule:install is revoked via capsule:*",
    "enabled": True,
    "given_by": [{"pattern": "capsule:install", "origin": "grant"}],
    "revoked_by": [{"pattern": "capsule:*", "origin": "revoke"}],
    "groups_that_give": ["admin"],
}
ANSWERS: dict[str, tuple[str, Any]] = {
    "AgentList": ("AgentList", [BOB, EVE]),
    "AgentCreate": ("Success", {"principal": "carol", "astrid_user_id": "ef" * 32}),
    "AgentDisable": ("Success", {"principal": "bob", "enabled": False, "changed": True}),
    "AgentEnable": ("Success", {"principal": "bob", "enabled": True, "changed": False}),
    "AgentModify": ("Success", {"principal": "bob", "groups": [], "capsules": [], "changed": True}),
    "AgentDelete": (
        "Success",
        {"principal": "bob", "unloaded_capsules": ["a"], "reclaimed": [], "cleanup_errors": []},
    ),
    "GroupList": ("GroupList", [AGENT]),
    "GroupCreate": ("Success", {**AGENT, "name": "g"}),
    "GroupModify": ("Success", {**AGENT, "name": "g"}),
    "GroupDelete": ("Success", {"name": "g"}),
    "CapsGrant": ("Success", {"principal": "bob", "grants": ["x:y"], "revokes": []}),
    "CapsRevoke": ("Success", {"principal": "bob", "grants": [], "revokes": ["x:y"]}),
    "CapsExplain": ("Success", DENIED),
    "QuotaGet": ("Quotas", QUOTAS),
    "QuotaSet": ("Quotas", QUOTAS),
    "UsageGet": ("Usage", USAGE),
}


class Office:
    """Answers with ANSWERS, other answers first; remembers what was asked."""

    def __init__(self, **answers: tuple[str, Any]) -> None:
        self.answers = {**ANSWERS, **answers}
        self.asked: list[tuple[str, Any]] = []

    def __call__(self, topic: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((payload["method"], payload.get("params")))
        status, data = self.answers[payload["method"]]
        return {"status": status, "data": data}


OUTPUTS = {
    "agent list": "AGENT  STATE     GROUPS\nbob    enabled   agent\neve    disabled  —\n",
    "agent list --group agent": "AGENT  STATE    GROUPS\nbob    enabled  agent\n",
    "agent show bob": (
        "Agent bob\n  State:     enabled\n"
        f"  Uid:       {'ab' * 32}\n"
        "  Groups:    agent\n  Grants:    capsule:install\n  Revokes:   capsule:*\n  Capsules:  hello\n"
    ),
    "group list": "GROUP  TYPE      CAPABILITIES\nagent  built-in  self:*\n",
    "group show agent": (
        "Group agent\n  Type:          built-in\n  Description:   d\n"
        "  Unsafe admin:  no\n  Capabilities:  self:*\n"
    ),
    "caps show bob": (
        "CAPABILITY       SOURCE       STATUS\nself:*           group agent  shadowed by revoke\n"
        "capsule:install  grant        shadowed by revoke\ncapsule:*        revoke       revoked\n"
    ),
    "quota show -a bob": (
        "Quotas for bob\n  memory          64.0 MiB an instance\n  timeout         5m00s a call\n"
        "  storage         unlimited\n  processes       8\n  ipc-rate        10.0 MiB/s\n"
        "  cpu-rate        2000000000 fuel/s\n  in-flight       4 calls share the cpu-rate\n"
        "Usage vs budget\n  cpu consumed    5 fuel\n  cpu rate limit  2000000000 fuel/s\n"
        "  exempt          no\n  memory current  —\n  memory peak     1.3 MiB\n"
        "  memory limit    64.0 MiB an instance\n  stored          0 B\n"
    ),
}


@pytest.mark.parametrize("line", OUTPUTS)
def test_what_is_shown(run_aos: RunAos, home: Home, line: str) -> None:
    with FakeDaemon(home, Office()):
        ended = run_aos(*line.split())
    assert (ended.status, ended.out, ended.err) == (0, OUTPUTS[line], "")


DONE = {
    "agent disable bob": "✓ Agent bob is disabled.\n",
    "agent enable bob": "Agent bob was enabled already.\n",
    "agent modify bob --add-capsule hello": "✓ Changed agent bob.\n",
    "agent delete bob -y": "✓ Deleted agent bob; 1 capsule unloaded.\n",
    "group create g --caps a:b,c": "✓ Created group g.\n",
    "group modify agent --add-caps x:y --remove-caps self:*": "✓ Changed group agent.\n",
    "group delete g -y": "✓ Deleted group g.\n",
    "caps grant bob x:y": "✓ Granted 'x:y' to agent 'bob'.\n",
    "caps revoke bob x:y": "✓ Revoked 'x:y' from agent 'bob'.\n",
    "quota set -a bob --memory 1.5MiB --timeout 1m30s": "✓ Updated quotas for 'bob'.\n",
}
SENT: dict[str, Any] = {
    "agent modify bob --add-capsule hello": {"principal": "bob", "add_capsules": ["hello"]},
    "group create g --caps a:b,c": {
        "name": "g",
        "capabilities": ["a:b", "c"],
        "description": None,
        "unsafe_admin": False,
    },
    "group modify agent --add-caps x:y --remove-caps self:*": {"name": "agent", "capabilities": ["x:y"]},
    "quota set -a bob --memory 1.5MiB --timeout 1m30s": {
        "principal": "bob",
        "quotas": {"max_memory_bytes": 1572864, "max_timeout_secs": 90},
    },
}


@pytest.mark.parametrize("line", DONE)
def test_what_is_changed(run_aos: RunAos, home: Home, line: str) -> None:
    office = Office()
    with FakeDaemon(home, office):
        ended = run_aos(*line.split())
        document = run_aos(*line.split(), "--json").json
    assert (ended.status, ended.out, ended.err) == (0, "", DONE[line])
    assert isinstance(document, dict)
    if line in SENT:
        assert office.asked[-1][1] == SENT[line]


def test_creating_sets_the_quotas_that_were_named(run_aos: RunAos, home: Home) -> None:
    office = Office()
    with FakeDaemon(home, office):
        ended = run_aos("agent", "create", "carol", "--group", "restricted", "--storage", "10MiB")
    assert ended.err == "✓ Created agent carol.\nhint: act for it with `aos --principal carol ...`\n"
    assert [method for method, _ in office.asked] == ["AgentCreate", "QuotaSet"]
    assert office.asked[0][1]["groups"] == ["restricted"]


def test_why_names_the_source_and_what_would_allow_it(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, Office()):
        ended = run_aos("caps", "why", "bob", "capsule:install")
        document = run_aos("caps", "why", "bob", "capsule:install", "--json").json
        checked = run_aos("caps", "check", "bob", "capsule:install")
    assert ended.status == 1
    assert ended.out == (
        "bob may not: capsule:install\n"
        "  why:          permission denied for principal bob: "
        "capability capsule:install is revoked via capsule:*\n"
        "  given by:     grant (capsule:install)\n"
        "  taken by:     revoke (capsule:*)\n"
        "  would allow:  aos caps grant bob 'capsule:*'\n"
    )
    assert document == {**DENIED, "would_allow": ["aos caps grant bob 'capsule:*'"]}
    assert (checked.status, checked.out) == (1, "denied\n")


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ("caps grant bob *", 2, "`*` grants everything there is; pass --unsafe-admin if that is meant"),
        ("agent create x --unsafe-admin", 2, "--unsafe-admin goes with --clone"),
        ("agent modify bob", 1, "there is nothing to change"),
        ("group modify g", 1, "there is nothing to change"),
        ("quota set", 1, "no quota was named"),
        ("quota set --memory lots", 2, "'lots' is not a size; for example 64MiB, 1.5GiB or 512KiB"),
        ("quota set --timeout soon", 2, "'soon' is not a duration; for example 30s, 5m or 1h30m"),
        ("agent delete bob", 1, "nobody is there to answer: Delete agent bob and everything that"),
        ("agent show bbo", 1, "principal 'bbo' does not exist, or you may not see it"),
        ("group show agnet", 1, "group 'agnet' does not exist"),
    ],
)
def test_what_is_refused(run_aos: RunAos, home: Home, line: str, status: int, text: str) -> None:
    with FakeDaemon(home, Office()):
        ended = run_aos(*line.split())
    assert (ended.status, ended.out) == (status, "")
    assert text in ended.err


def test_without_a_daemon_the_hint_says_so(run_aos: RunAos) -> None:
    ended = run_aos("agent", "list")
    assert (ended.status, ended.err) == (
        1,
        "error: the daemon is not running\nhint: start it with `aos start`\n",
    )


def test_key_pairs_need_no_daemon(run_aos: RunAos, home: Home) -> None:
    open_home(home, create=True)
    assert run_aos("keypair", "list").err == "No key pairs.\n"
    made = run_aos("keypair", "generate", "--name", "laptop", "--note", "mine", "--json").json
    listed = run_aos("keypair", "list")
    heading, row = listed.out.splitlines()
    assert heading.split() == ["NAME", "FINGERPRINT", "CREATED", "BOUND", "PRINCIPAL"]
    assert row.startswith(f"laptop  {made['fingerprint']}  ")
    assert run_aos("keypair", "pubkey", "laptop").out == f"{made['public_key']}\n"
    assert run_aos("keypair", "generate", "--name", "laptop", "--json").error["code"] == "keypair-exists"
    assert run_aos("keypair", "delete", "laptop").status == 1
    assert run_aos("keypair", "delete", "laptop", "--yes").err == "✓ Deleted key pair laptop.\n"
