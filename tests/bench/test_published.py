"""The published runtime's column: each of its replies is checked, and where it is not there nothing is
measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import published
from bench.calls import BridgedCalls
from bench.capsules import Original
from bench.clients import WrongReply
from bench.measures import Plan
from bench.report import ABSENT, Figure, render_table

CALLS = BridgedCalls(Original(members=(), name="hello", tool="hello"), {"name": "Ada"}, "Ada")
FIGURES = [Figure(key="load_32_over_8", runs=(0.9,))]


def reply(number: int = 7, text: str = "Hello, Ada!", **fields: object) -> bytes:
    payload = {"content": [{"type": "text", "text": text}], "isError": False, **fields}
    return json.dumps({"topic": f"astrid.v1.response.{number:031d}", "payload": payload}).encode()


def test_a_call_goes_to_its_own_mcp_capsule() -> None:
    sent = json.loads(CALLS.make(7)[4:])
    payload = {"type": "raw_json", "req_id": f"{7:031d}", "name": "hello", "arguments": {"name": "Ada"}}
    assert (sent["topic"], sent["payload"]) == ("astrid.v1.request.mcp.tool.call", payload)
    assert CALLS.check(7, reply())


@pytest.mark.parametrize(
    "body", [reply(8), reply(text="Hello, Eve!"), reply(isError=True), reply(isError=None)]
)
def test_a_wrong_reply_ends_the_measure(body: bytes) -> None:
    with pytest.raises(WrongReply):
        CALLS.check(7, body)


@pytest.mark.parametrize(
    ("version", "home"), [(ABSENT, Path("/nowhere")), ("astrid 1", None)], ids=["no binaries", "no home"]
)
def test_what_is_not_there_is_absent(monkeypatch: pytest.MonkeyPatch, version: str, home: Any) -> None:
    monkeypatch.setattr(published, "published_version", lambda: version)
    monkeypatch.setattr(published, "_prepared_home", lambda: home)
    figures = published.measure_published("load", FIGURES, Plan(runs=1, for_s=0.1))
    assert figures == FIGURES
    assert render_table(figures, {}).splitlines()[-1].endswith(ABSENT)
