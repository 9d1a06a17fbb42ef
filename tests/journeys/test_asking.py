"""Asking people, on real things: a tool that asks for an approval, hooks that ask for values.

The capsule is tests/journeys/projects/asker.  Cases ABI-30, ABI-31, ABI-33, ABI-34, INS-21, INS-25.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aos_cli.client import connect
from aos_runtime.capsule.archive import Member, iter_members, scan_archive, write_archive
from aos_runtime.capsule.provenance import PROVENANCE_FILE
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.kv import KvStore
from aos_runtime.wire.client import Event, tools_exchange
from tests.support.installation import Aos, is_alive, wait_until
from tests.support.projects import build_project
from tests.support.terminal import answer_on_cue

pytestmark = pytest.mark.journey

CUE = "[N]o: "
DEED = {"action": "git push", "resource": "git push origin main"}
ANSWERS = ("--answer", "city=Rome", "--answer", "color=red", "--answer", 'tags=["a","b"]')
SECRET = {"AOS_VAR_API_KEY": "hunter2"}


@pytest.fixture(scope="session")
def asker() -> Path:
    return build_project("asker")


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Aos]:
    """A home whose commands supply the secret by the environment."""
    installation = Aos(root=tmp_path, extra=SECRET)
    installation.folder.mkdir()
    yield installation
    installation.close()


def in_version(archive: Path, version: str, folder: Path) -> Path:
    """The same capsule under another version, unsigned."""
    with archive.open("rb") as file:
        inventory = scan_archive(file)
        found = [one for one in iter_members(file, inventory) if one.path != PROVENANCE_FILE]
    members = [
        Member(
            path=one.path,
            data=one.data.replace(b'version = "0.1.0"', f'version = "{version}"'.encode())
            if one.path == "Capsule.toml"
            else one.data,
            executable=one.executable,
        )
        for one in found
    ]
    path = folder / f"asker-{version}.capsule"
    path.write_bytes(write_archive(members))
    return path


def install(aos: Aos, archive: Path, *words: str, status: int = 0) -> str:
    return aos.run("capsule", "install", str(archive), "--approve-untrusted", *words, status=status).err


def ask(aos: Aos, *words: str, **deed: str) -> str:
    """What the tool was told; `deed` replaces parts of DEED."""
    arguments = json.dumps({**DEED, **deed})
    return aos.run("tool", "call", "ask_approval", "--input", arguments, *words).out.strip()


def on_a_terminal(aos: Aos, typed: list[tuple[str, str]], *words: str, until: str) -> str:
    return answer_on_cue(
        ["env", "-C", str(aos.folder), sys.executable, "-m", "aos_cli", *words],
        typed,
        until=until,
        environ={**aos.environ, "CI": "", "GITHUB_ACTIONS": ""},
    )


# approvals


def test_without_a_terminal_it_is_denied_at_once_and_said_how_to_allow_it(asking: Aos, asker: Path) -> None:
    install(asking, asker, *ANSWERS)
    asking.run("start")
    began = time.monotonic()
    ended = asking.run("tool", "call", "ask_approval", "--input", json.dumps(DEED))
    assert ended.out == "denied\n"
    assert time.monotonic() - began < 20
    assert ended.err == (
        "warning: denied, since nobody is there to answer: Capsule 'asker' requests approval: "
        "git push: git push origin main\n"
        f"hint: pass --approve 'git push', or write a rule in {asking.home.approvals_file}\n"
    )
    assert ask(asking, "--approve", "git push") == "allowed"
    assert ask(asking, "--approve", "git pull") == "denied"


def test_the_policy_file_answers_and_a_denial_wins(asking: Aos, asker: Path) -> None:
    install(asking, asker, *ANSWERS)
    asking.home.approvals_file.write_text(
        '[[rule]]\ncapsule = "asker"\naction = "git *"\nresource = "git push *"\ndecision = "allow"\n'
        '[[rule]]\ncapsule = "*"\naction = "git push"\nresource = "*--force*"\ndecision = "deny"\n',
        encoding="utf-8",
    )
    asking.run("start")
    assert ask(asking) == "allowed"
    assert ask(asking, resource="git push origin main; rm -rf /") == "denied", "no pattern spans a shell"
    assert ask(asking, "--approve", "git push", resource="git push --force") == "denied"
    asking.home.approvals_file.write_text('[[rules]]\ncapsule = "asker"\n', encoding="utf-8")
    failed = asking.run("tool", "call", "ask_approval", "--input", json.dumps(DEED), status=1)
    assert "StoreUnavailable" in failed.err, "a broken policy allows nothing"
    asking.run("stop")
    assert "unknown key `rules`" in asking.run("start", status=1).err


def test_a_capsule_that_was_not_granted_is_asked_for_on_use(asking: Aos, asker: Path) -> None:
    asking.run("start")
    asking.run("agent", "create", "alice")
    install(asking, asker, *ANSWERS, "--principal", "alice")
    asking.run("agent", "modify", "alice", "--remove-capsule", "asker")
    words = ("tool", "call", "ask_approval", "--principal", "alice", "--approve", "git push", "--input")
    refused = asking.run(*words, json.dumps(DEED), status=1)
    assert "principal 'alice' has no access to capsule 'asker'" in refused.err
    assert "hint: run `aos agent modify alice --add-capsule asker`\n" in refused.err
    screen = on_a_terminal(asking, [("[N]o: ", "y\r")], *words, json.dumps(DEED), until="allowed")
    assert "Principal alice may not use capsule asker yet." in screen
    assert asking.run(*words, json.dumps(DEED)).out == "allowed\n", "granted for good"
    shown = asking.run("audit", "tail", "--json").out
    assert '"no-access"' in shown and '"use capsule"' in shown


def test_abi_34_the_whole_request_is_shown_escaped_and_the_default_is_no(asking: Aos, asker: Path) -> None:
    install(asking, asker, *ANSWERS)
    asking.run("start")
    hostile = "x" * 300 + "\x1b[2J\u202e && rm -rf /"
    arguments = json.dumps({"action": "run", "resource": hostile})
    for typed, told in (("\r", "denied"), ("y\r", "allowed"), ("yes please\r", "denied")):
        screen = on_a_terminal(
            asking, [(CUE, typed)], "tool", "call", "ask_approval", "--input", arguments, until=f"{told}\r\n"
        )
        assert "Capsule 'asker' requests approval" in screen
        assert "x" * 300 + "\\u{1b}[2J\\u{202e} && rm -rf /" in screen.replace("\r\n", "")
        assert "\x1b" not in screen
        assert "Allow it? [y] once, [s]ession, [a]lways, [N]o" in screen
        assert f"{told}\r\n" in screen


def test_abi_33_always_holds_for_its_capsule_and_principal_until_it_is_revoked(
    asking: Aos, asker: Path
) -> None:
    install(asking, asker, *ANSWERS)
    asking.run("start")
    words = ("tool", "call", "ask_approval", "--input", json.dumps(DEED))
    assert "allowed" in on_a_terminal(asking, [(CUE, "a\r")], *words, until="allowed\r\n")
    assert ask(asking) == "allowed"
    assert ask(asking, resource="git push origin other") == "allowed", "the same command"
    assert ask(asking, resource="git push; reboot") == "denied"
    assert ask(asking, action="git pull") == "denied"
    asking.run("restart")
    assert ask(asking) == "allowed", "it holds over a restart"
    standing = asking.run("approve", "--format", "json").json["standing"]
    assert [(row["scope"], row["capsule"], row["action"]) for row in standing] == [
        ("always", "asker", "git push")
    ]
    asking.run("approve", standing[0]["id"], "--revoke")
    assert ask(asking) == "denied", "and a revocation needs none"


def test_an_operator_lists_and_answers(asking: Aos, asker: Path) -> None:
    install(asking, asker, *ANSWERS)
    asking.run("start")
    for flag, told in (("--once", "allowed"), ("--deny", "denied"), ("--session", "allowed")):
        with connect(asking.home, DEFAULT_PRINCIPAL) as client:
            exchange = tools_exchange("call", {"name": "ask_approval", "arguments": DEED}, "corr1")
            client.send(exchange)
            row = wait_for_request(asking)
            assert (row["capsule"], row["action"], row["resource"]) == ("asker", *DEED.values())
            assert row["request_id"] in asking.run("approve").out
            asking.run("approve", row["request_id"], flag)
            answer = client.wait_reply(exchange).data
            assert isinstance(answer, dict)
            assert answer["content"] == f'"{told}"' or answer["content"] == told
    assert ask(asking) == "allowed", "for the session"
    asking.run("restart")
    assert ask(asking) == "denied"
    assert "is open" in asking.run("approve", "nothing", "--once", status=1).err


def wait_for_request(aos: Aos) -> dict[str, str]:
    found: list[dict[str, str]] = []

    def look() -> bool:
        found[:] = aos.run("approve", "list", "--format", "json").json["pending"]
        return bool(found)

    wait_until(look, "the request is listed")
    return found[0]


def test_abi_30_only_the_connection_that_was_asked_may_answer(asking: Aos, asker: Path) -> None:
    install(asking, asker, *ANSWERS)
    asking.run("start")
    events: list[Event] = []
    with connect(asking.home, DEFAULT_PRINCIPAL) as asked:
        exchange = tools_exchange("call", {"name": "ask_approval", "arguments": DEED}, "corr1")
        asked.send(exchange)
        row = wait_for_request(asking)
        reply = {"type": "approval_response", "request_id": row["request_id"], "decision": "approve"}
        topic = f"astrid.v1.approval.response.{row['request_id']}"
        with connect(asking.home, DEFAULT_PRINCIPAL) as forger:
            forger.publish(topic, reply)
            lost = tools_exchange("list", None, "corr2")
            with pytest.raises(Exception, match="human reply is no longer available on this connection"):
                forger.wait_reply(lost)

        def answer(event: Event) -> None:
            events.append(event)
            asked.publish(topic, {**reply, "decision": "deny"})

        data = asked.wait_reply(exchange, on_event=answer).data
        assert isinstance(data, dict)
        assert data["content"] in ("denied", '"denied"')
    assert [event.topic for event in events] == ["astrid.v1.approval"]
    assert events[0].payload == {
        "type": "approval_required",
        "request_id": row["request_id"],
        "action": "git push",
        "resource": "git push origin main",
        "reason": "Capsule 'asker' requests approval",
        "request_owner": events[0].payload["request_owner"],  # type: ignore[index]
    }


def test_a_request_ends_with_its_connection_and_with_the_daemon(asking: Aos, asker: Path) -> None:
    install(asking, asker, *ANSWERS)
    asking.run("start")
    with connect(asking.home, DEFAULT_PRINCIPAL) as client:
        client.send(tools_exchange("call", {"name": "ask_approval", "arguments": DEED}, "corr1"))
        wait_for_request(asking)
    wait_until(lambda: not asking.run("approve", "list", "--format", "json").json["pending"], "it is gone")
    with connect(asking.home, DEFAULT_PRINCIPAL) as client:
        client.send(tools_exchange("call", {"name": "ask_approval", "arguments": DEED}, "corr1"))
        wait_for_request(asking)
        began = time.monotonic()
        asking.run("stop")
        assert time.monotonic() - began < 20
    assert asking.daemon_pid() is None


# hooks

PROMPTED = [
    ("[api_key]: ", "first\r"),
    ("Which city?", "Rome\r"),
    ("asker asks: The key of the weather service: ", "hunter2\r"),
    ("Number or value: ", "2\r"),
    ("  1: ", "one\r"),
    ("  2: ", "two\r"),
    ("  3: ", "\r"),
]


@pytest.mark.parametrize("with_daemon", [False, True])
def test_a_hook_is_answered_at_the_terminal(aos: Aos, asker: Path, with_daemon: bool) -> None:
    if with_daemon:
        aos.run("start")
    archive = in_version(asker, "0.1.0", aos.folder)
    words = ("capsule", "install", str(archive), "--approve-untrusted")
    screen = on_a_terminal(aos, PROMPTED, *words, until="Installed asker")
    assert "asker asks: Which city? [Zürich]: " in screen
    assert "asker asks: The key of the weather service: " in screen
    assert "  2) blue" in screen
    assert "hunter2" not in screen, "a secret is typed unseen"
    told = aos.run("tool", "call", "answers", "--format", "json").json["value"]
    assert told == {
        "city": "Rome",
        "color": "blue",
        "tags": ["one", "two"],
        "had_secret": True,
        "has_secret": True,
    }
    secret = aos.home.secret(DEFAULT_PRINCIPAL, "asker", "api_key")  # type: ignore[arg-type]
    assert (secret.read_text(encoding="utf-8"), secret.stat().st_mode & 0o777) == ("hunter2", 0o600)
    assert aos.run("tool", "call", "secret_length").out == "7\n"


@pytest.mark.parametrize("with_daemon", [False, True])
def test_abi_31_nobody_there_is_refused_at_once_with_the_way_to_supply(
    aos: Aos, asker: Path, with_daemon: bool
) -> None:
    if with_daemon:
        aos.run("start")
    said = install(aos, asker, status=1)
    assert "error: the install hook of `asker` asks, and nobody is there to answer\n" in said
    assert "  api_key: The key of the weather service\n" in said
    assert "hint: pass --answer api_key=VALUE, or set AOS_VAR_API_KEY; nothing was changed\n" in said
    assert_nothing(aos.home)
    error = aos.run("capsule", "install", str(asker), "--approve-untrusted", "--json", status=1)
    assert json.loads(error.err.splitlines()[-1])["error"]["code"] == "answer-missing"


def test_abi_31_elicit_in_a_tool_is_out_of_place(asking: Aos, asker: Path) -> None:
    install(asking, asker, *ANSWERS)
    assert "NotInLifecycle" in asking.run("tool", "call", "elicit_here", status=1).err


def assert_nothing(home: Home) -> None:
    """No trace of asker: no version, no secret, no value, no state."""
    assert not home.capsule(DEFAULT_PRINCIPAL, "asker").exists()  # type: ignore[arg-type]
    assert not home.capsule_secrets(DEFAULT_PRINCIPAL, "asker").exists()  # type: ignore[arg-type]
    assert not home.env_file(DEFAULT_PRINCIPAL, "asker").exists()  # type: ignore[arg-type]
    with KvStore(home.state_db) as store:
        assert store.space(DEFAULT_PRINCIPAL, "asker").list_keys("") == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("with_daemon", [False, True])
@pytest.mark.parametrize(
    ("city", "reason"),
    [
        ("fail", 'ApiError("no such city")'),
        ("trap", "interceptor execution failed: it panicked or aborted"),
    ],
)
def test_ins_21_a_hook_that_fails_leaves_nothing(
    asking: Aos, asker: Path, city: str, reason: str, with_daemon: bool
) -> None:
    if with_daemon:
        asking.run("start")
    said = install(asking, asker, "--answer", f"city={city}", *ANSWERS[2:], status=1)
    assert f"the astrid-install hook of 'asker' failed: {reason}" in said
    assert "hunter2" not in said
    assert_nothing(asking.home)
    install(asking, asker, *ANSWERS)


@pytest.mark.parametrize("with_daemon", [False, True])
def test_ins_21_ctrl_c_at_a_question_leaves_nothing(aos: Aos, asker: Path, with_daemon: bool) -> None:
    if with_daemon:
        aos.run("start")
    program = f"{sys.executable} -m aos_cli capsule install {asker} --approve-untrusted; echo status $?"
    screen = answer_on_cue(
        ["bash", "--norc", "-c", program],
        [*PROMPTED[:2], ("asker asks: The key of the weather service: ", "\x03")],
        until="status 130",
        environ={**aos.environ, "CI": "", "GITHUB_ACTIONS": ""},
    )
    assert "The key of the weather service" in screen
    assert "status 130" in screen
    assert "Traceback" not in screen
    wait_until(lambda: not any(aos.home.staging.glob("*/tree")), "the stage is dropped")

    def is_undone() -> bool:
        with KvStore(aos.home.state_db) as store:
            return store.space(DEFAULT_PRINCIPAL, "asker").list_keys("") == ()  # type: ignore[arg-type]

    wait_until(is_undone, "what the hook wrote is taken back")
    assert_nothing(aos.home)


@pytest.mark.parametrize("with_daemon", [False, True])
def test_ins_25_hooks_and_versions(asking: Aos, asker: Path, with_daemon: bool) -> None:
    if with_daemon:
        asking.run("start")
    first, second = (in_version(asker, version, asking.folder) for version in ("0.1.0", "0.2.0"))

    def hook_of(archive: Path) -> tuple[str, list[str]]:
        words = ("capsule", "install", str(archive), "--approve-untrusted", *ANSWERS, "--format", "json")
        report = asking.run(*words).json
        return report["hook"], report["hook_warnings"]

    assert hook_of(first) == ("ran", [])
    assert hook_of(first) == ("skipped", []), "a reinstall of one version is neither"
    assert hook_of(second) == ("ran", ["upgraded from 0.1.0"])
    assert hook_of(second) == ("skipped", [])
    assert "warning: its hook said: upgraded from 0.2.0\n" in install(asking, first)


def test_a_secret_survives_an_upgrade_and_a_failed_one(asking: Aos, asker: Path) -> None:
    install(asking, asker, *ANSWERS)
    again = in_version(asker, "0.2.0", asking.folder)
    install(asking, again)
    assert asking.run("tool", "call", "secret_length").out == "7\n"


def test_the_daemon_stops_while_a_hook_asks(aos: Aos, asker: Path) -> None:
    aos.run("start")
    pid = aos.daemon_pid()
    assert pid is not None
    with connect(aos.home, DEFAULT_PRINCIPAL):
        installer = aos.start("capsule", "install", str(asker), "--approve-untrusted", "--answer", "x=y")
        try:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not is_alive(pid), "the daemon stops")
        finally:
            installer.communicate(timeout=60)
