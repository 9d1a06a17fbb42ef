"""The bundled prompt-builder in a real daemon's runtime, asked over the bus by the test itself."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.daemon.options import Options
from aos_runtime.daemon.runtime import Runtime
from aos_runtime.home import Home
from aos_runtime.kernel.kernel import system_cause
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store.commit import remove_installed
from aos_runtime.store.layout import open_home
from aos_runtime.wire.methods import NIL_SOURCE
from tests.support.answering_guests import DENY, answering_guest, describing_guest, sleep_ms
from tests.support.tool_guests import archive_of, install

pytestmark = pytest.mark.journey

DESCRIBE_ROW = '"tool.v1.request.describe" = { wit = "opaque", handler = "tool_describe" }\n'
CACHE_KEY = "__tool_schema_cache"
RESPONSE = "prompt_builder.v1.response.tools."


def tools_json(*names: str, words: str = "") -> str:
    return json.dumps(
        {"tools": [{"name": n, "description": words, "input_schema": {"type": "object"}} for n in names]}
    )


class Asker:
    """A runtime in this process, and what its prompt-builder answers."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.runtime = Runtime(home, Options(), lambda reason: None)
        self.runtime.open()
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.runtime.kernel.on(
            lambda topic: topic.startswith(RESPONSE), lambda envelope: self.answers.put(envelope.body)
        )
        self.number = 0

    def ask(self) -> Any:
        """What is answered; the `req_id` is checked and taken out."""
        self.number += 1
        self.say("prompt_builder.v1.request.tools", {"req_id": f"r-{self.number}"})
        answer = json.loads(self.answers.get(timeout=10))
        assert answer.pop("req_id") == f"r-{self.number}"
        return answer

    def names(self) -> list[str]:
        return [tool["name"] for tool in self.ask()["tools"]]

    def say(self, topic: str, body: object) -> None:
        cause = system_cause(DEFAULT_PRINCIPAL)
        self.runtime.kernel.publish(topic, json.dumps(body).encode(), None, NIL_SOURCE, cause)

    def cache(self) -> bytes | None:
        space = self.runtime.state.space(DEFAULT_PRINCIPAL, CapsuleName("prompt-builder"))
        return space.get(CACHE_KEY)

    def reload(self, name: str) -> None:
        """Serve what is installed now, and say so as an install does."""
        self.runtime.lifecycle.reload(DEFAULT_PRINCIPAL, CapsuleName(name))
        self.say("astrid.v1.capsules_loaded", {"status": "loaded"})


def put(home: Home, folder: Path, name: str, guest: bytes) -> None:
    install(home, folder, name, archive_of(home, name, guest, DESCRIBE_ROW))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    open_home(made, create=True)
    return made


@pytest.fixture
def asker(home: Home, tmp_path: Path) -> Iterator[Asker]:
    """Beside the bundled `hello`: four that answer at once, one late in the window, one that dies, one that
    denies."""
    for number in range(4):
        put(home, tmp_path, f"quick-{number}", describing_guest(tools_json(f"quick-{number}")))
    put(home, tmp_path, "slow", describing_guest(tools_json("slow"), first=sleep_ms(400)))
    put(home, tmp_path, "dying", describing_guest(tools_json("dying"), first="unreachable"))
    put(home, tmp_path, "denying", describing_guest(tools_json("denying"), first=DENY))
    made = Asker(home)
    yield made
    made.runtime.close()


def test_bus_06_nobody_delays_the_others(asker: Asker) -> None:
    quick = ["hello", "quick-0", "quick-1", "quick-2", "quick-3"]
    for _ in range(10):
        asker.say("astrid.v1.capsules_loaded", {})
        assert [name for name in asker.names() if name != "slow"] == quick
    assert json.loads(asker.cache() or b"")["tools"][1]["name"] == "quick-0"


def test_bus_17_a_tool_without_arguments_has_properties(asker: Asker) -> None:
    [tool] = [tool for tool in asker.ask()["tools"] if tool["name"] == "quick-1"]
    assert tool == {
        "name": "quick-1",
        "description": "",
        "input_schema": {"type": "object", "properties": {}},
    }


def test_bus_13_the_cache_is_kept_until_the_capsules_change(home: Home, tmp_path: Path) -> None:
    asker = Asker(home)
    try:
        assert asker.cache() is None
        assert asker.names() == ["hello"]
        put(home, tmp_path, "new", describing_guest(tools_json("new", words="New.")))
        asker.runtime.lifecycle.reload(DEFAULT_PRINCIPAL, CapsuleName("new"))
        assert asker.names() == ["hello"], "nobody said that the capsules have changed"
        asker.reload("new")
        assert asker.names() == ["hello", "new"]
        asker.runtime.lifecycle.unload(DEFAULT_PRINCIPAL, CapsuleName("new"))
        asker.say("astrid.v1.capsules_loaded", {})
        assert asker.names() == ["hello"]
    finally:
        asker.runtime.close()


def test_bus_13_a_persisted_cache_says_nothing_of_what_changed_while_the_daemon_was_down(
    home: Home, tmp_path: Path
) -> None:
    """Present, then absent, each after a restart that finds the cache of before."""
    for change, names in (
        (lambda: None, ["hello"]),
        (lambda: put(home, tmp_path, "new", describing_guest(tools_json("new"))), ["hello", "new"]),
        (
            lambda: remove_installed(home, DEFAULT_PRINCIPAL, CapsuleName("new"), purge=False),
            ["hello"],
        ),
    ):
        change()
        asker = Asker(home)
        try:
            assert asker.names() == names
            assert asker.cache() is not None
        finally:
            asker.runtime.close()


def test_the_first_of_a_name_wins_and_the_loser_is_told(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path, "second", describing_guest(tools_json("same", words="late"), first=sleep_ms(100)))
    put(home, tmp_path, "first", describing_guest(tools_json("same", words="early")))
    asker = Asker(home)
    try:
        answer = asker.ask()
        assert [tool["description"] for tool in answer["tools"] if tool["name"] == "same"] == ["early"]
        [lost] = answer["shadowed"]
        assert lost["name"] == "same"
    finally:
        asker.runtime.close()


def test_what_is_only_returned_reaches_no_model(home: Home, tmp_path: Path) -> None:
    """The daemon's own probe understands it, so the tool can be called by its name."""
    put(home, tmp_path, "quiet", answering_guest("quiet"))
    asker = Asker(home)
    try:
        assert asker.names() == ["hello"]
        resident = asker.runtime.lifecycle.view(DEFAULT_PRINCIPAL).residents[CapsuleName("quiet")]
        assert [tool.name for tool in resident.tools or ()] == ["quiet"]
    finally:
        asker.runtime.close()


def test_256_tools_are_collected_and_an_empty_cache_is_none(home: Home, tmp_path: Path) -> None:
    """Four capsules describe 280, each in the older form, below `data`."""
    for number in range(4):
        tools = [{"name": f"{number}-{n}"} for n in range(70)]
        put(home, tmp_path, f"many-{number}", describing_guest(json.dumps({"data": {"tools": tools}})))
    asker = Asker(home)
    try:
        space = asker.runtime.state.space(DEFAULT_PRINCIPAL, CapsuleName("prompt-builder"))
        space.set(CACHE_KEY, b'{"tools":[],"shadowed":[]}')
        assert len(set(asker.names())) == 256
        assert len(json.loads(asker.cache() or b"")["tools"]) == 256
    finally:
        asker.runtime.close()


def test_a_request_that_names_no_segment_is_not_answered(home: Home) -> None:
    asker = Asker(home)
    try:
        asker.say("prompt_builder.v1.request.tools", {"req_id": "a.b"})
        asker.say("prompt_builder.v1.request.tools", {})
        assert asker.names() == ["hello"]
        assert asker.answers.empty()
    finally:
        asker.runtime.close()
