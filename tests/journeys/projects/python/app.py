"""A capsule in Python: the tool `tally` counts its calls and tells what the host answered."""

import json

import wit_world
from componentize_py_types import Err
from wit_world.imports import astrid_ipc_host, astrid_kv_host, astrid_sys_host, lifecycle

TOOLS = {
    "tools": [
        {
            "name": "tally",
            "description": "Counts its calls",
            "input_schema": {"type": "object", "properties": {"by": {"type": "integer"}}},
        }
    ]
}


class WitWorld(wit_world.WitWorld):
    def astrid_hook_trigger(self, action: str, payload: bytes) -> lifecycle.CapsuleResult:
        if action == "tool_describe":
            return lifecycle.CapsuleResult("continue", json.dumps(TOOLS))
        if action != "tool_execute_tally":
            return lifecycle.CapsuleResult("deny", f"unknown hook action: {action}")
        request = json.loads(payload)
        content = json.dumps(tally(request["arguments"].get("by", 1)), sort_keys=True)
        answer(request["call_id"], content)
        return lifecycle.CapsuleResult("continue", None)


def tally(by: int) -> dict:
    before = astrid_kv_host.kv_get("count")
    count = int(before or b"0") + by
    astrid_kv_host.kv_set("count", str(count).encode())
    astrid_sys_host.log(astrid_sys_host.LogLevel.INFO, f"count is {count}")
    return {
        "count": count,
        "keys": astrid_kv_host.kv_list_keys(""),
        "city": astrid_sys_host.get_config("city"),
        "random": len(astrid_sys_host.random_bytes(16)),
        "empty key": refusal(lambda: astrid_kv_host.kv_get("")),
        "elsewhere": refusal(lambda: astrid_ipc_host.publish("not.mine", "{}")),
    }


def refusal(call) -> str:
    try:
        call()
    except Err as error:
        return type(error.value).__name__
    return "none"


def answer(call_id: str, content: str) -> None:
    result = {"call_id": call_id, "content": content, "is_error": False}
    message = {"type": "tool_execute_result", "call_id": call_id, "result": result}
    astrid_ipc_host.publish("tool.v1.execute.tally.result", json.dumps(message))
