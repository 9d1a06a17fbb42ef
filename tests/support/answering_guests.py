"""Tool capsules made of WAT that answer a call as they please: late, twice, for another call, or never.

The request that the router publishes begins with its call id at a fixed place, which the guest copies into
its ready-made answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aos_runtime.wire.payloads import encode_tool_result
from tests.support.guests import CONTINUE, IPC, PUBLISH_IMPORT, component_of, guest_text, world_of
from tests.support.guests import publish_call as publish
from tests.support.tool_guests import DESCRIBE_AT, describe_answer

CALL_ID_CHARS = 32
CALL_ID_AT = len('{"type":"tool_execute_request","call_id":"')
HERE = "0" * CALL_ID_CHARS
"""In an answer: the id of the call."""

SYS = "astrid:sys/host@1.0.0"
SLEEP_IMPORT = f'(import "{SYS}" "sleep-ns" (func $sleep (param i64 i32)))'
SPIN = "(loop $spin (br $spin))"
DOZE = "(call $sleep (i64.const 50000000000) (i32.const 512))"
PACKAGES = """package astrid:ipc@1.0.0 {
  interface host {
    variant error-code { capability-denied, invalid-input, closed, rate-limited, backpressure, quota, timeout,
      unknown(string) }
    publish: func(topic: string, payload: string) -> result<_, error-code>;
  }
}
package astrid:sys@1.0.0 {
  interface host {
    variant error-code { capability-denied, config-key-reserved, too-large, registry-unavailable, cancelled,
      unknown(string) }
    sleep-ns: func(duration-ns: u64) -> result<_, error-code>;
  }
}
"""


class Answer(NamedTuple):
    """One result that the guest publishes."""

    call_id: str
    content: str


def answering_guest(tool: str, answers: Sequence[Answer] = (), *, first: str = "", then: str = "") -> bytes:
    """A component with one tool that does `first`, publishes `answers` in order, does `then`, and returns."""
    described = f'{{"tools":[{{"name":"{tool}","description":"","input_schema":{{"type":"object"}}}}]}}'
    topic = f"tool.v1.execute.{tool}.result".encode()
    data, body, at = [(DESCRIBE_AT, described.encode()), (DESCRIBE_AT + 1024, topic)], [first], 16384
    for answer in answers:
        text = encode_tool_result(answer.call_id, answer.content, is_error=False)
        data.append((at, text))
        body += [_copy_call_id(at + place) for place in _places(text)]
        body.append(publish(DESCRIBE_AT + 1024, len(topic), at, len(text)))
        at += 1024
    more = "\n".join(f'(data (i32.const {place}) "{_escaped(value)}")' for place, value in data)
    hook = describe_answer(described) + "\n".join(body) + then + CONTINUE
    text = guest_text(hook, imports=f"{PUBLISH_IMPORT} {SLEEP_IMPORT}", more=more, pages="2")
    return component_of(text, world_of(IPC, SYS, packages=PACKAGES))


def describing_guest(tools_json: str, *, first: str = "") -> bytes:
    """A component that publishes its description, as SDK capsules do, after doing `first`."""
    topic, described = b"tool.v1.response.describe.self", tools_json.encode()
    data = [(DESCRIBE_AT, described), (DESCRIBE_AT + 4096, topic)]
    more = "\n".join(f'(data (i32.const {place}) "{_escaped(value)}")' for place, value in data)
    hook = first + publish(DESCRIBE_AT + 4096, len(topic), DESCRIBE_AT, len(described)) + CONTINUE
    text = guest_text(hook, imports=f"{PUBLISH_IMPORT} {SLEEP_IMPORT}", more=more, pages="2")
    return component_of(text, world_of(IPC, SYS, packages=PACKAGES))


def sleep_ms(duration_ms: int) -> str:
    """A wait of the guest."""
    return f"(call $sleep (i64.const {duration_ms * 1_000_000}) (i32.const 512))"


DENY = """(i64.store (i32.const 64) (i64.const 0x796e6564)) (i32.store (i32.const 16) (i32.const 64))
 (i32.store (i32.const 20) (i32.const 4)) (i32.store8 (i32.const 24) (i32.const 0)) (return (i32.const 16))"""
"""Returns the action `deny`."""


def _places(text: bytes) -> list[int]:
    mark, found = HERE.encode(), []
    at = text.find(mark)
    while at >= 0:
        found.append(at)
        at = text.find(mark, at + 1)
    return found


def _copy_call_id(target: int) -> str:
    source = f"(i32.add (local.get $payload) (i32.const {CALL_ID_AT}))"
    return f"(memory.copy (i32.const {target}) {source} (i32.const {CALL_ID_CHARS}))"


def _escaped(data: bytes) -> str:
    return "".join(f"\\{byte:02x}" for byte in data)
