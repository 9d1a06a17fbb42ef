"""`aos status` and `aos ps`: shapes for programs, words for people, nothing written (LST-14, LST-15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aos_cli.render.status import version_skew
from aos_runtime.home import Home
from tests.cli.conftest import RunAos
from tests.support.fake_daemon import FakeDaemon

STATUS: dict[str, Any] = {
    "pid": 4242,
    "uptime_secs": 3010,
    "version": "2026.10.1",
    "aos_version": "0.1.0",
    "ephemeral": False,
    "connected_clients": 2,
    "connections_by_principal": [{"principal": "default", "count": 2}],
    "loaded_capsules": ["hello", "notes"],
    "workspace": "/srv/project",
    "capsules": [
        {
            "name": "notes",
            "version": "1.2.3",
            "state": "failed",
            "reason": "trap: \x1b[2Junreachable",
            "principal": "default",
            "calls": 7,
            "errors": 2,
            "denied": 1,
            "queue_depth": 3,
            "drops": 1,
            "warnings": ["tool `x` is described but has no row"],
            "shadowed": [{"topic": "tool.v1.execute.read", "winner": "hello"}],
        },
        {"name": "hello", "version": "0.1.0", "state": "ready", "calls": 3, "errors": 0},
    ],
}


def answering(status: Mapping[str, Any]) -> Any:
    return lambda topic, payload: {"status": "Status", "data": status}


def test_the_page_of_a_running_daemon(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, answering(STATUS)):
        ended = run_aos("status")
    hint = "hint: `aos capsule show NAME` says what to do about a capsule that does not serve\n"
    assert (ended.status, ended.err) == (0, hint)
    assert ended.out == (
        "aos daemon is running (pid 4242, up 50m10s)\n"
        "  Version:    0.1.0 (contract 2026.10.1)\n"
        "  Mode:       persistent\n"
        "  Workspace:  /srv/project\n"
        "  Clients:    2 (default: 2)\n"
        "  Capsules:   2 capsules, 1 not serving\n"
        "\n"
        "CAPSULE  VERSION  STATE   CALLS  ERRORS  QUEUE  DROPS\n"
        "hello    0.1.0    ready       3       0      —      —\n"
        "notes    1.2.3    failed      7       2      3      1\n"
        "\n"
        "! notes is failed: trap: \\x1b[2Junreachable\n"
        "! notes: tool `x` is described but has no row\n"
        "! notes: tool.v1.execute.read is shadowed by hello\n"
    )


def test_the_document_keeps_the_published_shape(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, answering(STATUS)):
        ended = run_aos("status", "--json")
    assert ended.json == {"state": "running", "daemon": STATUS, "installed_version": "0.1.0"}


def test_check_is_1_where_a_capsule_does_not_serve(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, answering(STATUS)):
        assert run_aos("status", "--check").status == 1
    healthy = {**STATUS, "capsules": [STATUS["capsules"][1]]}
    with FakeDaemon(home, answering(healthy)):
        assert run_aos("status", "--check").status == 0
    with FakeDaemon(home, answering({**healthy, "trouble": "the disk is full"})):
        troubled = run_aos("status", "--check")
    assert (troubled.status, troubled.out.splitlines()[-1]) == (1, "! the daemon: the disk is full")
    assert run_aos("status", "--check").status == 1


def test_dmn_17_a_daemon_of_an_older_wheel_is_said_with_the_command(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, answering({**STATUS, "aos_version": "0.0.9", "capsules": []})):
        ended = run_aos("status")
    assert ended.err == (
        "warning: aos 0.1.0 is installed, but the running daemon is 0.0.9\nhint: run `aos restart`\n"
    )
    assert version_skew({"aos_version": "0.1.0"}, "0.1.0") is None
    assert version_skew({}, "0.1.0") is None


def test_ps_rows(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, answering(STATUS)):
        ended = run_aos("ps", "--json")
        table = run_aos("ps").out
    assert table == (
        "CAPSULE  VERSION  STATE   CALLS  ERRORS  QUEUE  DROPS\n"
        "hello    0.1.0    ready       3       0      —      —\n"
        "notes    1.2.3    failed      7       2      3      1\n"
    )
    assert [(row["capsule"], row["state"], row["calls"], row["drops"]) for row in ended.json] == [
        ("hello", "ready", 3, None),
        ("notes", "failed", 7, 1),
    ]


def test_a_daemon_that_lists_names_only(run_aos: RunAos, home: Home) -> None:
    published = {key: STATUS[key] for key in ("pid", "uptime_secs", "version", "loaded_capsules")}
    with FakeDaemon(home, answering(published)):
        assert run_aos("ps").out == (
            "CAPSULE  VERSION  STATE  CALLS  ERRORS  QUEUE  DROPS\n"
            "hello    —        ready      —       —      —      —\n"
            "notes    —        ready      —       —      —      —\n"
        )


def test_ps_without_a_daemon(run_aos: RunAos) -> None:
    ended = run_aos("ps", "--json")
    assert (ended.status, ended.out) == (0, "[]\n")
    assert run_aos("ps").err == "The daemon is not running, so no capsule is.\n"


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("ps",),
        ("capsule", "list"),
        ("capsule", "list", "-v"),
        ("capsule", "show", "x"),
        ("logs",),
        ("logs", "x"),
        ("--version",),
        ("version", "-v"),
        ("tool", "list", "--no-start"),
        ("tool", "call", "x", "--no-start"),
        ("completions", "bash"),
    ],
)
def test_lst_14_reading_starts_nothing_and_makes_no_folder(
    run_aos: RunAos, home: Home, words: tuple[str, ...]
) -> None:
    run_aos(*words)
    assert not home.root.exists()


@pytest.mark.parametrize(
    ("text", "state"), [("", "starting"), ("123", "starting"), ("garbage\n", "unknown"), ("0\n", "unknown")]
)
def test_lst_15_status_says_what_it_finds_and_removes_nothing(
    run_aos: RunAos, home: Home, text: str, state: str
) -> None:
    home.run.mkdir(parents=True)
    home.pid_file.write_text(text, encoding="ascii")
    ended = run_aos("status", "--json")
    assert (ended.status, ended.json["state"]) == (0, state)
    assert home.pid_file.read_text(encoding="ascii") == text
    assert [path.name for path in home.run.iterdir()] == ["system.pid"]
