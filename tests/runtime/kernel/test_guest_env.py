"""What a guest reads by `env::var`: its principal's values; a secret from its file, at each call."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from aos_runtime.capsule.manifest import parse_manifest
from aos_runtime.home import Home
from aos_runtime.kernel.guest_env import GuestEnv
from aos_runtime.names import CapsuleName, EnvKey, PrincipalName
from aos_runtime.store.env import EnvChanges, apply_changes
from aos_runtime.store.layout import open_home
from aos_runtime.store.secrets import delete_secret, write_secret

DEMO, ALICE, BOB = CapsuleName("demo"), PrincipalName("alice"), PrincipalName("bob")
MANIFEST = parse_manifest(
    b"""
[package]
name = "demo"
version = "0.1.0"
[[component]]
id = "main"
file = "main.wasm"
type = "executable"
[env.API_KEY]
type = "secret"
[env.FALLBACK]
type = "secret"
default = "plain"
[env.CITY]
type = "text"
default = "Bern"
"""
)
KEY = EnvKey("API_KEY")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    open_home(made, create=True)
    return made


def env_of(home: Home, principal: PrincipalName, waits: list[str] | None = None) -> GuestEnv:
    note = [] if waits is None else waits
    return GuestEnv(home, principal, DEMO, MANIFEST, lambda: note.append("way"))


def test_each_principal_has_its_own(home: Home) -> None:
    for principal, key, city in ((ALICE, "alices", "Basel"), (BOB, "bobs", "Zug")):
        changes = EnvChanges(values={EnvKey("CITY"): city}, secrets={KEY: key})
        apply_changes(home, principal, DEMO, changes)
    alice, bob = env_of(home, ALICE), env_of(home, BOB)
    assert (alice.get("API_KEY"), alice.get("CITY")) == ("alices", "Basel")
    assert (bob.get("API_KEY"), bob.get("CITY")) == ("bobs", "Zug")
    assert alice.missing == ()


def test_a_secret_is_read_when_it_is_asked_for_and_kept_nowhere(home: Home) -> None:
    waits: list[str] = []
    write_secret(home, ALICE, DEMO, KEY, "first-of-its-kind")
    env = env_of(home, ALICE, waits)
    assert env.get("API_KEY") == "first-of-its-kind"
    write_secret(home, ALICE, DEMO, KEY, "second")
    assert env.get("API_KEY") == "second"
    assert waits == ["way", "way"], "reading it may wait"
    reachable, seen = [env], set()
    while reachable:
        one = reachable.pop()
        if id(one) not in seen and not isinstance(one, type):
            seen.add(id(one))
            assert not (isinstance(one, str) and "first-of-its-kind" in one)
            reachable += [
                held
                for held in gc.get_referents(one)
                if type(held).__module__ != "builtins"
                or isinstance(held, str | dict | list | tuple | frozenset)
            ]
    delete_secret(home, ALICE, DEMO, KEY)
    assert env.get("API_KEY") is None


def test_what_is_not_set_or_not_declared(home: Home) -> None:
    env = env_of(home, ALICE)
    assert [row.key for row in env.missing] == ["API_KEY"]
    assert (env.get("FALLBACK"), env.get("CITY"), env.get("NOWHERE")) == ("plain", "Bern", None)
    write_secret(home, ALICE, DEMO, EnvKey("FALLBACK"), "set")
    assert env.get("FALLBACK") == "set"
    assert (env.has_secret("FALLBACK"), env.has_secret("API_KEY"), env.has_secret("CITY")) == (
        True,
        False,
        False,
    )
    assert not env.has_secret("../../etc/passwd")


def test_only_a_secret_stands_for_a_placeholder(home: Home) -> None:
    apply_changes(home, ALICE, DEMO, EnvChanges(values={EnvKey("CITY"): "Basel"}, secrets={KEY: "alices"}))
    env = env_of(home, ALICE)
    assert [env.placeholder(key) for key in ("API_KEY", "FALLBACK")] == ["alices", "plain"]
    for key in ("CITY", "OTHER", "../API_KEY"):
        with pytest.raises(KeyError):
            env.placeholder(key)
    delete_secret(home, ALICE, DEMO, KEY)
    assert env.placeholder("API_KEY") is None


def test_who_may_listen_on_a_unix_socket_learns_where_it_is(home: Home) -> None:
    text = b"""
[package]
name = "demo"
version = "0.1.0"
[[component]]
id = "main"
file = "main.wasm"
type = "executable"
[capabilities]
net_bind = ["unix:*"]
"""
    listening = GuestEnv(home, ALICE, DEMO, parse_manifest(text), lambda: None)
    assert listening.get("ASTRID_SOCKET_PATH") == str(home.capsule_socket(ALICE, DEMO))
    assert env_of(home, ALICE).get("ASTRID_SOCKET_PATH") is None
