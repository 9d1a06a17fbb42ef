"""What every capsule built from astrid-sdk must do on this host: reusable checks over a component file.

Each takes the path of a component and raises AssertionError in words.  They need no daemon and no bus;
journeys call them with capsules that cargo has just built.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blake3 import blake3

from aos_runtime.host import Code, CodeCache, GuestTrap, HookResult, HostEngine, Instance, TrapReason
from aos_runtime.names import Digest
from tests.support.guests import Recorder

UNKNOWN_ACTION = b"no_such_action"


@contextmanager
def loaded(component: Path) -> Iterator[Code]:
    """Code of the component, mapped from precompiled code rather than compiled."""
    data = component.read_bytes()
    digest = Digest(blake3(data).hexdigest())
    engine = HostEngine()
    try:
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "cache"
            compiled = CodeCache(engine, cache, b"c" * 32).precompile(digest, data)
            code = CodeCache(engine, cache, b"c" * 32).load(digest, _never)
            assert code is not compiled and code.interface == compiled.interface
            yield code
    finally:
        engine.close()


def check_any(component: Path) -> list[dict[str, Any]]:
    """Describes itself, denies an unknown action, answers after a failed publish; gives its tools."""
    with loaded(component) as code:
        recorder = Recorder()
        instance = Instance(code, recorder.context())
        described = instance.hook(b"tool_describe", b"")
        unknown = instance.hook(UNKNOWN_ACTION, b"{}")
        assert unknown == HookResult("deny", b"unknown hook action: " + UNKNOWN_ACTION), unknown
        recorder.answers = lambda _topic, _payload: "unknown:nobody is here"
        assert instance.hook(b"tool_describe", b"").action == described.action
        if described.action == "deny":
            assert described.data == b"unknown hook action: tool_describe", described
            return []
        assert described.data is not None
        [(topic, published), *_] = recorder.published
        assert topic.startswith("tool.v1.response.describe."), topic
        assert json.loads(published) == json.loads(described.data)
        tools: list[dict[str, Any]] = json.loads(described.data)["tools"]
        return tools


def check_tool(component: Path, name: str, arguments: dict[str, object], content: str) -> None:
    """The tool publishes one result with this content; bad arguments are an error result, not a trap."""
    with loaded(component) as code:
        recorder = Recorder()
        instance = Instance(code, recorder.context())
        assert call_tool(instance, recorder, name, arguments) == (content, False)
        text, is_error = call_tool(instance, recorder, name, [])
        assert is_error and "failed to parse tool arguments" in text, text
        denied = instance.hook(f"tool_execute_{name}".encode(), b"{}")
        assert denied.action == "deny", denied


def check_error(component: Path, name: str, arguments: dict[str, object], said: str) -> None:
    """What a tool returns as its error is the text of an error result, and no state is kept of its call."""
    with loaded(component) as code:
        recorder = Recorder()
        content, is_error = call_tool(Instance(code, recorder.context()), recorder, name, arguments)
        assert is_error and said in content, content
        assert recorder.kv.values == {}, recorder.kv.values


def check_panic(component: Path, name: str, arguments: dict[str, object], said: str) -> None:
    """CMP-12: a panic is logged with its place, ends the instance, and outward has no backtrace."""
    with loaded(component) as code:
        recorder = Recorder()
        instance = Instance(code, recorder.context())
        try:
            call_tool(instance, recorder, name, arguments)
        except GuestTrap as trap:
            assert (trap.reason, trap.message) == (TrapReason.TRAP, "it panicked or aborted")
            assert instance.dead
        else:
            raise AssertionError("the capsule did not panic")
        levels = [level for level, _ in recorder.logged]
        first = recorder.logged[0][1]
        assert levels[0] == "error" and first.startswith("capsule panic at src/lib.rs:"), recorder.logged
        assert first.endswith(said), first


def check_state(component: Path, name: str, arguments: dict[str, object], contents: list[str]) -> None:
    """`#[capsule(state)]`: one call per content, each on a new instance, over the same keys; no error
    logged."""
    with loaded(component) as code:
        recorder = Recorder()
        for content in contents:
            instance = Instance(code, recorder.context())
            assert call_tool(instance, recorder, name, arguments) == (content, False)
            instance.close()
        assert list(recorder.kv.values) == ["__state"]
        assert [record for record in recorder.logged if record[0] == "error"] == []
        recorder.kv.values["__state"] = b"no longer what it was"
        instance = Instance(code, recorder.context())
        assert call_tool(instance, recorder, name, arguments) == (contents[0], False)  # ABI-12: default again


def check_lifecycle(component: Path, implemented: set[str]) -> Recorder:
    """CMP-19: exactly these of run, astrid-install and astrid-upgrade are the author's; runs both hooks."""
    with loaded(component) as code:
        recorder = Recorder()
        assert code.implemented == implemented, code.implemented
        if "astrid-install" in implemented:
            Instance(code, recorder.context()).lifecycle("astrid-install")
        if "astrid-upgrade" in implemented:
            Instance(code, recorder.context()).lifecycle("astrid-upgrade")
        return recorder


def call_tool(instance: Instance, recorder: Recorder, name: str, arguments: object) -> tuple[str, bool]:
    """Call a tool as the router does; its content, decoded where it is one JSON string, and `is_error`."""
    request = {"type": "tool_execute_request", "call_id": "c1", "tool_name": name, "arguments": arguments}
    recorder.published.clear()
    result = instance.hook(f"tool_execute_{name}".encode(), json.dumps(request).encode())
    assert result == HookResult("continue", None), result
    [(topic, body)] = recorder.published
    answer = json.loads(body)
    assert (topic, answer["type"], answer["call_id"]) == (
        f"tool.v1.execute.{name}.result",
        "tool_execute_result",
        "c1",
    )
    content, is_error = answer["result"]["content"], answer["result"]["is_error"]
    return (content if is_error else _decoded(content)), is_error


def _decoded(content: str) -> str:
    value = json.loads(content)
    return value if isinstance(value, str) else content


def _never() -> bytes:
    raise AssertionError("the precompiled code was not used")
