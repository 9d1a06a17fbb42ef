"""Outside build and install of dependencies aos uses no network and sends nothing to anybody."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation import ROOT, Aos

pytestmark = pytest.mark.journey
WATCHER = ROOT / "tests" / "support" / "no_network"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Aos]:
    record = tmp_path / "network.txt"
    path = os.pathsep.join(map(str, (WATCHER, ROOT, ROOT / "runtime")))
    aos = Aos(root=tmp_path, extra={"PYTHONPATH": path, "AOS_TEST_NETWORK_RECORD": str(record)})
    aos.folder.mkdir()
    yield aos
    aos.close()


def record_of(aos: Aos) -> list[str]:
    return Path(aos.environ["AOS_TEST_NETWORK_RECORD"]).read_text(encoding="utf-8").splitlines()


def test_the_watcher_catches_a_connection(watched: Aos) -> None:
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, env=watched.environ, capture_output=True, text=True, check=False, timeout=30
    )
    assert "the network is forbidden" in ended.stderr
    assert any(line.startswith(("socket.getaddrinfo", "socket.connect")) for line in record_of(watched))


def test_a_whole_session_uses_no_network(watched: Aos, hello_capsule: Path) -> None:
    watched.run("version", "-v")
    watched.run("capsule", "new", "offline")
    watched.run("capsule", "install", str(hello_capsule), "--approve-untrusted")
    watched.run("start")
    watched.run("tool", "call", "hello", "--arg", "name=Ada")
    watched.run("status")
    watched.run("logs", "--all")
    watched.run("capsule", "show", "hello")
    pid = watched.daemon_pid()
    watched.run("stop")
    watched.run("capsule", "remove", "hello")
    record = record_of(watched)
    assert f"armed {pid}" in record, "the daemon was watched too"
    assert [line for line in record if not line.startswith("armed ")] == []
