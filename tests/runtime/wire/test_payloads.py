from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.wire import payloads
from aos_runtime.wire.payloads import (
    ToolOutcome,
    ToolRequest,
    ToolResult,
    decode_tool_request,
    decode_tool_result,
    encode_tool_cancel,
    encode_tool_request,
    encode_tool_result,
    normalise,
    tool_call_id,
)

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/wire/payloads.json").read_text())

numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(("sent", "kind", "body"), GOLDEN["accepted"])
def test_a_known_tag_is_typed(sent: str, kind: str | None, body: object) -> None:
    result = normalise(sent.encode())
    assert result is not None
    assert (result.kind, json.loads(result.body)) == (kind, body)


def test_every_known_tag_has_a_golden_row() -> None:
    seen = {json.loads(sent)["type"] for sent, _kind, _body in GOLDEN["accepted"]}
    assert seen == set(payloads.TAGS)


@pytest.mark.parametrize("sent", GOLDEN["unchanged"])
def test_everything_else_is_custom_byte_for_byte(sent: str) -> None:
    assert normalise(sent.encode()) == payloads.Normalised(None, sent.encode())


@pytest.mark.parametrize("sent", GOLDEN["refused"])
def test_what_is_not_strict_json_is_refused(sent: str) -> None:
    assert normalise(sent.encode()) is None


@pytest.mark.parametrize(
    "sent",
    [
        b'{"a":"\xff"}',
        b'"\xed\xa0\x80"',
        b'{"type":"connect","extra":"\xff"}',
        b'{"type":"tool_execute_request","call_id":"c","tool_name":"t","arguments":"\xc3"}',
        b"\xff",
    ],
)
def test_invalid_utf8_is_refused_wherever_it_is(sent: bytes) -> None:
    assert normalise(sent) is None


@pytest.mark.parametrize("frame", ["%s", '{"type":"custom","data":%s}', '{"type":"raw_json","a":%s}'])
def test_nesting_without_end_is_refused_not_followed(frame: str) -> None:
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        assert normalise((frame % (opened * 100_000 + "1" + closed * 100_000)).encode()) is None
        assert normalise((frame % (opened * 100_000)).encode()) is None


@pytest.mark.parametrize("frame", ["%s", '{"type":"custom","data":%s}', '{"type":"raw_json","a":%s}'])
def test_numbers_without_end_are_refused(frame: str) -> None:
    assert normalise((frame % ("1" * 10_000)).encode()) is None


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_is_json(data: bytes) -> None:
    result = normalise(data)
    if result is not None:
        json.loads(result.body)


@given(values)
def test_any_json_survives(value: object) -> None:
    result = normalise(json.dumps(value).encode())
    assert result is not None
    if result.kind is None:
        assert json.loads(result.body) == value


@given(values)
def test_wrappers_come_off_to_the_same_value(value: object) -> None:
    custom = normalise(json.dumps({"type": "custom", "data": value}).encode())
    raw = normalise(json.dumps({"type": "raw_json", "value": value}).encode())
    assert custom is not None
    assert raw is not None
    assert (custom.kind, json.loads(custom.body)) == (None, value)
    assert (raw.kind, json.loads(raw.body)) == ("raw_json", {"value": value})


@given(texts, texts, values)
def test_normalising_a_typed_payload_twice_changes_nothing(call: str, tool: str, arguments: object) -> None:
    once = normalise(encode_tool_request(call, tool, arguments))
    assert once is not None
    assert once == normalise(once.body)


@given(texts, texts, values)
def test_decode_of_encode_is_identity_for_requests(call: str, tool: str, arguments: object) -> None:
    assert tool_call_id(encode_tool_request(call, tool, arguments)) == call
    assert decode_tool_request(encode_tool_request(call, tool, arguments)) == ToolRequest(
        call, tool, arguments
    )


@given(texts, texts, st.booleans())
def test_decode_of_encode_is_identity_for_results(call: str, content: str, failed: bool) -> None:
    expected = ToolResult(call, ToolOutcome(call, content, failed))
    assert decode_tool_result(encode_tool_result(call, content, is_error=failed)) == expected


@given(st.binary(max_size=80))
def test_garbage_is_no_tool_message(data: bytes) -> None:
    assert decode_tool_request(data) is None
    assert tool_call_id(data) is None
    assert decode_tool_result(data) is None


def test_encoders_write_the_convention() -> None:
    request = encode_tool_request("c1", "hello", {"name": "Ada"})
    result = encode_tool_result("c1", "Hello, Ada!", is_error=False)
    assert request == (
        b'{"type":"tool_execute_request","call_id":"c1","tool_name":"hello","arguments":{"name":"Ada"}}'
    )
    assert result == (
        b'{"type":"tool_execute_result","call_id":"c1",'
        b'"result":{"call_id":"c1","content":"Hello, Ada!","is_error":false}}'
    )
    assert encode_tool_cancel(["c1"]) == b'{"type":"tool_cancel_request","call_ids":["c1"]}'
