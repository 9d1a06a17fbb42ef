"""A small call alone, and beside clients whose tool waits in the host.

The waiting tool is a capsule built here with cargo.  Each of its callers is a principal of its own, since a
capsule serves one call of a principal at a time.  That all of them wait during the whole measurement is
checked: none is answered before its end, and all are soon after.
"""

from __future__ import annotations

import json
import select
import socket
import time
from pathlib import Path

from aos_runtime.wire.client import tools_exchange
from aos_runtime.wire.frames import FrameDecoder, encode_frame
from bench.calls import ToolCalls, measure_calls
from bench.installation import BenchFailed, Daemon, Installation

BLOCKED = 16
NAMES = tuple(f"blocked-{number}" for number in range(BLOCKED))
MARGIN_S = 2.0
"""How much longer the tool waits than the measurement is meant to take."""
PATIENCE_S = 10.0
SOURCE = """
use astrid_sdk::prelude::*;
use astrid_sdk::schemars;
use serde::Deserialize;

#[derive(Default)]
pub struct Dozer;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
pub struct Wait {
    /// How long, in milliseconds.
    pub ms: u64,
}

#[capsule]
impl Dozer {
    /// Wait in the host.
    #[astrid::tool("doze")]
    pub fn doze(&self, args: Wait) -> Result<String, SysError> {
        time::sleep(std::time::Duration::from_millis(args.ms))?;
        Ok("awake".into())
    }
}
"""


def install_dozer(installation: Installation, folder: Path) -> None:
    """The waiting tool for `default` and for each of the principals; the daemon is up."""
    installation.run("capsule", "new", "dozer", folder=folder)
    project = folder / "dozer"
    (project / "src" / "lib.rs").write_text(SOURCE, encoding="ascii")
    manifest = project / "Capsule.toml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(
        text.replace("execute.hello", "execute.doze").replace("execute_hello", "execute_doze"),
        encoding="utf-8",
    )
    installation.run("capsule", "build", folder=project)
    installation.run("capsule", "install", str(project / "dist" / "dozer.capsule"), "--approve-untrusted")
    for name in NAMES:
        installation.run("agent", "create", name, "--clone", "default", "--unsafe-admin")


def measure_beside_blocked(daemon: Daemon, calls: ToolCalls, *, for_s: float) -> float:
    """The median of a small call beside the waiting ones, over that of the same call alone."""
    alone = measure_calls(daemon.connect, calls, clients=1, for_s=for_s)
    waits_s = 2 * for_s + MARGIN_S
    connections = [daemon.connect(name) for name in NAMES]
    try:
        started = time.monotonic()
        for connection in connections:
            arguments = {"name": "doze", "arguments": {"ms": int(waits_s * 1000)}}
            connection.sendall(encode_frame(tools_exchange("call", arguments, "doze").request))
        time.sleep(MARGIN_S / 4)  # until every guest has come to wait
        beside = measure_calls(daemon.connect, calls, clients=1, for_s=for_s)
        if time.monotonic() - started >= waits_s or any(map(_is_answered, connections)):
            raise BenchFailed("a call that should have waited during the measurement was answered in it")
        for connection in connections:
            _wait_for_answer(connection, started + waits_s + PATIENCE_S)
    finally:
        for connection in connections:
            connection.close()
    return beside.quantile_s(0.5) / alone.quantile_s(0.5)


def _is_answered(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    if not readable:
        return False
    waiting = FrameDecoder().feed(connection.recv(1 << 16, socket.MSG_PEEK))
    return any(json.loads(body)["payload"].get("status") != "Working" for body in waiting)


def _wait_for_answer(connection: socket.socket, deadline: float) -> None:
    """BenchFailed where it is not what the tool says, or comes so late that the calls waited in turns."""
    decoder = FrameDecoder()
    while (left_s := deadline - time.monotonic()) > 0:
        connection.settimeout(left_s)
        try:
            data = connection.recv(1 << 16)
        except TimeoutError:
            break
        if not data:
            raise BenchFailed("the daemon closed the connection of a waiting call")
        for body in decoder.feed(data):
            payload = json.loads(body)["payload"]
            if payload["status"] == "Working":
                continue
            if payload["status"] != "Success" or payload["data"]["content"] != '"awake"':
                raise BenchFailed(f"a waiting call was answered {payload!r}")
            return
    raise BenchFailed("a waiting call was not answered in time")
