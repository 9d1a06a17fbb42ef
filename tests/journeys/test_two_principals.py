"""Two principals at once against the same capsule: no byte of one is ever seen by the other.

The capsule answers with its caller's own arguments; every call carries a marker that nobody else has.  What
the daemon keeps on disk is searched for the other's markers afterwards.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName, parse_env_key
from aos_runtime.store.commit import change_env
from aos_runtime.store.env import EnvChanges
from aos_runtime.store.kv import KvStore
from aos_runtime.store.layout import open_home
from tests.support.agents import create_agents
from tests.support.sockets import Client, running

CALLS = 1500
NAMES = (PrincipalName("bob"), PrincipalName("eve"))
HELLO = CapsuleName("hello")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    open_home(made, create=True)
    with running(made):
        create_agents(made, NAMES)
        yield made


def marker(name: str, what: str) -> str:
    return f"only-for-{name}-{what}"


def call_many(home: Home, name: PrincipalName, replies: list[Any]) -> None:
    """Call the greeter with a new marker each time, and keep everything that came back."""
    with Client(home) as client:
        client.authenticate(name)
        for number in range(CALLS):
            params = {"name": "hello", "arguments": {"name": marker(name, str(number))}}
            replies.append((number, client.tools("call", params)))


def test_no_byte_of_one_principal_is_seen_by_the_other(home: Home) -> None:
    with KvStore(home.state_db) as store:
        for name in NAMES:
            store.space(name, HELLO).set("marker", marker(name, "kv").encode())
    replies: dict[str, list[Any]] = {name: [] for name in NAMES}
    threads = [threading.Thread(target=call_many, args=(home, name, replies[name])) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, other in (NAMES, tuple(reversed(NAMES))):
        assert len(replies[name]) == CALLS
        for number, reply in replies[name]:
            text = json.dumps(reply)
            assert reply["status"] == "Success", reply
            assert marker(name, f"{number}!") in text
            assert f"only-for-{other}" not in text
        with KvStore(home.state_db) as store:
            assert store.space(name, HELLO).get("marker") == marker(name, "kv").encode()


def test_env_logs_and_files_of_one_are_not_below_the_other(home: Home) -> None:
    for name in NAMES:
        with Client(home) as client:
            client.authenticate(name)
            assert client.request("ListCapsules")["data"] == ["hello", "prompt-builder", "router"]
        change_env(
            home,
            name,
            HELLO,
            EnvChanges(
                values={parse_env_key("CITY"): marker(name, "env")},
                secrets={parse_env_key("TOKEN"): marker(name, "secret")},
            ),
        )
    for name, other in (NAMES, tuple(reversed(NAMES))):
        foreign = f"only-for-{other}".encode()
        roots = (home.principal(name), home.secrets / name, home.log_folder(name), home.all_receipts(name))
        found = [path for root in roots for path in root.rglob("*") if path.is_file()]
        assert any(f"only-for-{name}".encode() in path.read_bytes() for path in found)
        assert [path for path in found if foreign in path.read_bytes()] == []


def test_anonymous_has_nothing(home: Home) -> None:
    with Client(home) as client:
        client.hello()
        assert client.tools("list")["data"] == []
        assert client.tools("call", {"name": "hello"})["status"] == "Error"
        text = client.request("ListCapsules")["data"]
    assert text == "permission denied for principal anonymous: missing capability self:capsule:list"
