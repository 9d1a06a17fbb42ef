"""Two principals at once against the same capsule: no byte of one is ever seen by the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, parse_env_key
from aos_runtime.store.commit import change_env
from aos_runtime.store.env import EnvChanges
from aos_runtime.store.layout import open_home
from tests.soak import principals
from tests.soak.principals import NAMES, marker
from tests.support.agents import create_agents
from tests.support.sockets import Client, running

CALLS = 300
HELLO = CapsuleName("hello")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    open_home(made, create=True)
    with running(made):
        create_agents(made, NAMES)
        yield made


def test_no_byte_of_one_principal_is_seen_by_the_other(tmp_path: Path) -> None:
    """What `scripts/soak principals` does ten thousand times, some times; then what it must find."""
    made = Home(tmp_path / "home")
    principals.prepare(made, tmp_path)
    calls, faults = principals.drive(made, lambda number: number >= CALLS)
    assert (calls, faults) == (CALLS * len(NAMES), [])
    stray = made.principal(NAMES[0]) / "home" / "stray.txt"
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_text(marker(NAMES[1], "7"))
    assert principals.strangers(made) == [f"{stray} holds a word of {NAMES[1]}"]


def test_an_answer_with_a_strangers_word_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The greeter stands in for a capsule that answers with what it should not."""
    ask, word = Client.tools, marker(NAMES[1], "7")
    call = {"name": "hello", "arguments": {"name": word}}
    monkeypatch.setattr(Client, "tools", lambda self, verb, params: ask(self, verb, call))
    _, faults = principals.call_many(home, NAMES[0], lambda number: number >= 1)
    assert len(faults) == 1 and word in faults[0]


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
