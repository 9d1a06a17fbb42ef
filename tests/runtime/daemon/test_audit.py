"""A real daemon and its audit trail: what is on record, before what, and over kills and full disks."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.audit_reader import Record, read_audit
from aos_runtime.store.audit_verify import Verification, verify
from aos_runtime.store.keys import load_runtime_seed, public_hex
from aos_runtime.store.stage import stage_source
from tests.runtime.daemon.test_serve import EXECUTE_ROW, TOOLS, activate
from tests.support.audit_trails import lines_of, put_lines, tampering
from tests.support.kernels import fixed_now
from tests.support.sockets import Client, connected, running
from tests.support.tool_guests import archive_of, install, tool_guest, without_bundled

pytestmark = pytest.mark.journey

MARKER = "m4rk3r-that-nobody-may-find"
TOOL_ROW = '"tool.v1.execute.x" = { wit = "opaque", handler = "tool_execute_x" }\n'
WAIT_S = 10.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    without_bundled(made)
    return made


def records(home: Home) -> list[Record]:
    with read_audit(home.audit_db) as reader:
        return [] if reader is None else list(reader.records())


def types(home: Home) -> list[object]:
    return [record.entry.action["type"] for record in records(home)]


def check(home: Home) -> Verification:
    key = bytes.fromhex(public_hex(load_runtime_seed(home, create=False)))
    with read_audit(home.audit_db) as reader:
        assert reader is not None
        return verify(reader, key)


def admin(client: Client, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    suffix = {"AuditStats": "stats", "AuditHealth": "health", "AuditHeads": "heads", "AuditExport": "export"}
    payload = {"type": "raw_json", "method": method, "request_id": "r", "params": params or {}}
    client.send(
        {
            "topic": f"astrid.v1.admin.audit.{suffix[method]}",
            "payload": payload,
            "source_id": "00000000-0000-0000-0000-000000000000",
        }
    )
    frame = client.read()
    assert frame["topic"] == f"astrid.v1.admin.response.audit.{suffix[method]}"
    payload = frame["payload"]
    assert isinstance(payload, dict)
    return payload


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def with_tool(home: Home, folder: Path) -> None:
    """A capsule that stands where router and tool would: it gets the request and says nothing."""
    rows = TOOL_ROW + EXECUTE_ROW
    install(home, folder, "quiet", archive_of(home, "quiet", tool_guest(TOOLS), rows))


def test_a_run_of_the_daemon_is_on_record_and_verifies(home: Home, tmp_path: Path) -> None:
    with_tool(home, tmp_path)
    with running(home), connected(home) as client:
        assert client.request("ReloadCapsule", {"id": "quiet"})["status"] == "Success"
        found = types(home)  # before the answer, not some time later
        assert found.count("admin_request") >= 1
    assert types(home)[0] == "server_started"
    assert types(home)[-1] == "server_stopped"
    assert types(home).count("capsule_loaded") == 1
    result = check(home)
    assert (result.findings, result.entries) == ([], len(records(home)))
    assert home.audit_db.stat().st_mode & 0o777 == 0o600


def test_secrets_values_and_payloads_never_enter(home: Home, tmp_path: Path) -> None:
    with_tool(home, tmp_path)
    archive = tmp_path / "later.capsule"
    env = '[env.TOKEN]\ntype = "secret"\nrequest = "?"\n[env.PLAIN]\ntype = "string"\nrequest = "?"\n'
    archive.write_bytes(archive_of(home, "later", tool_guest("{}"), "", extra=env))
    with running(home), connected(home) as client:
        client.tools("call", {"name": "x", "arguments": {"text": MARKER}, "timeout_s": 0.3})
        values = [
            {"key": "TOKEN", "value": MARKER, "kind": "Secret"},
            {"key": "PLAIN", "value": MARKER, "kind": "Text"},
        ]
        params = {"source": str(archive), "workspace": False, "authority": "explicit_approval", "env": values}
        assert client.request("InstallCapsule", params)["status"] == "Success"
        wait_until(lambda: types(home).count("capsule_loaded") == 2)
    assert MARKER.encode() not in home.audit_db.read_bytes()
    installs = [record.entry for record in records(home) if record.entry.action.get("method")]
    assert installs[0].action["params"]["env"] == "<redacted>"


def test_a_killed_daemon_leaves_a_trail_that_verifies(home: Home, tmp_path: Path) -> None:
    with_tool(home, tmp_path)
    with running(home) as daemon, connected(home) as client:
        for _ in range(3):
            client.request("ReloadCapsule", {"id": "quiet"})
        daemon.process.kill()
        daemon.wait_end()
    admitted = [one for one in records(home) if one.entry.outcome.get("details") == "admitted"]
    assert len(admitted) == 3
    assert check(home).findings == []
    with running(home), connected(home) as client:
        assert admin(client, "AuditHealth")["data"]["degraded"] is False
    assert check(home).findings == []


def test_a_trail_that_was_changed_is_told_at_the_start(home: Home) -> None:
    with running(home):
        pass
    with tampering(home.audit_db) as database:
        lines = lines_of(database, 1)
        put_lines(database, 1, [lines[0].replace(b"server", b"SERVER"), *lines[1:]])
    with running(home), connected(home) as client:
        trouble = client.request("GetStatus")["data"]["trouble"]
        health = admin(client, "AuditHealth")["data"]
        assert trouble == (
            "the audit trail is not as it was recorded: "
            "entry 1 was changed, or one after it is missing; run `aos audit verify`"
        )
        assert (health["degraded"], health["last_error"]) == (True, trouble)
        assert client.request("ReloadCapsule", {"id": "none"})["status"] == "Error"
    assert trouble in home.daemon_log.read_text()
    assert len(check(home).findings) == 1


def test_a_full_disk_stops_what_must_be_audited_and_recovers(home: Home, tmp_path: Path) -> None:
    with_tool(home, tmp_path)
    with running(home) as daemon, connected(home) as client:
        daemon.limit_files(4096)
        refused = client.request("ReloadCapsule", {"id": "quiet"})
        assert refused["status"] == "Error"
        assert refused["data"].startswith("nothing was done, because it could not be put on record first")
        status = client.request("GetStatus")["data"]
        assert "cannot be written" in status["trouble"]
        assert admin(client, "AuditStats")["data"]["degraded"] is True
        assert client.tools("list")["data"][0]["name"] == "x"  # the rest goes on
        daemon.limit_files(resource.RLIM_INFINITY)
        assert client.request("ReloadCapsule", {"id": "quiet"})["status"] == "Success"
        assert client.request("GetStatus")["data"]["trouble"] is None
    log = home.daemon_log.read_text()
    assert "the audit trail can be written again" in log
    assert check(home).findings == []


def test_a_daemon_on_a_full_disk_can_be_stopped(home: Home) -> None:
    with running(home) as daemon, connected(home) as client:
        daemon.limit_files(4096)
        assert client.request("Shutdown", {"reason": "full"})["status"] == "Success"
        assert daemon.wait_end() == 0


def test_a_denied_request_is_on_record(home: Home) -> None:
    with running(home), Client(home) as anonymous:
        anonymous.hello()
        assert anonymous.request("GetStatus")["status"] == "Error"
    [denied] = [one.entry for one in records(home) if one.entry.authorization == {"type": "denied"}]
    assert (denied.principal, denied.action["method"]) == ("anonymous", "GetStatus")
    assert "missing capability system:status" in denied.outcome["error"]


def test_the_one_shot_activator_writes_the_same_trail(home: Home, tmp_path: Path) -> None:
    archive = tmp_path / "staged.capsule"
    archive.write_bytes(archive_of(home, "staged", tool_guest(TOOLS), EXECUTE_ROW))
    with stage_source(home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage:
        assert activate(home, stage.id).returncode == 0
    with running(home):
        pass
    with stage_source(home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage:
        assert activate(home, stage.id).returncode == 0
    entries = [record.entry for record in records(home)]
    activated = [one for one in entries if one.action["type"] == "capsule_activated"]
    assert [one.outcome.get("details") for one in activated] == ["admitted", None, "admitted", None]
    assert len({one.session_id for one in entries}) == 3
    assert check(home).findings == []


def test_the_requests_for_heads_and_pages(home: Home, tmp_path: Path) -> None:
    with_tool(home, tmp_path)
    with running(home), connected(home) as client:
        client.request("ReloadCapsule", {"id": "quiet"})
        wait_until(lambda: len(records(home)) == 4)
        heads = admin(client, "AuditHeads")["data"]
        assert heads["chain_count"] == 2
        chain = next(one for one in heads["chains"] if one["principal"] == "default")
        assert heads["head"] == check(home).head
        params = {"session": chain["session"], "principal": "default", "limit": 2}
        first = admin(client, "AuditExport", params)["data"]
        rest = admin(client, "AuditExport", {**params, "cursor": first["next_cursor"]})["data"]
        entries = [*first["entries"], *rest["entries"]]
        assert (len(first["entries"]), rest["next_cursor"], len(entries)) == (2, None, chain["count"])
        assert {one["principal"] for one in entries} == {"default"}
        assert all(len(one["runtime_key"]) == 44 for one in entries)
        bad = admin(client, "AuditExport", {**params, "limit": 1001})
        assert bad["status"] == "Error"
