"""The bundled router and a bundled tool, as binaries: the convention of tools, message by message."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.capsule.archive import iter_members, scan_archive
from aos_runtime.capsule.manifest import Manifest, parse_manifest
from aos_runtime.host import Code, HookResult, Instance
from aos_runtime.store.bundled import read_catalogue
from aos_runtime.wire.payloads import encode_tool_request, encode_tool_result
from bench.capsules import BUNDLED
from tests.support.capsule_conformance import call_tool, check_any, loaded
from tests.support.guests import FakeInflow, Recorder

REQUEST, RESULT = b"handle_execute_request", b"handle_execute_result"
DONE = HookResult("continue", None)


def unpacked(name: str, folder: Path) -> tuple[Manifest, Path]:
    """The manifest of a bundled capsule, and its component as a file."""
    data = io.BytesIO((BUNDLED / f"{name}.capsule").read_bytes())
    inventory = scan_archive(data)
    manifest = parse_manifest(inventory.manifest)
    data.seek(0)
    assert manifest.component is not None
    path = folder / f"{name}.wasm"
    path.write_bytes(
        next(one.data for one in iter_members(data, inventory) if one.path == manifest.component.file)
    )
    return manifest, path


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Code]:
    with loaded(unpacked("router", tmp_path_factory.mktemp("router"))[1]) as code:
        yield code


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def said(code: Code, recorder: Recorder, action: bytes, payload: bytes) -> list[tuple[str, Any]]:
    """What one message makes a fresh router publish."""
    instance = Instance(code, recorder.context())
    try:
        assert instance.hook(action, payload) == DONE
    finally:
        instance.close()
    published, recorder.published = recorder.published, []
    return [(topic, json.loads(body)) for topic, body in published]


def error_result(call_id: str, content: str) -> tuple[str, Any]:
    return "tool.v1.execute.result", json.loads(encode_tool_result(call_id, content, is_error=True))


def test_the_routers_manifest_is_that_of_the_convention(tmp_path: Path) -> None:
    manifest, _ = unpacked("router", tmp_path)
    assert manifest.exports_json() == {"astrid": {"tool": "1.0.0"}}
    assert manifest.publish_patterns == ("tool.v1.execute.*", "tool.v1.execute.result")
    assert {row.topic: row.handler for row in manifest.subscribe} == {
        "tool.v1.request.execute": "handle_execute_request",
        "tool.v1.execute.*.result": "handle_execute_result",
    }
    assert manifest.capabilities.is_empty()


@pytest.mark.parametrize("name", ["hello", "read_file", "a-b", "ns:tool", "9", "größe", "工具"])
def test_a_request_goes_to_the_topic_of_its_tool(router: Code, recorder: Recorder, name: str) -> None:
    request = encode_tool_request("call-1", name, {"n": [1, None], "text": "ü"})
    assert said(router, recorder, REQUEST, request) == [(f"tool.v1.execute.{name}", json.loads(request))]


@pytest.mark.parametrize("name", ["", "foo.bar", "a b", "a/b", "*", "a\n", "e\u0301", "a\x00"])
def test_a_name_that_is_no_segment_is_answered_with_the_error_result(
    router: Code, recorder: Recorder, name: str
) -> None:
    found = said(router, recorder, REQUEST, encode_tool_request("call-1", name, {}))
    assert found == [error_result("call-1", f"Invalid tool name: {name}")]


def test_the_name_of_all_results_is_reserved(router: Code, recorder: Recorder) -> None:
    found = said(router, recorder, REQUEST, encode_tool_request("call-1", "result", {}))
    assert found == [error_result("call-1", "Invalid tool name: result")]


def test_what_the_bus_refuses_is_answered_with_its_words(router: Code, recorder: Recorder) -> None:
    words = "no capsule handles tool.v1.execute.x"
    recorder.answers = lambda topic, _payload: f"unknown:{words}" if topic.endswith(".x") else None
    attempt, (topic, body) = said(router, recorder, REQUEST, encode_tool_request("call-1", "x", {}))
    assert (attempt[0], topic, body["call_id"], body["result"]["call_id"], body["result"]["is_error"]) == (
        "tool.v1.execute.x",
        "tool.v1.execute.result",
        "call-1",
        "call-1",
        True,
    )
    content = body["result"]["content"]
    assert content.startswith("Failed to route tool request: ") and words in content


@pytest.mark.parametrize("is_error", [False, True])
def test_a_result_goes_unchanged_to_the_topic_of_all_results(
    router: Code, recorder: Recorder, is_error: bool
) -> None:
    result = encode_tool_result("call-1", "Hello, Ada!\n", is_error=is_error)
    assert said(router, recorder, RESULT, result) == [("tool.v1.execute.result", json.loads(result))]


@pytest.mark.parametrize(
    "payload",
    [
        b"null",
        b"{}",
        b'"text"',
        b'{"type":"connect"}',
        b'{"type":"tool_execute_request","call_id":1,"tool_name":"t","arguments":{}}',
        b'{"type":"tool_cancel_request","call_ids":["c"]}',
    ],
)
def test_anything_else_is_passed_over(router: Code, recorder: Recorder, payload: bytes) -> None:
    other = {REQUEST: encode_tool_result("c", "x", is_error=False), RESULT: encode_tool_request("c", "x", {})}
    for action, wrong in other.items():
        assert said(router, recorder, action, payload) == []
        assert said(router, recorder, action, wrong) == []


def test_the_router_keeps_nothing(router: Code, recorder: Recorder) -> None:
    """Not a key, and a result of which it has seen no request is brought back as any other."""
    said(router, recorder, REQUEST, encode_tool_request("call-1", "x", {}))
    assert len(said(router, recorder, RESULT, encode_tool_result("call-2", "y", is_error=False))) == 1
    assert recorder.kv.values == {}


def test_the_prompt_builder_listens_then_asks_with_an_empty_object_for_half_a_second(
    tmp_path: Path, recorder: Recorder
) -> None:
    """Its clock moves on 200 ms with each look: what is left of the window shows in its waits."""
    inflow, steps = FakeInflow(), list[str]()
    recorder.answers = lambda topic, payload: steps.append(f"{topic} {payload.decode()}")
    with loaded(unpacked("prompt-builder", tmp_path)[1]) as code:
        context = recorder.context(
            subscribe=lambda pattern: steps.append(f"subscribe {pattern}") or inflow,
            monotonic_ns=itertools.count(0, 200_000_000).__next__,
        )
        assert Instance(code, context).hook(b"handle_tools_request", b'{"req_id":"r1"}') == DONE
    assert steps == [
        "subscribe tool.v1.response.describe.*",
        "tool.v1.request.describe {}",
        'prompt_builder.v1.response.tools.r1 {"req_id":"r1","tools":[],"shadowed":[]}',
    ]
    assert inflow.waits == [0.3, 0.1]


def test_a_tool_of_the_sdk_keeps_the_convention(tmp_path: Path, recorder: Recorder) -> None:
    """Its row, its result topic, continue, an error for bad arguments, and its description said and
    returned.
    """
    manifest, component = unpacked("hello", tmp_path)
    rows = {row.topic: row.handler for row in manifest.subscribe}
    assert rows["tool.v1.execute.hello"] == "tool_execute_hello"
    assert rows["tool.v1.request.describe"] == "tool_describe"
    [tool] = check_any(component)
    assert tool["name"] == "hello" and tool["input_schema"]["type"] == "object"
    assert tool["description"].startswith("Greet someone."), "the comment of its method"
    assert tool["input_schema"]["properties"]["name"]["description"].startswith("Who to greet.")
    with loaded(component) as code:
        instance = Instance(code, recorder.context())
        content, is_error = call_tool(instance, recorder, "hello", {"name": "Ada"})
        assert "Ada" in content and not is_error
        content, is_error = call_tool(instance, recorder, "hello", {"name": 5})
        assert "failed to parse tool arguments" in content and is_error
        [(topic, _)] = recorder.published
        assert topic == "tool.v1.execute.hello.result"


DOMAINS = {
    "files": ("fs_read", "fs_write"),
    "network": ("net", "net_connect", "net_bind"),
    "programs": ("host_process",),
    "people": ("identity",),
}


def test_each_bundled_capsule_asks_for_things_of_one_domain(
    tmp_path: Path,
) -> None:
    names = [row.name for row in read_catalogue()]
    assert {"fs", "http", "router", "hello"} <= set(names)
    for name in names:
        manifest, _ = unpacked(name, tmp_path)
        held = manifest.capabilities
        domains = [domain for domain, keys in DOMAINS.items() if any(held.entries(key) for key in keys)]
        assert len(domains) <= 1, f"{name} spans {domains}"
        assert not (held.uplink or held.allow_prompt_injection), name
