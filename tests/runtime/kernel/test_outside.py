"""The door of an installed capsule: what it holds, what the operator exempts, what is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.config import Settings
from aos_runtime.home import Home
from aos_runtime.kernel.outside import Outside
from aos_runtime.network import NetworkDoor
from aos_runtime.policy.hosts import parse_host
from aos_runtime.store.files import make_private_folder
from aos_runtime.wire.handshake import Identity
from tests.support.kernels import make_installed


class Env:
    """Holds one secret."""

    def placeholder(self, key: str) -> str | None:
        return {"KEY": "k-1"}[key]


HOME = Home(Path("/home-of-nobody"))


def door_of(
    settings: Settings, told: list[tuple[str, str]], name: str = "fetcher", home: Home = HOME
) -> NetworkDoor:
    outside = Outside.of(settings, home, lambda _who: None, lambda level, text: told.append((level, text)))
    installed = make_installed(name)
    receipt = replace(installed.receipt, capabilities=Capabilities(net=("*",)))
    env: Any = Env()
    return outside.door(replace(installed, receipt=receipt), env, lambda *_: None, lambda _denial: None)


def reaches(door: NetworkDoor, text: str, port: int) -> bool:
    host = parse_host(text)
    assert host is not None and host.address is not None
    return door.airlock.vetted(host, port, [host.address], "x") == (host.address,)


def test_sec_09_an_exemption_is_of_one_capsule_and_is_told_at_every_start() -> None:
    told: list[tuple[str, str]] = []
    settings = Settings(local_egress={"fetcher": ("127.0.0.1:8080",), "other": ()})
    assert reaches(door_of(settings, told), "127.0.0.1", 8080)
    assert told == [
        (
            "warn",
            "capsule 'fetcher' may reach 127.0.0.1:8080 on this machine or its networks "
            "([security.capsule_local_egress] of etc/config.toml)",
        )
    ]
    assert not reaches(door_of(settings, told), "127.0.0.1", 8081)
    assert not reaches(door_of(settings, told, name="stranger"), "127.0.0.1", 8080)


def test_without_an_exemption_nothing_is_told_and_the_internet_is_reached() -> None:
    told: list[tuple[str, str]] = []
    door = door_of(Settings(), told)
    assert (told, reaches(door, "8.8.8.8", 443), reaches(door, "10.0.0.1", 443)) == ([], True, False)


def test_a_capsule_listens_beside_the_daemon_and_asks_for_its_token(tmp_path: Path) -> None:
    home = Home(tmp_path)
    make_private_folder(home.run)
    home.token_file.write_text("a" * 64)
    unix = door_of(Settings(), [], home=home).unix
    assert unix is not None
    assert unix.path.parent == home.socket.parent
    assert len(str(unix.path)) == len(str(home.socket))
    assert door_of(Settings(), [], name="other", home=home).unix != unix.path
    hello = {"token": "a" * 64, "protocol_version": 1, "client_version": "x"}
    outcome = unix.handshake().receive(json.dumps(hello).encode()).outcome
    assert isinstance(outcome, Identity) and outcome.principal == "anonymous"


def test_placeholders_are_the_capsules_own_secrets() -> None:
    assert door_of(Settings(), []).secret("KEY") == "k-1"


def test_instances_of_one_capsule_share_its_ports_and_nobody_elses() -> None:
    outside = Outside.of(Settings(), HOME, lambda _who: None, lambda _level, _text: None)
    env: Any = Env()
    doors = [
        outside.door(make_installed(name), env, lambda *_: None, lambda _denial: None)
        for name in ("one", "one", "two")
    ]
    assert doors[0].ports is doors[1].ports is not doors[2].ports
