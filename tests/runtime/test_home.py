"""home: path arithmetic over one root, and nothing that depends on the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aos_runtime.errors import InvalidInput
from aos_runtime.home import SOCKET_PATH_MAX_BYTES, Home, resolve_home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, Digest, EnvKey, PrincipalName

HOME = Home(Path("/h"))
ALICE = PrincipalName("alice")
DEMO = CapsuleName("demo")
DIGEST = Digest("0" * 64)


def test_the_layout_is_the_published_one() -> None:
    paths = {
        "config": HOME.config_file,
        "layout": HOME.layout_file,
        "profile": HOME.profile(ALICE),
        "receipt": HOME.receipt(ALICE, DEMO, DIGEST),
        "socket": HOME.socket,
        "token": HOME.token_file,
        "ready": HOME.ready_file,
        "pid": HOME.pid_file,
        "lock": HOME.lock_file,
        "runtime key": HOME.runtime_key,
        "principal key": HOME.principal_key(ALICE),
        "secret": HOME.secret(ALICE, DEMO, EnvKey("TOKEN")),
        "blob": HOME.blob(DIGEST),
        "wit": HOME.wit_store,
        "cache": HOME.code_cache,
        "state": HOME.state_db,
        "tools": HOME.tools_file(ALICE),
        "capsule": HOME.capsule(ALICE, DEMO),
        "generations": HOME.generations(ALICE, DEMO),
        "env": HOME.env_file(ALICE, DEMO),
        "daemon log": HOME.daemon_log,
        "default log": HOME.capsule_log(DEFAULT_PRINCIPAL, DEMO),
        "log": HOME.capsule_log(ALICE, DEMO),
        "install lock": HOME.install_lock(ALICE, DEMO),
    }
    assert {name: str(path) for name, path in paths.items()} == {
        "config": "/h/runtime/etc/config.toml",
        "layout": "/h/runtime/etc/layout-version",
        "profile": "/h/runtime/etc/profiles/alice.toml",
        "receipt": f"/h/runtime/etc/capsule-authority/alice/demo/{DIGEST}.json",
        "socket": "/h/runtime/run/system.sock",
        "token": "/h/runtime/run/system.token",
        "ready": "/h/runtime/run/system.ready",
        "pid": "/h/runtime/run/system.pid",
        "lock": "/h/runtime/run/system.lock",
        "runtime key": "/h/runtime/keys/runtime.key",
        "principal key": "/h/runtime/keys/alice.key",
        "secret": "/h/runtime/secrets/alice/demo/TOKEN",
        "blob": f"/h/runtime/bin/{DIGEST}.wasm",
        "wit": "/h/runtime/wit/store",
        "cache": "/h/runtime/cache",
        "state": "/h/runtime/var/state.db",
        "tools": "/h/runtime/var/tools/alice.json",
        "capsule": "/h/runtime/home/alice/.local/capsules/demo",
        "generations": "/h/runtime/home/alice/.local/generations/demo",
        "env": "/h/runtime/home/alice/.config/env/demo.env.json",
        "daemon log": "/h/runtime/log/_daemon.log",
        "default log": "/h/runtime/log/demo.log",
        "log": "/h/runtime/log/alice/demo.log",
        "install lock": "/h/runtime/var/lock/alice.demo.lock",
    }


def test_aos_home_wins_and_the_default_is_below_home() -> None:
    assert resolve_home({"AOS_HOME": "/x", "HOME": "/u", "ASTRID_HOME": "/y"}) == Home(Path("/x"))
    assert resolve_home({"AOS_HOME": "", "HOME": "/u"}) == Home(Path("/u/.aos"))


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({}, "home-unset"),
        ({"HOME": ""}, "home-unset"),
        ({"HOME": "relative"}, "home-relative"),
        ({"AOS_HOME": "relative", "HOME": "/u"}, "home-relative"),
        ({"AOS_HOME": "/a/../b"}, "home-relative"),
        ({"AOS_HOME": "/a\0b"}, "home-relative"),
    ],
)
def test_dmn_09_a_home_that_cannot_be_is_refused_naming_the_variable(
    environ: dict[str, str], code: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        resolve_home(environ)
    assert caught.value.code == code
    assert "AOS_HOME" in caught.value.hint


@pytest.mark.parametrize("length", [60, 90, 91, 92, 200])
def test_dmn_01_the_socket_path_always_fits(length: int) -> None:
    home = Home(Path("/" + "x" * (length - 1)))
    assert len(os.fsencode(home.socket)) <= SOCKET_PATH_MAX_BYTES
    is_short = len(os.fsencode(home.run / "system.sock")) <= SOCKET_PATH_MAX_BYTES
    assert (home.socket.parent == home.run) == is_short
    assert home.socket == Home(home.root).socket


def test_dmn_01_homes_that_differ_late_have_sockets_that_differ() -> None:
    deep = "/" + "x" * 120
    assert Home(Path(f"{deep}/a")).socket != Home(Path(f"{deep}/b")).socket
