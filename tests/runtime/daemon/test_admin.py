"""Admin requests against a real daemon: principals, rights, groups and quotas, and their effect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.home import Home
from aos_runtime.kernel.agents import MAX_PRINCIPALS
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName, parse_env_key
from aos_runtime.store.commit import change_env
from aos_runtime.store.env import EnvChanges
from aos_runtime.store.groups import MAX_GROUPS
from aos_runtime.store.kv import KvStore
from tests.support.guests import CONTINUE
from tests.support.sockets import Client, running
from tests.support.tool_guests import archive_of, install, tool_guest, without_bundled

HELLO = '{"tools":[{"name":"hello","description":"","input_schema":{"type":"object"}}]}'
ROWS = (
    '"tool.v1.execute.hello" = { wit = "opaque", handler = "tool_execute_hello" }\n'
    '"tool.v1.request.describe" = { wit = "opaque", handler = "tool_describe" }\n'
)
ENV = '[env.TOKEN]\ntype = "secret"\nrequest = "?"\n[env.CITY]\ntype = "text"\nrequest = "?"\n'
BOB = PrincipalName("bob")
MINE = CapsuleName("my-capsule")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("admin")
    made = Home(folder / "home")
    without_bundled(made)
    install(made, folder, MINE, archive_of(made, MINE, tool_guest(HELLO, CONTINUE), ROWS, extra=ENV))
    values = {parse_env_key("CITY"): "Oslo"}
    change_env(
        made, DEFAULT_PRINCIPAL, MINE, EnvChanges(values=values, secrets={parse_env_key("TOKEN"): "s3"})
    )
    with running(made):
        yield made


class Admin:
    """One client; `ask` gives the payload of the answer without its id."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def ask(self, suffix: str, method: str, params: object = None) -> Any:
        fields: dict[str, object] = {"method": method, "request_id": "r-1"}
        fields |= {} if params is None else {"params": params}
        payload = self.client.ask(f"admin.{suffix}", fields)[-1]["payload"]
        assert payload.pop("request_id") == "r-1"
        return payload

    def ok(self, suffix: str, method: str, params: object = None) -> Any:
        payload = self.ask(suffix, method, params)
        assert payload["status"] != "Error", payload
        return payload["data"]

    def error(self, suffix: str, method: str, params: object = None) -> str:
        payload = self.ask(suffix, method, params)
        assert payload["status"] == "Error", payload
        return str(payload["data"])


@pytest.fixture
def admin(home: Home) -> Iterator[Admin]:
    with Client(home) as client:
        client.authenticate()
        desk = Admin(client)
        yield desk
        for row in desk.ok("agent.list", "AgentList"):
            if row["principal"] != "default":
                desk.ok("agent.delete", "AgentDelete", {"principal": row["principal"]})


@pytest.fixture
def bob(home: Home, admin: Admin) -> Iterator[Admin]:
    admin.ok("agent.create", "AgentCreate", {"name": "bob"})
    with Client(home) as client:
        client.authenticate(BOB)
        yield Admin(client)


def test_sec_13_a_new_principal_inherits_nothing(home: Home, admin: Admin, bob: Admin) -> None:
    assert bob.client.request("ListCapsules")["data"] == ["hello", "prompt-builder", "router"]
    assert not (home.secrets / "bob").exists()
    assert not home.env_file(BOB, MINE).exists()
    [row] = bob.ok("agent.list", "AgentList")
    assert (row["groups"], row["grants"], row["capsules"]) == (["agent"], [], [])


def test_sec_13_inheriting_copies_exactly_from_the_one_named(home: Home, admin: Admin) -> None:
    admin.ok("agent.create", "AgentCreate", {"name": "bob", "inherit_from": "default"})
    assert home.env_file(BOB, MINE).read_bytes() == home.env_file(DEFAULT_PRINCIPAL, MINE).read_bytes()
    assert (home.capsule_secrets(BOB, MINE) / "TOKEN").read_text() == "s3"
    with Client(home) as client:
        client.authenticate(BOB)
        assert client.request("ListCapsules")["data"] == [MINE]
        [row] = Admin(client).ok("agent.list", "AgentList")
    assert row["groups"] == ["agent"]


def test_a_clone_of_an_admin_must_be_agreed_to(admin: Admin) -> None:
    text = admin.error("agent.create", "AgentCreate", {"name": "bob", "clone_from": "default"})
    assert text == "principal 'default' holds every capability; its clone would too"
    params = {"name": "bob", "clone_from": "default", "allow_admin_clone": True}
    admin.ok("agent.create", "AgentCreate", params)
    rows = {row["principal"]: row for row in admin.ok("agent.list", "AgentList")}
    assert rows["bob"]["groups"] == ["admin"]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"name": "default"}, "principal 'default' already exists"),
        ({"name": "Default"}, "principals `default` and `Default` differ only in case"),
        ({"name": "anonymous"}, "principal 'anonymous' has no profile and no capabilities"),
        ({"name": "a/b"}, "invalid principal name 'a/b'"),
        ({"name": "bob", "groups": ["none"]}, "group 'none' does not exist"),
        ({"name": "bob", "inherit_from": "carol"}, "principal 'carol' does not exist"),
        ({"name": "bob", "inherit_from": "default", "clone_from": "default"},
         "inherit_from and clone_from exclude each other"),
        ({"name": "bob", "clone_from": "default", "grants": ["a"]},
         "a clone has the groups and grants of the one that is cloned, and no others"),
        ({"name": "bob", "grants": ["*"]},
         "'*' is every capability there is and will be; it needs unsafe_admin"),
        ({"name": "bob", "grants": ["a b"]}, "'a b' is no capability: segments between colons are letters, "
         "digits, hyphens and underscores, or a single `*`"),
    ],
)  # fmt: skip
def test_who_cannot_be_created(home: Home, admin: Admin, params: object, text: str) -> None:
    assert admin.error("agent.create", "AgentCreate", params) == text
    assert [path.name for path in home.profiles.iterdir()] == ["default.toml"]


def test_nobody_gives_what_it_does_not_hold(admin: Admin, bob: Admin) -> None:
    admin.ok("caps.grant", "CapsGrant", {"principal": "bob", "capabilities": ["agent:create", "caps:grant"]})
    denied = "permission denied for principal bob: cannot give {}, which it does not hold"
    text = bob.error("agent.create", "AgentCreate", {"name": "eve", "groups": ["admin"]})
    assert text == denied.format("*")
    grant = {"principal": "bob", "capabilities": ["system:shutdown"]}
    assert bob.error("caps.grant", "CapsGrant", grant) == denied.format("system:shutdown")
    assert bob.ok("agent.create", "AgentCreate", {"name": "eve"})["principal"] == "eve"


def test_a_failure_says_what_to_do_beside_what_a_published_client_reads(admin: Admin) -> None:
    answer = admin.ask("agent.delete", "AgentDelete", {"principal": "ghost"})
    assert answer == {
        "status": "Error",
        "data": "principal 'ghost' does not exist",
        "error": {"code": "principal-unknown", "hint": "`aos agent list` shows who does"},
    }


def test_an_agent_administers_nothing(bob: Admin) -> None:
    missing = "permission denied for principal bob: missing capability "
    for suffix, method, params in (
        ("agent.delete", "AgentDelete", {"principal": "default"}),
        ("agent.modify", "AgentModify", {"principal": "bob", "add_groups": ["admin"]}),
        ("caps.grant", "CapsGrant", {"principal": "bob", "capabilities": ["x"]}),
        ("group.create", "GroupCreate", {"name": "g", "capabilities": []}),
    ):
        assert bob.error(suffix, method, params) == missing + suffix.replace(".", ":")
    assert bob.error("quota.get", "QuotaGet", {"principal": "default"}) == missing + "quota:get"
    assert bob.ok("quota.get", "QuotaGet", {"principal": "bob"})["max_in_flight_calls"] == 4


def test_nothing_is_made_for_a_principal_that_does_not_exist(
    home: Home, admin: Admin, tmp_path: Path
) -> None:
    unknown = "principal 'ghost' does not exist"
    params: dict[str, object] = {"target_principal": "ghost"}
    answer = admin.client.request("GetCapsuleMetadataForPrincipal", params)
    assert (answer["status"], answer["data"]) == ("Error", unknown)
    archive = tmp_path / "one.capsule"
    archive.write_bytes(archive_of(home, "one", tool_guest(HELLO, CONTINUE), ROWS))
    answer = admin.client.request("InstallCapsule", {**params, "source": str(archive)})
    assert (answer["status"], answer["data"]) == ("Error", unknown)
    assert not home.principal(PrincipalName("ghost")).exists()
    admin.ok("agent.create", "AgentCreate", {"name": "ghost"})


def test_what_is_not_there_or_named_is_said(admin: Admin, bob: Admin) -> None:
    nothing: dict[str, object] = {"principal": "bob", "capabilities": []}
    for method in ("CapsGrant", "CapsRevoke"):
        text = admin.error(f"caps.{method[4:].lower()}", method, nothing)
        assert text == "no capability was named"
    answer = {"request_id": "r-9", "decision": "approve"}
    assert admin.error("approval.answer", "ApprovalAnswer", answer) == "no approval request 'r-9' is open"
    text = admin.error("approval.revoke", "ApprovalRevoke", {"id": "always-0"})
    assert text == "principal `default` has no standing approval 'always-0'"


def test_so_many_groups_and_principals_and_no_more(home: Home, admin: Admin, bob: Admin) -> None:
    home.groups_file.write_text("".join(f"[groups.g{number}]\n" for number in range(MAX_GROUPS)))
    others = [home.profile(PrincipalName(f"p{number}")) for number in range(MAX_PRINCIPALS - 2)]
    for path in others:
        path.touch()
    try:
        text = admin.error("group.create", "GroupCreate", {"name": "one", "capabilities": []})
        assert text == f"there are {MAX_GROUPS} groups already"
        text = admin.error("agent.create", "AgentCreate", {"name": "carol"})
        assert text == f"this home has {MAX_PRINCIPALS} principals, the most that it may"
    finally:
        home.groups_file.unlink()
        for path in others:
            path.unlink()


def test_grants_and_revokes_are_in_force_at_once(admin: Admin, bob: Admin) -> None:
    one = {"principal": "bob", "capabilities": ["system:status"]}
    admin.ok("caps.grant", "CapsGrant", one)
    assert bob.client.request("GetStatus")["status"] == "Status"
    admin.ok("caps.revoke", "CapsRevoke", {"principal": "bob", "capabilities": ["system:*"]})
    reply = bob.client.request("GetStatus")["data"]
    assert reply == "permission denied for principal bob: capability system:status is revoked via system:*"
    found = admin.ok("caps.explain", "CapsExplain", {"principal": "bob", "capability": "system:status"})
    assert (found["given_by"], found["revoked_by"], found["groups_that_give"]) == (
        [{"pattern": "system:status", "origin": "grant"}],
        [{"pattern": "system:*", "origin": "revoke"}],
        ["admin"],
    )
    assert (
        admin.ok("caps.grant", "CapsGrant", {"principal": "bob", "capabilities": ["system:*"]})["revokes"]
        == []
    )
    assert bob.client.request("GetStatus")["status"] == "Status"


def test_default_cannot_be_locked_out(admin: Admin) -> None:
    target = {"principal": "default"}
    assert admin.error("agent.delete", "AgentDelete", target) == "principal 'default' cannot be deleted"
    assert admin.error("agent.disable", "AgentDisable", target) == "principal 'default' cannot be disabled"
    revoke = {**target, "capabilities": ["*"]}
    assert admin.error("caps.revoke", "CapsRevoke", revoke) == "principal 'default' cannot lose a capability"
    leave = {**target, "remove_groups": ["admin"]}
    assert (
        admin.error("agent.modify", "AgentModify", leave)
        == "principal 'default' cannot leave the group admin"
    )


def test_groups_are_made_changed_used_and_deleted(admin: Admin, bob: Admin) -> None:
    make = {"name": "watchers", "capabilities": ["system:status"], "description": "See"}
    admin.ok("group.create", "GroupCreate", make)
    assert admin.error("group.create", "GroupCreate", make) == "group 'watchers' already exists"
    admin.ok("agent.modify", "AgentModify", {"principal": "bob", "add_groups": ["watchers"]})
    assert bob.client.request("GetStatus")["status"] == "Status"
    text = admin.error("group.delete", "GroupDelete", {"name": "watchers"})
    assert text == "group 'watchers' has members: bob"
    change = {"name": "watchers", "capabilities": ["x:y"], "description": None}
    assert admin.ok("group.modify", "GroupModify", change)["description"] is None
    assert bob.client.request("GetStatus")["status"] == "Error"
    admin.ok("agent.modify", "AgentModify", {"principal": "bob", "remove_groups": ["watchers"]})
    admin.ok("group.delete", "GroupDelete", {"name": "watchers"})
    for method in ("GroupDelete", "GroupModify"):
        suffix = method.replace("Group", "group.").lower()
        text = admin.error(suffix, method, {"name": "admin"})
        assert text == "group 'admin' is built in and cannot be changed"


def test_a_disabled_principal_is_cut_off(home: Home, admin: Admin, bob: Admin) -> None:
    data = admin.ok("agent.disable", "AgentDisable", {"principal": "bob"})
    assert data == {"principal": "bob", "enabled": False, "changed": True}
    with pytest.raises(EOFError):
        while True:
            bob.client.read()
    with Client(home) as client:
        assert client.authenticate(BOB)[1]["status"] == "error"
    assert admin.ok("agent.enable", "AgentEnable", {"principal": "bob"})["changed"]
    with Client(home) as client:
        assert client.authenticate(BOB)[1]["status"] == "ok"


def test_a_key_that_is_taken_out_of_a_profile_ends_its_connections(
    home: Home, admin: Admin, bob: Admin
) -> None:
    path = home.profile(BOB)
    path.write_text(path.read_text().partition("[[auth.public_keys]]")[0])
    bob.client.sock.settimeout(30)
    with pytest.raises(EOFError):
        while True:
            bob.client.read()


def test_deleting_leaves_nothing(home: Home, admin: Admin) -> None:
    admin.ok("agent.create", "AgentCreate", {"name": "bob", "inherit_from": "default"})
    with Client(home) as client:
        client.authenticate(BOB)
    with KvStore(home.state_db) as store:
        store.space(BOB, MINE).set("marker", b"of bob")
    home.log_folder(BOB).mkdir(exist_ok=True)
    (home.log_folder(BOB) / "x.log").write_text("line of bob")
    data = admin.ok("agent.delete", "AgentDelete", {"principal": "bob"})
    assert (data["principal"], data["unloaded_capsules"], data["cleanup_errors"]) == ("bob", [MINE], [])
    assert "kv:1" in data["reclaimed"]
    left = [path for path in home.state.rglob("*") if "bob" in path.name and "lock" not in path.parts]
    assert left == []
    with KvStore(home.state_db) as store:
        assert store.stored_bytes(BOB) == 0
    assert (
        admin.error("agent.delete", "AgentDelete", {"principal": "bob"}) == "principal 'bob' does not exist"
    )


def test_a_name_with_leftovers_is_not_given_away(home: Home, admin: Admin) -> None:
    secret = home.secrets / "bob" / "x" / "TOKEN"
    secret.parent.mkdir(parents=True)
    secret.write_text("old")
    text = admin.error("agent.create", "AgentCreate", {"name": "bob"})
    assert text == "a new principal 'bob' would inherit what is there under its name: secrets/bob"
    admin.ok("agent.delete", "AgentDelete", {"principal": "bob"})
    admin.ok("agent.create", "AgentCreate", {"name": "bob"})


def test_quotas_are_set_in_part_and_checked(admin: Admin, bob: Admin) -> None:
    made = admin.ok("quota.set", "QuotaSet", {"principal": "bob", "quotas": {"max_timeout_secs": 7}})
    assert (made["max_timeout_secs"], made["max_memory_bytes"]) == (7, 67108864)
    text = admin.error("quota.set", "QuotaSet", {"principal": "bob", "quotas": {"max_timeout_secs": 0}})
    assert text == "max_timeout_secs must be a whole number from 1 to 86400"
    usage = bob.ok("usage.get", "UsageGet", {"principal": "bob"})
    assert (usage["exempt"], usage["cpu_fuel_per_sec_limit"]) == (False, 2_000_000_000)


def test_a_capsule_must_be_granted_to_be_called(home: Home, admin: Admin, tmp_path: Path) -> None:
    admin.ok("agent.create", "AgentCreate", {"name": "bob", "inherit_from": "default"})
    with Client(home) as client:
        client.authenticate(BOB)
        [tool] = client.tools("list")["data"]
        assert tool["name"] == "hello"
        log = home.daemon_log.read_text()
        granted = admin.ok("agent.modify", "AgentModify", {"principal": "bob", "add_capsules": [MINE]})
        assert (granted["capsules"], granted["changed"]) == ([MINE], True)
        assert "internal fault" not in log


def test_a_profile_changed_in_an_editor_counts_soon(home: Home, admin: Admin, bob: Admin) -> None:
    path = home.profile(BOB)
    path.write_text(path.read_text() + "\n[quotas]\nmax_cpu_fuel_per_sec = 5\n")
    deadline = time.monotonic() + 10
    while admin.ok("usage.get", "UsageGet", {"principal": "bob"})["cpu_fuel_per_sec_limit"] != 5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
