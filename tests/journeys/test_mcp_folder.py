"""MCP servers from a folder to answered tools: a server made with the official SDK, a capsule by `aos`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.installation import Aos

pytestmark = pytest.mark.journey

SERVER = '''\
import os
from mcp.server import MCPServer

server = MCPServer("ledger")


@server.tool()
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@server.tool()
def owner() -> str:
    """Whose ledger it is."""
    return os.environ["LEDGER_OWNER"]


@server.tool()
def spend(amount: int) -> str:
    """Spend what is not there."""
    raise ValueError("told to nobody: the SDK masks it")


server.run()
'''


def make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "ledger.py").write_text(SERVER)
    servers: dict[str, Any] = {
        "ledger": {
            "command": sys.executable,
            "args": ["ledger.py"],
            "env": {"LEDGER_OWNER": "nobody: this value is not packed"},
        },
        "remote": {"httpUrl": "https://ledger.example/mcp"},
    }
    (folder / "mcp.json").write_text(json.dumps({"name": "ledger", "mcpServers": servers}))
    return folder


@pytest.fixture
def patient(aos: Aos) -> Aos:
    """A home whose servers have a minute to start in: the SDK's imports are slow on a busy machine."""
    aos.run("init", "--yes")
    aos.home.config_file.write_text("[timeouts]\nmcp_start_secs = 60\n")
    return aos


def call(aos: Aos, tool: str, *, status: int = 0, **arguments: object) -> dict[str, Any]:
    document = json.dumps(arguments)
    answer = aos.run("tool", "call", tool, "--input", document, "--format", "json", status=status).json
    assert isinstance(answer, dict)
    return answer


def test_a_folder_with_an_mcp_json_becomes_tools_that_answer(patient: Aos, tmp_path: Path) -> None:
    aos, folder = patient, make_folder(tmp_path / "ledger")
    built = aos.run("capsule", "build", str(folder), "--format", "json").json
    assert (built["mcp_servers"], built["files"][:2]) == (["ledger"], ["Capsule.toml", "ledger.py"])
    aos.run("start")
    aos.run("capsule", "install", built["path"], "--yes", "--var", "LEDGER_OWNER=Ada")
    shown = aos.run("capsule", "show", "ledger").out
    assert sys.executable in shown, "what it may start is told"

    tools = {row["name"]: row for row in aos.run("tool", "list", "--format", "json").json}
    assert {name for name, row in tools.items() if row["capsule"] == "ledger"} == {"add", "owner", "spend"}
    schema = aos.run("tool", "show", "add", "--format", "json").json["input_schema"]
    assert (schema["required"], set(schema["properties"])) == (["left", "right"], {"left", "right"})

    assert aos.run("tool", "call", "add", "left:=40", "right:=2").out == "42\n"
    assert call(aos, "owner")["content"] == "Ada"
    failed = call(aos, "spend", status=1, amount=7)
    assert (failed["is_error"], failed["content"]) == (True, "Error executing tool spend")
    refused = aos.run("tool", "call", "add", "left:=40", status=1)
    assert "right" in refused.err, "arguments are checked against the server's own schema"

    states = {row["name"]: row for row in aos.run("status", "--format", "json").json["daemon"]["capsules"]}
    assert (states["ledger"]["state"], states["ledger"]["calls"]) == ("ready", 3)
    aos.run("restart")
    assert call(aos, "add", left=1, right=1)["content"] == "2"

    changed = json.loads((folder / "mcp.json").read_text()) | {"version": "1.1.0"}
    (folder / "mcp.json").write_text(json.dumps(changed))
    (folder / "ledger.py").write_text(SERVER.replace("left + right", "left - right"))
    aos.run("capsule", "install", str(folder), "--yes")
    assert call(aos, "add", left=1, right=1)["content"] == "0", "a folder is built by its install"
    assert call(aos, "owner")["content"] == "Ada", "values stay"
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.py", "mcp.json"]
