"""A small MCP server for tests: tools echo, env, look, sleep, die, fork; and what a bad server does besides.

Modes, as arguments: `garbage` prints what is no message between messages, `mute` never answers the handshake,
`crash` ends at once, `growing` has a tool `grow` that gives it another one, `loud` a tool `shout` that writes
many lines, `deaf` a tool `deafen` that stays in its call whatever comes, with a child, `child` leaves a child
in its group and writes the child's process id to the file that CHILD_FILE names, `runaway` one in a session
of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MODES = sys.argv[1:]
TOOLS = {
    "echo": {"type": "object", "properties": {"text": {"type": "string"}}},
    "env": {"type": "object"},
    "look": {"type": "object", "properties": {"path": {"type": "string"}}},
    "sleep": {"type": "object", "properties": {"seconds": {"type": "number"}}},
    "die": {"type": "object"},
    "refuse": {"type": "object"},
    "not.a.name": {"type": "object"},
}
MORE_TOOLS = {"growing": "grow", "loud": "shout", "deaf": "deafen"}


def say(value: object) -> None:
    if "garbage" in MODES:
        print("starting up ... 100%", flush=True)
    print(json.dumps(value), flush=True)


def text(words: str, is_error: bool = False) -> dict[str, object]:
    return {"content": [{"type": "text", "text": words}], "isError": is_error}


async def call(name: str, arguments: dict[str, str]) -> dict[str, object]:
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "env":
        return text(json.dumps(dict(sorted(os.environ.items()))))
    if name == "look":
        try:
            return text(json.dumps(sorted(path.name for path in Path(arguments["path"]).iterdir())))
        except OSError as error:
            return text(type(error).__name__, True)
    if name == "sleep":
        print("sleeping", file=sys.stderr, flush=True)
        await asyncio.sleep(float(arguments["seconds"]))
        return text("slept")
    if name == "die":
        os._exit(3)
    if name == "grow":
        TOOLS["grown"] = {"type": "object"}
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("growing")
    if name == "shout":
        for number in range(int(arguments["lines"])):
            print(f"shout {number}", file=sys.stderr, flush=True)
            print(f"babble {number}", flush=True)
        return text("hoarse")
    if name == "deafen":
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what the child inherits
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        signal.signal(signal.SIGINT, lambda number, frame: os.write(2, b"interrupted\n"))
        print("deaf", file=sys.stderr, flush=True)
        time.sleep(300)
    if name == "grown":
        return text("grown")
    return text("no", True)


async def answer(message: dict) -> None:
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        if method == "notifications/cancelled":
            print("cancelled", file=sys.stderr, flush=True)
        return
    result: dict[str, object] = {}
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "probe", "version": "1"},
        }
    elif method == "tools/list":
        at = int(params.get("cursor") or 0)
        names = list(TOOLS)[at : at + 3]
        rows = [{"name": n, "description": f"Does {n}.", "inputSchema": TOOLS[n]} for n in names]
        result = {"tools": rows} | ({"nextCursor": str(at + 3)} if at + 3 < len(TOOLS) else {})
    elif method == "tools/call":
        result = await call(params["name"], params.get("arguments") or {})
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def main() -> None:
    if "crash" in MODES:
        sys.exit(7)
    TOOLS.update({tool: {"type": "object"} for mode, tool in MORE_TOOLS.items() if mode in MODES})
    if "child" in MODES:
        child = subprocess.Popen(["sleep", "300"])
        Path(os.environ["CHILD_FILE"]).write_text(str(child.pid))
    if "runaway" in MODES:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
    if "mute" in MODES:
        time.sleep(300)
    print("hello from the server", file=sys.stderr, flush=True)
    loop, tasks = asyncio.get_running_loop(), set()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = asyncio.ensure_future(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(main())
