"""`aos approve` and the approvals of a tool call, against a fake daemon: whole output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from aos_cli.console import Console
from aos_cli.tools.approval_prompt import ApprovalPrompt
from aos_runtime.home import Home
from aos_runtime.wire.client import Event
from tests.cli.conftest import RunAos
from tests.support.fake_daemon import FakeDaemon

NIL = "00000000-0000-0000-0000-000000000000"
LONG = "x" * 120
DATA: dict[str, Any] = {
    "principal": "default",
    "pending": [
        {
            "request_id": "r-1",
            "kind": "approval",
            "capsule": "deploy",
            "principal": "default",
            "workspace": "/work",
            "asked_at_ms": 1,
            "action": "git push",
            "resource": f"git push {LONG} \u001b[2J",
        },
        {"request_id": "r-3", "kind": "elicit", "capsule": "asker", "description": "Which city?"},
    ],
    "standing": [
        {
            "id": "always-0123456789ab",
            "scope": "always",
            "capsule": "deploy",
            "action": "git push",
            "resource": "git push origin",
            "workspace": None,
        }
    ],
}


def test_the_list_shows_everything_whole_and_escaped(run_aos: RunAos, home: Home) -> None:
    with FakeDaemon(home, lambda topic, payload: reply(payload, DATA)) as daemon:
        ended = run_aos("approve")
        assert run_aos("approve", "list", "--json").json == DATA
    assert daemon.requests[0][0] == "astrid.v1.admin.approval.list"
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == (
        "Waiting for an answer\n"
        "  r-1  capsule deploy\n"
        "    Action:     git push\n"
        f"    Resource:   git push {LONG} \\x1b[2J\n"
        "    Workspace:  /work\n"
        "  r-3  capsule asker\n"
        "    Asks:       Which city? (answered in the terminal of the install)\n"
        "\n"
        "Allowed until revoked\n"
        "  always-0123456789ab  capsule deploy, always\n"
        "    Action:     git push\n"
        "    Resource:   git push origin\n"
    )


def reply(payload: Mapping[str, Any], data: object) -> dict[str, Any]:
    return {"request_id": payload["request_id"], "status": "Success", "data": data}


def test_nothing_to_show(run_aos: RunAos, home: Home) -> None:
    empty = {"principal": "default", "pending": [], "standing": []}
    with FakeDaemon(home, lambda topic, payload: reply(payload, empty)):
        ended = run_aos("approve")
    assert (ended.status, ended.out, ended.err) == (
        0,
        "",
        "No capsule asks for anything, and nothing is allowed for good.\n",
    )


@pytest.mark.parametrize(
    ("flag", "method", "params", "said"),
    [
        ("--once", "ApprovalAnswer", {"request_id": "r-1", "decision": "approve"}, "Allowed"),
        ("--session", "ApprovalAnswer", {"request_id": "r-1", "decision": "approve_session"}, "Allowed"),
        ("--always", "ApprovalAnswer", {"request_id": "r-1", "decision": "approve_always"}, "Allowed"),
        ("--deny", "ApprovalAnswer", {"request_id": "r-1", "decision": "deny"}, "Denied"),
        ("--revoke", "ApprovalRevoke", {"id": "r-1"}, "Revoked"),
    ],
)
def test_answers(
    run_aos: RunAos, home: Home, flag: str, method: str, params: dict[str, str], said: str
) -> None:
    with FakeDaemon(home, lambda topic, payload: reply(payload, {"done": True})) as daemon:
        ended = run_aos("approve", "r-1", flag)
        assert run_aos("approve", "r-1", flag, "--json").json == {"done": True}
    assert (ended.status, ended.out, ended.err) == (0, "", f"✓ {said}.\n")
    assert (daemon.requests[0][1]["method"], daemon.requests[0][1]["params"]) == (method, params)


@pytest.mark.parametrize(
    "words",
    [["r-1"], ["--once"], ["list", "--deny"], ["r-1", "--once", "--deny"], ["r-1", "--always", "--revoke"]],
)
def test_an_answer_is_one_id_and_one_word(run_aos: RunAos, words: list[str]) -> None:
    ended = run_aos("approve", *words)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == (
        "error: an answer is one ID with one of --once, --session, --always, --deny and --revoke\n"
        "hint: `aos approve` shows the IDs\n"
    )


def test_no_daemon_is_said(run_aos: RunAos) -> None:
    ended = run_aos("approve")
    assert (ended.status, ended.err) == (
        1,
        "error: the daemon is not running\nhint: start it with `aos start`\n",
    )


# the prompt of a tool call


class Asked:
    """A prompt, the answers it sent and what it would have read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, typed: str | None, **options: Any) -> None:
        self.sent: list[tuple[str, Mapping[str, object]]] = []
        monkeypatch.setattr(Console, "interactive", typed is not None)
        monkeypatch.setattr(Console, "_read_line", lambda self, prompt: typed)
        console = Console(environ={}, **options.pop("console", {}))
        self.prompt = ApprovalPrompt(console, policy_file="/home/etc/approvals.toml", **options)

    def ask(self, kind: str = "approval_required", source: str | None = NIL, **payload: object) -> None:
        fields = {
            "type": kind,
            "request_id": "r-1",
            "action": "git push",
            "resource": "a\u001b[2Jb",
            "reason": "Capsule 'deploy' requests approval",
            "principal": "default",
            "capsule_id": "mail",
            **payload,
        }
        event = Event("astrid.v1.approval", fields, source, "default", None)
        self.prompt.handle(event, lambda topic, answer: self.sent.append((topic, answer)))

    @property
    def decisions(self) -> list[object]:
        return [answer["decision"] for _, answer in self.sent]


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("", "deny"),
        ("n", "deny"),
        ("yes!", "deny"),
        ("y", "approve"),
        ("Y", "approve"),
        ("s", "approve_session"),
        ("a", "approve_always"),
    ],
)
def test_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, decision: str
) -> None:
    asked = Asked(monkeypatch, typed)
    asked.ask()
    answer = {"type": "approval_response", "request_id": "r-1", "decision": decision}
    assert asked.sent == [("astrid.v1.approval.response.r-1", answer)]
    assert capsys.readouterr().err == (
        "Capsule 'deploy' requests approval\n  Action:    git push\n  Resource:  a\\x1b[2Jb\n"
    )


def test_nobody_there_is_denied_with_what_would_allow_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(monkeypatch, None)
    asked.ask()
    assert asked.decisions == ["deny"]
    assert capsys.readouterr().err == (
        "warning: denied, since nobody is there to answer: Capsule 'deploy' requests approval: "
        "git push: a\\x1b[2Jb\n"
        "hint: pass --approve 'git push', or write a rule in /home/etc/approvals.toml\n"
    )


def test_in_json_mode_a_denial_is_a_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Asked(monkeypatch, None, console={"format": "json"}).ask()
    message = json.loads(capsys.readouterr().err)["warning"]["message"]
    assert message.startswith("denied, since nobody is there to answer")


def test_an_action_approved_beforehand_is_that_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(monkeypatch, None, actions=["git push"])
    asked.ask()
    asked.ask(action="git push --force")
    assert asked.decisions == ["approve", "deny"]
    assert capsys.readouterr().err.splitlines()[0] == "Approved by --approve: git push: a\\x1b[2Jb"


@pytest.mark.parametrize("source", ["11111111-0000-0000-0000-000000000000", None])
def test_what_a_capsule_says_is_no_prompt(monkeypatch: pytest.MonkeyPatch, source: str | None) -> None:
    asked = Asked(monkeypatch, "y")
    asked.ask(source=source)
    asked.ask(kind="selection_required")
    asked.ask(request_id=5)
    assert asked.sent == []
