"""Capsules of MCP servers in a real daemon: real processes, the official SDK, and tools like any other."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.capsule.archive import Member, entry_of, write_archive
from aos_runtime.capsule.provenance import PROVENANCE_FILE, content_digest, render_provenance, sign_content
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.programs.pipes import LINES_PER_S
from aos_runtime.store.audit_reader import read_audit
from aos_runtime.store.keys import load_runtime_seed
from aos_runtime.store.layout import open_home
from tests.support.sockets import NIL, Client, Daemon, connected, running
from tests.support.tool_guests import install

pytestmark = pytest.mark.journey

SERVER = (Path(__file__).parents[2] / "support" / "mcp_server.py").read_bytes()
PROMPT_S = 30.0


def put(home: Home, folder: Path, *modes: str, name: str = "served", env: str = "") -> None:
    """Install a capsule whose server is the script in it."""
    args = json.dumps(["server.py", *modes])
    manifest = (
        f'[package]\nname = "{name}"\nversion = "1.0.0"\ndescription = "Servers"\n'
        f"[capabilities]\nhost_process = [{json.dumps(sys.executable)}]\n"
        f'[[mcp_server]]\nid = "probe"\ntype = "stdio"\nargs = {args}\n'
        f"command = {json.dumps(sys.executable)}\n" + env
    )
    members = [
        Member(path="Capsule.toml", data=manifest.encode()),
        Member(path="server.py", data=SERVER),
    ]
    digest = content_digest(entry_of(member) for member in members)
    provenance = sign_content(digest, load_runtime_seed(home, create=True))
    install(
        home,
        folder,
        name,
        write_archive([*members, Member(path=PROVENANCE_FILE, data=render_provenance(provenance))]),
    )


WAYS = ("unsandboxed", "bubblewrap") if shutil.which("bwrap") else ("unsandboxed",)
"""Where bubblewrap is not installed, tests/runtime/programs/test_sandbox.py alone tests its command line."""


both_ways = pytest.mark.parametrize("home", WAYS, indirect=True)


@pytest.fixture
def home(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Behind bubblewrap where it is, unless a test asks for both ways."""
    made = Home(tmp_path / "home")
    open_home(made, create=True)
    made.config_file.write_text("[timeouts]\nmcp_start_secs = 60\n")
    if getattr(request, "param", WAYS[-1]) == "unsandboxed":
        unsandboxed(made, tmp_path, monkeypatch)
    monkeypatch.setattr("tests.support.sockets.WAIT_S", 90.0)
    return made


def unsandboxed(home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH without bubblewrap, and an operator who does without."""
    home.config_file.write_text("[timeouts]\nmcp_start_secs = 60\n[process]\nunsandboxed = true\n")
    monkeypatch.setenv("PATH", str(folder))


def call(client: Client, tool: str, **arguments: object) -> tuple[str, bool]:
    params = {"name": tool, "timeout_s": 60.0, "arguments": arguments}
    reply = client.tools("call", params)
    assert reply["status"] == "Success", reply
    return reply["data"]["content"], reply["data"]["is_error"]


def state_of(client: Client, name: str = "served") -> dict[str, Any]:
    [row] = [row for row in client.request("GetStatus")["data"]["capsules"] if row["name"] == name]
    return dict(row)


def log_of(home: Home, name: str = "served") -> str:
    return home.capsule_log(DEFAULT_PRINCIPAL, CapsuleName(name)).read_text()


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_principal_whose_profile_does_not_list_the_program_has_no_server(
    home: Home, tmp_path: Path
) -> None:
    put(home, tmp_path)
    with running(home), connected(home) as client:
        assert state_of(client)["state"] == "ready"
        profile = home.profile(DEFAULT_PRINCIPAL)
        before = profile.read_text()
        profile.write_text(f"{before}\n[process]\nallow = ['git']\n")
        refused = client.request("ReloadCapsule", {"id": "served"})
        text = "its MCP server `probe` is not started: process.allow of principal 'default' does not list it"
        assert text in refused["data"]
        profile.write_text(f"{before}\n[process]\nallow = [{json.dumps(sys.executable)}]\n")
        assert client.request("ReloadCapsule", {"id": "served"})["status"] == "Success"
    with read_audit(home.audit_db) as reader:
        assert reader is not None
        actions = [record.entry.action for record in reader.records()]
    assert [one for one in actions if one.get("call") == "process.mcp-server"] == [
        {
            "type": "host_call_run",
            "capsule_id": "served",
            "call": "process.mcp-server",
            "resource": sys.executable,
            "count": 1,
        }
    ]


@both_ways
def test_its_tools_are_tools_like_any_other(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path, "garbage")
    with running(home), connected(home) as client:
        tools = [tool for tool in client.tools("list")["data"] if tool["capsule"] == "served"]
        assert [tool["name"] for tool in tools] == ["die", "echo", "env", "look", "refuse", "sleep"]
        assert tools[1] == {
            "name": "echo",
            "description": "Does echo.",
            "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "mutable": False,
            "capsule": "served",
            "shadowed": [],
        }
        assert call(client, "echo", text="Grüße\n") == ("Grüße\n", False)
        assert call(client, "refuse") == ("no", True)
        warnings = state_of(client)["warnings"]
        assert warnings == ["MCP server `probe` has a tool named 'not.a.name', left out"]
    log = log_of(home)
    assert "probe: hello from the server" in log
    assert "printed what is no message: starting up ... 100%" in log


@both_ways
def test_it_sees_only_what_it_was_given(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_DAEMON", "x")
    env = '[env.GREETING]\ntype = "text"\nrequest = "?"\ndefault = "hi"\n'
    put(home, tmp_path, env=env)
    with running(home), connected(home) as client:
        seen = json.loads(call(client, "env")[0])
        own = "HOME" if seen.get("HOME") == "/tmp" else "AOS_CHILD"
        allowed = {"PATH", "LANG", "TZ", "GREETING", "PWD", own}
        allowed |= {key for key in seen if key.startswith("LC_")}
        assert (seen["GREETING"], set(seen) - allowed) == ("hi", set())


def test_bubblewrap_masks_the_home(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path)
    is_walled = shutil.which("bwrap") is not None
    with running(home), connected(home) as client:
        assert json.loads(call(client, "look", path=".")[0]) == ["Capsule.toml", "meta.json", "server.py"]
        for path in (home.keys, home.run):
            content, is_error = call(client, "look", path=str(path))
            assert (content == "FileNotFoundError", is_error) == (is_walled, is_walled)


def test_tools_that_come_while_it_runs_are_on_the_bus(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path, "growing")
    with running(home), connected(home) as client:
        assert client.tools("show", {"name": "grown"})["status"] == "Error"
        assert call(client, "grow") == ("growing", False)
        wait_for(lambda: client.tools("show", {"name": "grown"})["status"] == "Success")
        assert call(client, "grown") == ("grown", False)
        assert call(client, "echo", text="still here") == ("still here", False)
    assert log_of(home).count("hello from the server") == 1


def test_a_reinstall_replaces_the_server_that_runs(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path)
    with running(home), connected(home) as client:
        assert "GREETING" not in json.loads(call(client, "env")[0])
        before = sorted(home.children.iterdir())
        put(home, tmp_path, env='[env.GREETING]\ntype = "text"\nrequest = "?"\ndefault = "hi"\n')
        assert client.request("ReloadCapsule", {"id": "served"})["status"] == "Success"
        assert json.loads(call(client, "env")[0])["GREETING"] == "hi"
        wait_for(lambda: len(set(home.children.iterdir()) & set(before)) == 1)  # the mark
        assert len(list(home.children.iterdir())) == len(before)


def test_without_the_sdk_it_says_how_to_get_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, tmp_path)
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "mcp.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setattr("tests.support.sockets.IMPORTS", (str(blocker),))
    with running(home), connected(home) as client:
        row = state_of(client)
        assert row["state"] == "failed"
        assert row["reason"] == "it has an MCP server, and the MCP SDK is not installed"
        assert call(client, "hello", name="Ada")[0] == '"Hello, Ada!"'


def test_a_daemon_without_servers_imports_neither_event_loop_nor_sdk(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    for name in ("asyncio", "mcp"):
        (blocker / f"{name}.py").write_text("raise RuntimeError('imported')\n")
        probe = subprocess.run(
            [sys.executable, "-P", "-c", f"import {name}"],
            env={**os.environ, "PYTHONPATH": str(blocker)},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert b"RuntimeError: imported" in probe.stderr, "the blocker blocks"
    monkeypatch.setattr("tests.support.sockets.IMPORTS", (str(blocker),))
    with running(home), connected(home) as client:
        assert call(client, "hello", name="Ada")[0] == '"Hello, Ada!"'


def test_a_server_that_dies_is_started_again_by_the_next_call(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path)
    with running(home), connected(home) as client:
        content, is_error = call(client, "die")
        assert is_error and content
        wait_for(lambda: "ended with status" in log_of(home))
        assert call(client, "echo", text="back") == ("back", False)


def test_one_that_keeps_dying_is_left_alone(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path)
    with running(home), connected(home) as client:
        for number in range(6):
            assert call(client, "die")[1]
            wait_for(lambda count=number: log_of(home).count("ended with status") > count)
        content, is_error = call(client, "echo", text="x")
        assert is_error and "its MCP servers ended 6 times in 60 s" in content
        assert call(client, "hello", name="Ada")[0] == '"Hello, Ada!"'


@both_ways
def test_a_cancel_and_a_timeout_reach_the_server(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path)
    with running(home), connected(home) as client:
        params = {"name": "sleep", "arguments": {"seconds": 60}, "timeout_s": 50}
        payload = {"type": "raw_json", "params": params}
        client.send({"topic": "astrid.v1.request.tools.call.c1", "payload": payload, "source_id": NIL})
        wait_for(lambda: "probe: sleeping" in log_of(home))
        began = time.monotonic()
        assert client.tools("cancel", {"corr": "c1"})["data"] == {"cancelled": True}
        assert call(client, "echo", text="next") == ("next", False)
        assert time.monotonic() - began < PROMPT_S
        params["timeout_s"] = 0.5
        assert client.tools("call", params)["status"] == "Error"
        assert call(client, "echo", text="next") == ("next", False)
        wait_for(lambda: log_of(home).count("probe: cancelled") == 2)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@both_ways
def test_the_next_daemon_ends_what_a_killed_one_left(home: Home, tmp_path: Path) -> None:
    """Killed at the start, before bubblewrap ties itself to it; with a child in another session."""
    put(home, tmp_path, "runaway")
    file = home.children / "mark"
    daemon = Daemon(home)
    wait_for(lambda: file.exists() and is_marked(file.read_text()))
    os.kill(daemon.process.pid, signal.SIGKILL)
    daemon.stop()
    mark = file.read_text()
    with running(home), connected(home) as client:
        assert call(client, "echo", text="again") == ("again", False)
        assert file.read_text() != mark
        wait_for(lambda: not is_marked(mark))
    assert not home.children.exists()


@both_ways
def test_at_the_stop_of_the_daemon_nothing_is_left(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path, "runaway")
    with running(home), connected(home) as client:
        mark = home.children.joinpath("mark").read_text()
        assert call(client, "echo", text="x") == ("x", False)
        assert is_marked(mark)
    wait_for(lambda: not is_marked(mark))


def is_marked(mark: str) -> bool:
    """Whether any process carries the mark of a daemon's children."""
    return bool(marked(mark))


def marked(mark: str) -> set[int]:
    """The processes that carry the mark of a daemon's children."""
    word = f"AOS_CHILD={mark}".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if word in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


@both_ways
def test_one_that_ignores_cancel_ping_and_sigint_is_killed_with_its_group(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path, "deaf")
    with running(home), connected(home) as client:
        mark = home.children.joinpath("mark").read_text()
        payload = {"type": "raw_json", "params": {"name": "deafen", "arguments": {}, "timeout_s": 60}}
        client.send({"topic": "astrid.v1.request.tools.call.c1", "payload": payload, "source_id": NIL})
        wait_for(lambda: "probe: deaf" in log_of(home))
        group = marked(mark)
        assert client.tools("cancel", {"corr": "c1"})["data"] == {"cancelled": True}
        wait_for(lambda: call(client, "echo", text="back") == ("back", False))
        wait_for(lambda: not any(is_alive(pid) for pid in group))
        assert marked(mark), "the next call started a new one"
    log = log_of(home)
    assert log.index("does not stop what was cancelled: it is ended") < log.index("probe: interrupted")
    assert log.count("hello from the server") == 2


def test_what_it_prints_is_bounded_and_counted(home: Home, tmp_path: Path) -> None:
    """Each window of a second logs its first lines and then counts: no line is lost from the sum."""
    put(home, tmp_path, "loud")
    with running(home), connected(home) as client:
        assert call(client, "shout", lines=3000) == ("hoarse", False)
        assert call(client, "echo", text="and answers") == ("and answers", False)
        wait_for(lambda: shouted(home)[0] + shouted(home)[1] == 6000)
    logged, dropped, tellings = shouted(home)
    assert dropped > 0
    assert logged <= LINES_PER_S * (tellings + 1)


def shouted(home: Home) -> tuple[int, int, int]:
    """Lines of `shout` in the log, lines that were counted only, and how often that was said."""
    lines = log_of(home).splitlines()
    counted = [re.search(r"wrote too much: (\d+) lines more were dropped", line) for line in lines]
    told = [int(match[1]) for match in counted if match]
    logged = sum("probe: shout" in line or "no message: babble" in line for line in lines)
    return logged, sum(told), len(told)


@pytest.mark.parametrize("modes", [("child",), ("child", "mute")], ids=" ".join)
def test_the_whole_group_dies_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modes: tuple[str, ...]
) -> None:
    """At the daemon's stop, and where the handshake fails."""
    home = Home(tmp_path / "home")
    open_home(home, create=True)
    start_secs = 5 if "mute" in modes else 60
    home.config_file.write_text(f"[timeouts]\nmcp_start_secs = {start_secs}\n[process]\nunsandboxed = true\n")
    child = tmp_path / "child.pid"
    hidden = tmp_path / "no-bwrap"
    hidden.mkdir()
    (hidden / "sleep").symlink_to("/bin/sleep")
    monkeypatch.setenv("PATH", str(hidden))
    put(home, tmp_path, *modes, env=f'[env.CHILD_FILE]\ntype = "text"\nrequest = "?"\ndefault = "{child}"\n')
    with running(home), connected(home) as client:
        pid = int(child.read_text())
        if "mute" in modes:
            assert "did not answer within 5 s" in state_of(client)["reason"]
        else:
            assert is_alive(pid)
    wait_for(lambda: not is_alive(pid))


def test_a_server_that_ends_in_the_handshake_is_told_with_the_capsule(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path, "crash")
    with running(home), connected(home) as client:
        row = state_of(client)
        assert row["state"] == "failed" and row["reason"].startswith("MCP server `probe` failed: ")
        assert call(client, "hello", name="Ada")[0] == '"Hello, Ada!"'


def test_without_walls_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    open_home(home, create=True)
    put(home, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with running(home), connected(home) as client:
        assert state_of(client)["reason"] == (
            "it starts a program, and bubblewrap (bwrap), which would confine it, is not installed"
        )
