"""A real daemon process: how it starts, whom it serves, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.stage import stage_source
from tests.support.installation import ROOT
from tests.support.kernels import fixed_now
from tests.support.sockets import NIL, Client, Daemon, connected, running
from tests.support.tool_guests import archive_of, install, tool_guest, without_bundled

pytestmark = pytest.mark.journey

EXECUTE_ROW = '"tool.v1.request.execute" = { wit = "opaque", handler = "handle" }\n'
TOOLS = '{"tools":[{"name":"x","description":"","input_schema":{"type":"object"}}]}'
SPIN = "(loop $l (br $l)) unreachable"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    without_bundled(made)
    return made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A running daemon with a capsule that stands where the router would and traps."""
    folder = tmp_path_factory.mktemp("daemon")
    made = Home(folder / "home")
    without_bundled(made)
    install(
        made, folder, "trapper", archive_of(made, "trapper", tool_guest(TOOLS, "unreachable"), EXECUTE_ROW)
    )
    install(made, folder, "broken", archive_of(made, "broken", tool_guest("{}", "unreachable"), ""))
    blob = next(
        path for path in made.blobs.iterdir() if path.stat().st_size and b'{"tools"' not in path.read_bytes()
    )
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    with running(made):
        yield made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_run_files_are_private_and_go_with_the_daemon(home: Home) -> None:
    with running(home) as daemon:
        assert {path.name: mode(path) for path in home.run.iterdir()} == {
            "system.lock": 0o600,
            "system.pid": 0o600,
            "system.ready": 0o600,
            "system.sock": 0o600,
            "system.token": 0o600,
        }
        assert int(home.pid_file.read_text().splitlines()[0]) == daemon.process.pid
        daemon.process.terminate()
        assert daemon.wait_end() == 0
    assert [path.name for path in home.run.iterdir()] == ["system.lock"]
    log = home.daemon_log.read_text()
    assert "stopping: SIGTERM" in log and "stopped" in log
    assert mode(home.daemon_log) == 0o600


def test_a_second_daemon_says_who_is_there(home: Home) -> None:
    with running(home) as first:
        second = Daemon(home)
        try:
            assert second.wait_end() == 1
            assert (
                f"a daemon already runs on this home, with process id {first.process.pid}" in second.words()
            )
        finally:
            second.stop()
        with connected(home) as client:
            assert client.request("GetStatus")["status"] == "Status"


def test_dmn_02_a_killed_daemon_leaves_nothing_in_the_way(home: Home) -> None:
    with running(home) as daemon:
        daemon.process.kill()
        daemon.wait_end()
    assert home.socket.is_socket()
    with running(home), connected(home) as client:
        assert client.request("ListCapsules")["data"] == []


def test_dmn_04_what_stands_at_the_socket_path_is_left_alone(home: Home) -> None:
    home.run.mkdir(parents=True, exist_ok=True)
    home.socket.write_text("mine")
    daemon = Daemon(home)
    try:
        assert daemon.wait_end() == 1
        assert "a file that is no socket" in daemon.words()
    finally:
        daemon.stop()
    assert home.socket.read_text() == "mine"


def test_dmn_03_a_socket_that_somebody_serves_is_never_unlinked(home: Home) -> None:
    home.run.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(home.socket))
        other.listen()
        daemon = Daemon(home)
        try:
            assert daemon.wait_end() == 1
            assert "a socket that another program serves" in daemon.words()
        finally:
            daemon.stop()
        assert home.socket.is_socket()


def test_dmn_23_a_typo_in_the_configuration_is_told_with_its_line(home: Home) -> None:
    home.config_file.write_text("[timeouts]\ncall_sec = 3\n")
    daemon = Daemon(home)
    try:
        assert daemon.wait_end() == 1
        words = daemon.words()
    finally:
        daemon.stop()
    assert "config.toml:2: `timeouts.call_sec` is not a setting" in words


def test_dmn_10_descriptors_that_the_parent_closed_do_no_harm(home: Home) -> None:
    command = f"exec {sys.executable} -m aos_runtime.daemon serve <&- >&- 2>&-"
    environ = {**os.environ, "AOS_HOME": str(home.root), "PYTHONPATH": str(ROOT / "runtime")}
    process = subprocess.Popen(["/bin/sh", "-c", command], env=environ)
    try:
        stderr = Path(f"/proc/{process.pid}/fd/2")
        deadline = time.monotonic() + 15
        while not home.ready_file.exists() or stderr.readlink() != home.daemon_log:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        targets = {number: Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in (0, 1, 2)}
        assert targets == {0: Path("/dev/null"), 1: Path("/dev/null"), 2: home.daemon_log}
        assert Path(f"/proc/{process.pid}/cwd").readlink() == Path("/")
    finally:
        process.terminate()
        assert process.wait(15) == 0


def test_the_shutdown_request_is_acknowledged_before_the_end(home: Home) -> None:
    with running(home) as daemon, connected(home) as client:
        assert client.request("Shutdown", {"reason": "test"}) == {
            "status": "Success",
            "data": {"status": "shutting_down"},
        }
        with pytest.raises(EOFError):
            client.read()
        assert daemon.wait_end() == 0
    assert "stopping: test" in home.daemon_log.read_text()


def spinning(home: Home, tmp_path: Path) -> None:
    install(home, tmp_path, "spinner", archive_of(home, "spinner", tool_guest(TOOLS, SPIN), EXECUTE_ROW))


def start_spinning(client: Client) -> None:
    client.send(
        {
            "topic": "astrid.v1.request.tools.call.c1",
            "payload": {"type": "raw_json", "params": {"name": "x"}},
            "source_id": NIL,
        }
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_cmp_15_dmn_12_a_signal_is_acted_on_while_a_guest_spins(
    home: Home, tmp_path: Path, number: signal.Signals
) -> None:
    spinning(home, tmp_path)
    with running(home) as daemon, connected(home) as client, connected(home) as other:
        start_spinning(client)
        assert other.tools("list")["data"][0]["name"] == "x"  # the socket is not the spinner's
        started = time.monotonic()
        daemon.process.send_signal(number)
        assert daemon.wait_end() == 0
        assert time.monotonic() - started < 8
    assert [path.name for path in home.run.iterdir()] == ["system.lock"]


def test_dmn_12_a_second_signal_ends_it_at_once(home: Home, tmp_path: Path) -> None:
    spinning(home, tmp_path)
    with running(home) as daemon, connected(home) as client, connected(home) as other:
        start_spinning(client)
        other.tools("list")
        daemon.process.terminate()
        deadline = time.monotonic() + 5
        while "stopping" not in home.daemon_log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        daemon.process.terminate()
        assert daemon.wait_end() == 130
        assert daemon.words() == ""


def test_cmp_16_nothing_is_said_when_everything_is_closed(home: Home, tmp_path: Path) -> None:
    install(home, tmp_path, "quiet", archive_of(home, "quiet", tool_guest(TOOLS, "unreachable"), EXECUTE_ROW))
    with running(home) as daemon:
        with connected(home) as client:
            assert client.tools("call", {"name": "x"})["data"]["is_error"]
        daemon.process.terminate()
        assert daemon.wait_end() == 0
        assert daemon.words() == ""
    log = home.daemon_log.read_text()
    assert "Exception" not in log and "Traceback" not in log


@pytest.mark.slow
def test_dmn_18_an_ephemeral_daemon_lives_while_a_client_holds_it(home: Home) -> None:
    with running(home, "--ephemeral") as daemon:
        with connected(home) as client:
            with pytest.raises(subprocess.TimeoutExpired):
                daemon.wait_end(5.5)  # longer than the grace
            assert client.request("GetStatus")["data"]["ephemeral"] is True
        assert daemon.wait_end(3) == 0


def test_a_tool_that_traps_is_an_error_result_over_the_socket(shared: Home) -> None:
    with connected(shared) as client:
        reply = client.tools("call", {"name": "x"})
    assert reply["status"] == "Success"
    assert reply["data"]["is_error"] is True
    assert reply["data"]["content"].startswith(
        "capsule 'trapper' gave no answer: interceptor execution failed"
    )


def test_dmn_19_a_damaged_capsule_is_shown_and_stops_nobody(shared: Home) -> None:
    with connected(shared) as client:
        rows = {row["name"]: row for row in client.request("GetStatus")["data"]["capsules"]}
    assert (rows["trapper"]["state"], rows["broken"]["state"]) == ("ready", "failed")
    assert "damaged" in rows["broken"]["reason"]
    assert rows["trapper"]["tools"] == ["x"]
    assert "tool.v1.execute.x" in rows["trapper"]["warnings"][0]


def test_a_workspace_comes_with_the_handshake_or_is_refused(shared: Home, tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    with connected(shared, workspace=str(folder)) as client:
        assert client.request("GetStatus")["status"] == "Status"
    with Client(shared) as client:
        reply = client.hello(workspace=str(shared.root))
        assert (reply["status"], reply["reason"]) == (
            "error",
            "workspace must not hold the aos home nor lie in it",
        )
        with pytest.raises(EOFError):
            client.read()


def test_dmn_14_a_request_over_the_limit_is_answered_and_the_connection_stays(shared: Home) -> None:
    with connected(shared) as client:
        reply = client.tools("call", {"name": "x", "arguments": {"text": "y" * 1_100_000}})
        assert reply["status"] == "Error"
        assert reply["data"].startswith("payload exceeds IPC limit")
        assert (
            client.tools("call", {"name": "x", "arguments": {"text": "y" * 900_000}})["status"] == "Success"
        )


def test_a_silent_handshake_does_not_keep_others_out(shared: Home) -> None:
    silent = [Client(shared) for _ in range(8)]
    try:
        silent.pop().close()
        with connected(shared) as client:
            assert client.request("ListCapsules")["status"] == "Success"
    finally:
        for client in silent:
            client.close()


def test_a_client_that_leaves_inside_a_frame_harms_nobody(shared: Home) -> None:
    with connected(shared) as client:
        client.sock.sendall(b"\x00\x00\x10\x00{")
    with connected(shared) as client:
        assert client.request("GetStatus")["data"]["connected_clients"] >= 1


def test_ins_24_a_relative_source_is_refused(shared: Home) -> None:
    with connected(shared) as client:
        params = {"source": "dist/demo.capsule", "workspace": False, "authority": "automatic", "env": []}
        assert client.request("InstallCapsule", params) == {
            "status": "Error",
            "data": "source path is not absolute",
            "error": {"code": "install-relative", "hint": "send the absolute path of the archive"},
        }


def test_a_capsule_is_installed_served_and_removed_by_requests(home: Home, tmp_path: Path) -> None:
    archive = tmp_path / "later.capsule"
    archive.write_bytes(archive_of(home, "later", tool_guest(TOOLS, "unreachable"), EXECUTE_ROW))
    with running(home), connected(home) as client:
        params: dict[str, object] = {"source": f"file://{archive}", "authority": "explicit_approval"}
        data = client.request("InstallCapsule", params)["data"]
        assert (data["phase"], data["installed_version"], data["previous_version"]) == (
            "install",
            "0.1.0",
            None,
        )
        assert [tool["name"] for tool in client.tools("list")["data"]] == ["x"]
        assert client.request("ListCapsules")["data"] == ["later"]
        removal = {"id": "later", "force": False, "purge": False}
        assert client.request("RemoveCapsule", removal)["data"] == {"status": "removed"}
        assert client.tools("list")["data"] == []
        assert client.request("UnloadCapsule", {"id": "later"})["data"] == {"status": "not_loaded"}
    assert "tool\tx" not in home.names_index.read_text()


def test_a_stage_is_activated_by_the_daemon_and_by_the_one_shot(home: Home, tmp_path: Path) -> None:
    archive = tmp_path / "staged.capsule"
    archive.write_bytes(archive_of(home, "staged", tool_guest(TOOLS, "unreachable"), EXECUTE_ROW))
    with stage_source(home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage:
        expected = {"wasm_hash": stage.wasm_digest, "phase": "install", "hook": "skipped", "warnings": []}
        once = activate(home, stage.id)
        assert (once.returncode, json.loads(once.stdout)) == (0, expected)
        with running(home), connected(home) as client:
            params = {"stage_id": stage.id, "principal": "default"}
            assert client.request("ActivateStage", params) == {"status": "Success", "data": expected}
        unknown = activate(home, "0" * 32)
    assert unknown.returncode == 1
    assert json.loads(unknown.stdout)["error"]["code"] == "stage-unknown"
    assert unknown.stderr == ""


def activate(home: Home, stage_id: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "aos_runtime.daemon", "activate", stage_id, "--principal", "default"],
        env={**os.environ, "AOS_HOME": str(home.root), "PYTHONPATH": str(ROOT / "runtime")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_beyond_the_limit_only_status_and_shutdown_are_served(home: Home) -> None:
    """The reserved lanes: an operator can look and stop whatever the others do."""
    crowd: list[Client] = []
    with running(home) as daemon:
        try:
            for _ in range(128):
                crowd.append(Client(home))
                assert crowd[-1].hello()["status"] == "ok"
            with connected(home) as lane:
                status = lane.request("GetStatus", suffix="status")
                assert status["data"]["connections_by_principal"] == [
                    {"principal": "anonymous", "count": 128},
                    {"principal": "default", "count": 1},
                ]
                with pytest.raises(EOFError):
                    lane.read()
            with connected(home) as lane:
                lane.send(
                    {
                        "topic": "astrid.v1.request.list_capsules.c1",
                        "payload": {"type": "raw_json", "method": "ListCapsules"},
                        "source_id": NIL,
                    }
                )
                with pytest.raises(EOFError):
                    lane.read()
            with connected(home) as lane:
                assert lane.request("Shutdown", suffix="shutdown")["data"] == {"status": "shutting_down"}
            assert daemon.wait_end() == 0
        finally:
            for client in crowd:
                client.close()


def test_a_frame_before_the_handshake_was_answered_ends_the_connection(shared: Home) -> None:
    """Two proofs in one go must not make two sessions of one connection."""
    with Client(shared) as client:
        first = client.hello(claimed_principal="default")
        seed = SigningKey((shared.keys / "default.key").read_bytes())
        text = f"astrid-principal-auth:v1:default:{first['challenge']}".encode()
        proof = {
            "token": shared.token_file.read_text().strip(),
            "protocol_version": 1,
            "client_version": "probe",
            "claimed_principal": "default",
            "signature": seed.sign(text).signature.hex(),
        }
        frame = json.dumps(proof).encode()
        client.sock.sendall(2 * (len(frame).to_bytes(4, "big") + frame))
        assert client.read()["status"] == "ok"
        with pytest.raises(EOFError):  # the second one is no message
            client.read()
    with connected(shared) as client:
        data = client.request("GetStatus")["data"]
        assert data["connected_clients"] == sum(row["count"] for row in data["connections_by_principal"])


def test_a_signal_during_the_start_is_acted_on_and_leaves_nothing(home: Home) -> None:
    daemon = Daemon(home)
    try:
        deadline = time.monotonic() + 15
        while not home.lock_file.exists() or not home.daemon_log.exists():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        daemon.process.terminate()
        assert daemon.wait_end() == 0
    finally:
        daemon.stop()
    assert [path.name for path in home.run.iterdir()] == ["system.lock"]
