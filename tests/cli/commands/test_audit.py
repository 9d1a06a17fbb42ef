"""aos audit: whole outputs, from disk, with and without a daemon."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from aos_cli.commands import audit_read
from aos_runtime.home import Home
from aos_runtime.store.audit import AuditStore
from aos_runtime.store.audit_entry import NOT_REQUIRED, SUCCESS, SYSTEM, Draft, failure
from aos_runtime.store.audit_reader import read_audit
from aos_runtime.store.keys import load_runtime_seed
from aos_runtime.store.layout import open_home
from tests.cli.conftest import RunAos
from tests.support.audit_trails import AT_NS, lines_of, put_lines, tampering
from tests.support.fake_daemon import Answer, FakeDaemon

ACTIONS: tuple[tuple[str | None, dict[str, object], dict[str, object]], ...] = (
    (None, {"type": "server_started", "pid": 7}, dict(SUCCESS)),
    (
        "default",
        {"type": "admin_request", "method": "ReloadCapsule", "params": {"id": "demo"}},
        {"status": "success", "details": "admitted"},
    ),
    ("default", {"type": "capsule_loaded", "capsule_id": "demo", "version": "0.1.0"}, dict(SUCCESS)),
    ("alice", {"type": "capsule_tool_call", "capsule_id": "demo", "tool": "hello"}, dict(SUCCESS)),
    (
        "alice",
        {
            "type": "host_call_run",
            "capsule_id": "demo",
            "call": "ipc.publish",
            "resource": "a\x1b[2J",
            "count": 9,
        },
        failure("denied"),
    ),
    ("alice", {"type": "capsule_command_run", "capsule_id": "demo", "command": "demo"}, dict(SUCCESS)),
    (None, {"type": "server_stopped"}, dict(SUCCESS)),
)
DENIAL = Draft(
    AT_NS,
    "eve",
    {"type": "admin_request", "method": "GetStatus", "params": {}, "count": 40},
    {"type": "denied"},
    failure("no"),
)
LINES = """\
      1  2026-08-01 10:00:00.000  -           ok        server started
      2  2026-08-01 10:00:01.000  default     admitted  request ReloadCapsule id=demo
      3  2026-08-01 10:00:02.000  default     ok        capsule loaded: demo 0.1.0
      4  2026-08-01 10:00:03.000  alice       ok        tool hello of demo
      5  2026-08-01 10:00:04.000  alice       failed (denied)  ipc.publish a\\x1b[2J by demo, 9 times
      6  2026-08-01 10:00:05.000  alice       ok        command demo of demo
      7  2026-08-01 10:00:06.000  -           ok        server stopped
"""


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def write(home: Home) -> None:
    open_home(home, create=True)
    store = AuditStore(home.audit_db, load_runtime_seed(home, create=True))
    drafts = [
        Draft(
            AT_NS + number * 10**9, principal, action, SYSTEM if principal is None else NOT_REQUIRED, outcome
        )
        for number, (principal, action, outcome) in enumerate(ACTIONS)
    ]
    store.append(drafts[:4])
    store.append(drafts[4:])
    store.close()


def answering(status: str, data: object) -> Answer:
    """Whatever is asked, this is the answer."""
    return lambda topic, payload: {"request_id": payload["request_id"], "status": status, "data": data}


def head_of(home: Home) -> str:
    with read_audit(home.audit_db) as reader:
        assert reader is not None
        tail = reader.tail()
        assert tail is not None
        return tail[1].hex()


@pytest.mark.parametrize("command", ["tail", "export"])
def test_nothing_on_record_is_said_and_nothing_is_made(run_aos: RunAos, home: Home, command: str) -> None:
    ended = run_aos("audit", command)
    assert (ended.status, ended.out, ended.err) == (0, "", "Nothing is on record yet.\n")
    assert not home.root.exists()


def test_stats_and_verify_of_nothing(run_aos: RunAos, home: Home) -> None:
    assert run_aos("audit", "stats").out == (
        "Audit totals\n"
        "  Entries:    0 of 1000000\n"
        "  Size:       0.0 of 1024 MiB\n"
        "  Segments:   0, 0 of them sealed\n"
        "  Dropped:    0 entries, the oldest\n"
        "  Head:       -\n"
    )
    assert run_aos("audit", "verify").out == (
        "The audit trail is as it was recorded: 0 entries in 0 batches, 0 chains.\n"
    )
    assert not home.root.exists()


def test_tail_shows_the_newest_the_oldest_first(run_aos: RunAos, home: Home) -> None:
    write(home)
    ended = run_aos("audit", "tail")
    assert (ended.status, ended.out, ended.err) == (0, LINES, "")
    lines = LINES.splitlines(keepends=True)
    assert run_aos("audit", "tail", "-n", "2").out == "".join(lines[5:])
    assert run_aos("audit", "tail", "-n", "0").out == ""
    assert run_aos("audit", "tail", "--of", "alice").out == "".join(lines[3:6])
    assert run_aos("audit", "tail", "--failed").out == lines[4]
    assert run_aos("audit", "tail", "--capsule", "demo", "-n", "1").out == lines[5]


def test_a_folded_denial_says_how_often(run_aos: RunAos, home: Home) -> None:
    open_home(home, create=True)
    store = AuditStore(home.audit_db, load_runtime_seed(home, create=True))
    store.append([DENIAL])
    store.close()
    assert run_aos("audit", "tail").out == (
        "      1  2026-08-01 10:00:00.000  eve         failed (no)  request GetStatus, 40 times\n"
    )


def test_an_approval_says_what_was_asked_and_decided(run_aos: RunAos, home: Home) -> None:
    open_home(home, create=True)
    action = {
        "type": "approval_granted",
        "capsule_id": "demo",
        "action": "git push",
        "resource": "origin\x07",
        "decision": "approved",
    }
    store = AuditStore(home.audit_db, load_runtime_seed(home, create=True))
    store.append([Draft(AT_NS, "alice", action, {"type": "user_approval"}, SUCCESS)])
    store.close()
    assert run_aos("audit", "tail").out == (
        "      1  2026-08-01 10:00:00.000  alice       ok        "
        "approval granted (approved): git push origin\\x07 by demo\n"
    )


def test_a_program_says_what_ran(run_aos: RunAos, home: Home) -> None:
    open_home(home, create=True)
    action = {
        "type": "process_spawned",
        "capsule_id": "shell",
        "call": "process.spawn",
        "command": "bash -c ls\x07",
        "folder": "/work",
    }
    store = AuditStore(home.audit_db, load_runtime_seed(home, create=True))
    store.append([Draft(AT_NS, "alice", action, {"type": "not_required"}, {"status": "success"})])
    store.close()
    assert run_aos("audit", "tail").out == (
        "      1  2026-08-01 10:00:00.000  alice       ok        process.spawn bash -c ls\\x07 by shell\n"
    )


def test_tail_as_json_is_one_entry_a_line(run_aos: RunAos, home: Home) -> None:
    write(home)
    rows = [json.loads(line) for line in run_aos("audit", "tail", "--json").out.splitlines()]
    assert [row["number"] for row in rows] == list(range(1, 8))
    assert [row["batch"] for row in rows] == [1, 1, 1, 1, 2, 2, 2]
    assert rows[3].keys() == {
        "id",
        "timestamp",
        "session_id",
        "action",
        "authorization",
        "outcome",
        "previous_hash",
        "principal",
        "number",
        "batch",
    }
    assert rows[4]["action"]["resource"] == "a\x1b[2J"


def test_tail_follows_what_comes(run_aos: RunAos, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home)
    rounds = iter([lambda: None, lambda: write(home), lambda: None])

    def wait(_: float) -> None:
        step = next(rounds, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(audit_read.time, "sleep", wait)
    ended = run_aos("audit", "tail", "-f", "-n", "1", "--of", "alice")
    numbers = re.findall(r"^ +(\d+) ", ended.out, flags=re.MULTILINE)
    assert (ended.status, numbers) == (130, ["6", "11", "12", "13"])


def test_export_prints_lines_that_hash_to_their_chain(run_aos: RunAos, home: Home) -> None:
    write(home)
    rows = [json.loads(line) for line in run_aos("audit", "export").out.splitlines()]
    assert len(rows) == 7
    session = rows[0]["session_id"]
    chosen = run_aos("audit", "export", "--session", session, "--of", "alice", "--from", "5", "--limit", "1")
    assert json.loads(chosen.out) == rows[4]
    assert run_aos("audit", "export", "--session", "other").out == ""


def test_verify_of_an_intact_trail(run_aos: RunAos, home: Home) -> None:
    write(home)
    head = head_of(home)
    ended = run_aos("audit", "verify", "--head", head)
    assert (ended.status, ended.out, ended.err) == (
        0,
        f"The audit trail is as it was recorded: 7 entries in 2 batches, 3 chains.\nHead: {head}\n",
        "",
    )
    assert run_aos("audit", "verify", "--json").json == {
        "intact": True,
        "entries": 7,
        "batches": 2,
        "chains": 3,
        "pruned_entries": 0,
        "head": head,
        "findings": [],
    }


def test_verify_names_what_was_changed(run_aos: RunAos, home: Home) -> None:
    write(home)
    with tampering(home.audit_db) as database:
        lines = lines_of(database, 2)
        put_lines(database, 2, [lines[0].replace(b"denied", b"nothing"), *lines[1:]])
        identity = json.loads(lines[0])["id"]
    ended = run_aos("audit", "verify")
    assert (ended.status, ended.out) == (
        1,
        "The audit trail is NOT as it was recorded (7 entries in 2 batches, 3 chains):\n"
        f"  - entry 5 was changed, or one after it is missing (id {identity})\n",
    )
    document = run_aos("audit", "verify", "--json").json
    assert document["intact"] is False
    assert document["findings"] == [
        {
            "sentence": "entry 5 was changed, or one after it is missing",
            "batch": 2,
            "entry": 5,
            "id": identity,
        }
    ]


def test_verify_of_a_trail_that_is_gone_is_an_error_where_a_head_was_kept(run_aos: RunAos) -> None:
    ended = run_aos("audit", "verify", "--head", "ab" * 32, "--json")
    assert (ended.status, ended.error["code"]) == (1, "audit-missing")


def test_a_head_that_is_none_is_a_usage_error(run_aos: RunAos) -> None:
    assert run_aos("audit", "verify", "--head", "nonsense").status == 2


def test_stats_with_a_daemon_that_cannot_record(run_aos: RunAos, home: Home) -> None:
    write(home)
    health = {
        "accepted": 9,
        "persisted": 7,
        "failed": 3,
        "queue_full": 1,
        "queue_depth": 1,
        "worker_alive": True,
        "degraded": True,
        "last_error": "the disk is full",
    }
    with FakeDaemon(home, answering("AuditHealth", health)):
        ended = run_aos("audit", "stats")
        document = run_aos("audit", "stats", "--json")
    assert (ended.status, document.status) == (2, 2)
    head, size = head_of(home), document.json["total_bytes"] / 2**20
    assert ended.out == (
        "Audit totals\n"
        "  Entries:    7 of 1000000\n"
        f"  Size:       {size:.1f} of 1024 MiB\n"
        "  Segments:   1, 0 of them sealed\n"
        "  Dropped:    0 entries, the oldest\n"
        f"  Head:       {head}\n"
        "\n"
        "Audit ingestion\n"
        "  State:      degraded\n"
        "  Recorded:   7 of 9\n"
        "  Waiting:    1\n"
        "  Lost:       1\n"
        "! the disk is full\n"
    )
    assert document.json["health"] == health
    assert document.json["head"] == head


def test_stats_where_the_daemon_refuses_to_say(run_aos: RunAos, home: Home) -> None:
    write(home)
    refusal = "permission denied for principal anonymous: missing capability audit:health"
    with FakeDaemon(home, answering("Error", refusal)):
        ended = run_aos("audit", "stats")
    assert ended.status == 0
    assert ended.err == f"warning: the daemon did not say how recording goes: {refusal}\n"


def test_a_limit_of_the_configuration_shows(run_aos: RunAos, home: Home) -> None:
    write(home)
    home.config_file.write_text("[audit]\nmax_entries = 20000\n")
    assert "Entries:    7 of 20000" in run_aos("audit", "stats").out


def test_reading_leaves_no_file_behind(run_aos: RunAos, home: Home) -> None:
    write(home)
    before = sorted(home.audit_db.parent.iterdir())
    for command in ("stats", "tail", "verify", "export"):
        assert run_aos("audit", command).status == 0
    assert sorted(home.audit_db.parent.iterdir()) == before


def test_a_damaged_file_is_said(run_aos: RunAos, home: Home) -> None:
    write(home)
    Path(home.audit_db).write_bytes(b"nonsense" * 999)
    ended = run_aos("audit", "tail", "--json")
    assert (ended.status, ended.error["code"]) == (1, "audit-damaged")
