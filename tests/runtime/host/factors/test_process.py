"""astrid:process with real programs: every function, its error arms, its handles, and how children end.

Without walls and, where the machine has bubblewrap, behind them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.errors import Unavailable
from aos_runtime.host import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors import FACTORS
from aos_runtime.host.factors.process_calls import MAX_HELD, Held
from aos_runtime.host.waiting import WaitGate
from aos_runtime.policy.bounds import Bounds
from aos_runtime.policy.process_rules import MAX_STDIN_BYTES, MAX_WRITE_BYTES, ProcessCase
from aos_runtime.programs import children
from tests.support.guests import POLL, PROCESS, PROCESS_OLD, Recorder, envelope_from
from tests.support.installation import wait_until
from tests.support.programs import OWNER, WALLS, Programs, descriptors, request, zombies

LONG = "sleep 300"


@pytest.fixture(params=WALLS)
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path, request.param)
    yield made
    made.close()
    assert zombies() == []


@pytest.fixture
def context(programs: Programs, recorder: Recorder) -> Iterator[GuestContext]:
    guest = recorder.context(processes=programs.door("sh", "cat", "sleep"), keeps_resources=True)
    yield guest
    guest.resources.clear()


def call(context: GuestContext, name: str, *arguments: object) -> Any:
    return FACTORS[PROCESS, name].run(context, *arguments)


def handle(context: GuestContext, name: str, *arguments: object) -> Any:
    return call(context, f"[method]process-handle.{name}", *arguments)


def started(context: GuestContext, script: str, **changes: object) -> int:
    answer = call(context, "spawn-background", request("sh", "-c", script, **changes))
    assert isinstance(answer, int), answer
    return answer


def kept(context: GuestContext, script: str, **changes: object) -> str:
    answer = call(context, "spawn-persistent", request("sh", "-c", script, **changes))
    assert isinstance(answer, str), answer
    return answer


def ended(code: int | None = None, by: int | None = None) -> dict[str, object]:
    return {"exit-code": code, "signal": by}


def logs(context: GuestContext, number: int, enough: str) -> str:
    """What both streams said until `enough` was there."""
    said = ""

    def is_enough() -> bool:
        nonlocal said
        answer = handle(context, "read-logs", number)
        said += answer["stdout"] + answer["stderr"]
        return enough in said

    wait_until(is_enough, f"it says {enough!r}")
    return said


# waited for


@pytest.mark.parametrize("interface", [PROCESS, PROCESS_OLD])
def test_spawn_gives_both_streams_and_the_code(context: GuestContext, interface: str) -> None:
    asked = request("sh", "-c", "cat; echo no >&2; exit 3", stdin=b"yes \xff")
    if interface == PROCESS_OLD:
        del asked["file-injections"]
    answer = FACTORS[interface, "spawn"].run(context, asked)
    assert answer == {"stdout": "yes \ufffd", "stderr": "no\n", "exit": ended(3)}


def test_the_environment_is_cleared_and_arguments_are_no_shell(
    context: GuestContext, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ABI-26: `; id` and `$(id)` arrive as they are."""
    monkeypatch.setenv("AOS_SECRET_PROBE", "sesame")
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    asked = request(
        "sh",
        "-c",
        'env; printf "[%s]" "$@"; pwd',
        "sh",
        "status; id",
        "$(id)",
        env=[{"key": "MINE", "value": "a b"}],
    )
    answer = call(context, "spawn", asked)["stdout"]
    assert "sesame" not in answer
    assert {"MINE=a b", "LC_CTYPE=C.UTF-8"} <= set(answer.splitlines())
    assert answer.endswith(f"[status; id][$(id)]{programs.workspace}\n")


def test_abi_07_a_child_sees_and_writes_the_workspace(context: GuestContext, programs: Programs) -> None:
    (programs.workspace / "sub").mkdir()
    (programs.workspace / "sub" / "in").write_text("written")
    for cwd in ("sub", "cwd://sub", "./sub/"):
        answer = call(context, "spawn", request("sh", "-c", "cat in; echo x > out", cwd=cwd))
        assert answer["stdout"] == "written"
    assert (programs.workspace / "sub" / "out").read_text() == "x\n"


def test_abi_23_what_it_leaves_behind_ends_with_it(context: GuestContext) -> None:
    """The child ends at once, its own child would hold its output for long."""
    began = time.monotonic()
    answer = call(context, "spawn", request("sh", "-c", f"{LONG} & echo $! hi"))
    assert time.monotonic() - began < 60
    assert answer["stdout"].endswith(" hi\n")
    assert answer["exit"] == ended(0)
    assert [one.name for one in threading.enumerate() if "aos-children" in one.name] == ["aos-children"]


def test_more_output_than_is_kept_loses_its_beginning_and_says_so(
    context: GuestContext, recorder: Recorder
) -> None:
    script = "head -c 5000000 /dev/zero | tr '\\0' x; printf end"
    answer = call(context, "spawn", request("sh", "-c", script))
    lost = 5_000_003 - (4 << 20)
    mark, _, rest = answer["stdout"].partition("\n")
    assert (mark, len(rest), rest[-4:]) == (f"... {lost} bytes left out ...", 4 << 20, "xend")
    [line] = [text for level, text in recorder.logged if level == "warn"]
    assert line == f"process: {lost} bytes that a program wrote were too much and are lost"


def test_its_own_end_is_told(context: GuestContext, programs: Programs) -> None:
    """By a signal: as a code behind bubblewrap, which tells of it as a shell does."""
    answer = call(context, "spawn", request("sh", "-c", "kill -9 $$"))["exit"]
    assert answer in (ended(by=9), ended(137))


# the gate


@pytest.mark.parametrize(
    "words",
    [("./git",), ("/tmp/git",), ("git ",), ("GIT",), ("git/../sh",), ("sh",), ("git\tstatus",), ("",)],
    ids=repr,
)
@pytest.mark.parametrize("name", ["spawn", "spawn-background", "spawn-persistent"])
def test_abi_25_only_declared_words(
    programs: Programs, recorder: Recorder, words: tuple[str, ...], name: str
) -> None:
    context = recorder.context(processes=programs.door("git", "ls -l"))
    assert call(context, name, request(*words)) == Err("capability-denied")
    [denial] = programs.denials
    assert (denial.command, denial.case) == (words[0], ProcessCase.CAPABILITY_DENIED)
    assert f"operation=process.{name}" in denial.render()
    assert '[capabilities] host_process = [\\"' in denial.render()
    assert programs.notes == [(f"process.{name}", words[0], "capability-denied")]
    assert programs.admitted == []


@pytest.mark.parametrize("name", ["spawn", "spawn-background", "spawn-persistent"])
def test_a_principal_is_held_to_programs_of_its_own(
    programs: Programs, recorder: Recorder, name: str
) -> None:
    bounds = [Bounds("bob", None, ("git status",))]
    door = programs.door("git", bounds=lambda: bounds[0])
    context = recorder.context(processes=door)
    assert call(context, name, request("git", "push")) == Err("capability-denied")
    [denial] = programs.denials
    assert denial.rule == "process.allow of principal 'bob' does not list it"
    assert denial.allow == 'etc/profiles/bob.toml: [process] allow = ["git"]'
    assert programs.notes == [(f"process.{name}", "git", "capability-denied")]
    assert programs.admitted == []
    bounds[0] = Bounds("bob", None, ("sh",))  # it names what the capsule may not start
    assert call(context, name, request("sh")) == Err("capability-denied")
    assert programs.denials[-1].rule == "no host_process entry covers it"


def test_abi_25_an_entry_of_two_words_fixes_the_first_argument(
    programs: Programs, recorder: Recorder
) -> None:
    context = recorder.context(processes=programs.door("sh -c"))
    assert call(context, "spawn", request("sh", "-c", "echo x"))["stdout"] == "x\n"
    for words in (("sh",), ("sh", "-x", "-c", "echo x"), ("sh", "-cx")):
        assert call(context, "spawn", request(*words)) == Err("capability-denied")


def test_without_a_door_nothing_starts(recorder: Recorder) -> None:
    context = recorder.context()
    for name in ("spawn", "spawn-background", "spawn-persistent"):
        assert call(context, name, request("sh")) == Err("capability-denied")
    assert call(context, "list-processes", None) == Err("capability-denied")


def test_it_is_on_record_before_it_starts_or_it_does_not_start(
    context: GuestContext, programs: Programs
) -> None:
    call(context, "spawn", request("sh", "-c", "true", env=[{"key": "TOKEN", "value": "sesame"}]))
    assert programs.admitted == [
        {
            "type": "process_spawned",
            "capsule_id": "guest",
            "call": "process.spawn",
            "command": "sh -c true",
            "folder": str(programs.workspace),
            "call_id": "call-1",
        }
    ]
    programs.audit_fault = Unavailable("audit-unavailable", "the disk is full", hint="free some")
    answer = call(context, "spawn", request("sh", "-c", "touch started"))
    assert answer == Err("unknown", "the disk is full")
    assert not (programs.workspace / "started").exists()
    assert programs.notes == [("process.spawn", "sh", "unknown")]


INJECTED: dict[str, object] = {"content": b"", "placement": Case("env-pointer", "K")}
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "stdin": ({"stdin": bytes(MAX_STDIN_BYTES + 1)}, "too-large"),
    "variables": ({"env": [{"key": f"K{i}", "value": ""} for i in range(257)]}, "too-large"),
    "value": ({"env": [{"key": "K", "value": "x" * 65537}]}, "invalid-input"),
    "nul": ({"env": [{"key": "K", "value": "\0"}]}, "invalid-input"),
    "key": ({"env": [{"key": "1K", "value": ""}]}, "invalid-input"),
    "twice": ({"env": [{"key": "K", "value": ""}] * 2}, "invalid-input"),
    "path": ({"env": [{"key": "PATH", "value": ""}]}, "invalid-input"),
    "loader": ({"env": [{"key": "LD_PRELOAD", "value": ""}]}, "invalid-input"),
    "mark": ({"env": [{"key": "AOS_CHILD", "value": ""}]}, "invalid-input"),
    "absolute": ({"cwd": "/etc"}, "boundary-escape"),
    "above": ({"cwd": "sub/../.."}, "boundary-escape"),
    "home": ({"cwd": "home://x"}, "boundary-escape"),
    "link": ({"cwd": "out"}, "boundary-escape"),
    "missing": ({"cwd": "nowhere"}, "invalid-input"),
    "control": ({"cwd": "a\nb"}, "invalid-input"),
    "argument": ({"args": ["\0"]}, "invalid-input"),
    "arguments": ({"args": ["x" * (1 << 20)]}, "invalid-input"),
    "injections": (
        {
            "file_injections": [
                {"content": b"", "placement": Case("env-pointer", f"K{i}")} for i in range(129)
            ]
        },
        "too-large",
    ),
    "large injection": (
        {"file_injections": [INJECTED | {"content": bytes(8 << 20) + b"x"}]},
        "too-large",
    ),
    "injected path": (
        {"file_injections": [{"content": b"", "placement": Case("fixed-path", "/etc/../x")}]},
        "invalid-input",
    ),
    "injected variable": (
        {"file_injections": [{"content": b"", "placement": Case("env-pointer", "LD_X")}]},
        "invalid-input",
    ),
    "injected twice": (
        {"file_injections": [INJECTED] * 2},
        "invalid-input",
    ),
    "idle": ({"idle_timeout_ms": 0}, "invalid-input"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(context: GuestContext, programs: Programs, name: str) -> None:
    (programs.workspace / "out").symlink_to("/etc")
    changes, case = REFUSED[name]
    assert call(context, "spawn-persistent" if name == "idle" else "spawn", request("sh", **changes)) == Err(
        case
    )
    assert programs.admitted == []
    assert [error for _, _, error in programs.notes] == [case]


@pytest.mark.parametrize("target", ["../home", "/etc"])
def test_a_workspace_that_became_a_link_is_none(
    context: GuestContext, programs: Programs, recorder: Recorder, target: str
) -> None:
    """Another child, in a workspace above, puts a link there: bubblewrap would bind where it leads."""
    (programs.home.root / "token").write_text("sesame")
    programs.workspace.rmdir()
    programs.workspace.symlink_to(target)
    for name in ("spawn", "spawn-background"):
        assert call(context, name, request("sh", "-c", "cat token")) == Err("boundary-escape")
    assert programs.admitted == []
    programs.workspace.unlink()
    assert call(context, "spawn", request("sh")) == Err("invalid-input"), "it is gone"
    assert recorder.logged[-1] == ("warn", "process: refused: the working directory is not there")


def test_a_program_that_is_not_there(programs: Programs, recorder: Recorder) -> None:
    context = recorder.context(processes=programs.door("no-such-program"))
    assert call(context, "spawn", request("no-such-program")) == Err("invalid-input")
    assert recorder.logged == [
        (
            "warn",
            "process: refused: there is no program `no-such-program`, neither in the capsule nor on PATH",
        )
    ]


def test_without_walls_it_is_refused_unless_the_operator_did_without(
    context: GuestContext, programs: Programs, recorder: Recorder
) -> None:
    programs.sandbox = Unavailable("process-sandbox-missing", "bubblewrap is missing", hint="install it")
    assert call(context, "spawn", request("sh")) == Err("invalid-input")
    assert call(context, "spawn-persistent", request("sh")) == Err("persist-unsupported")
    assert recorder.logged[0] == ("warn", "process: refused: bubblewrap is missing; install it")


def test_without_a_workspace_it_starts_in_a_scratch_folder(programs: Programs, recorder: Recorder) -> None:
    context = recorder.context(processes=programs.door("sh", workspace=lambda: None))
    assert call(context, "spawn", request("sh", "-c", "pwd"))["stdout"] == "/tmp\n"
    assert call(context, "spawn", request("sh", cwd="x")) == Err("invalid-input")


def test_limits_hold_from_the_first_instruction(context: GuestContext) -> None:
    limits = {
        "max-memory-bytes": 1 << 30,
        "max-cpu-secs": 7,
        "max-pids": None,
        "max-open-files": 50,
    }
    answer = call(context, "spawn", request("sh", "-c", "ulimit -v; ulimit -t; ulimit -n", limits=limits))
    assert answer["stdout"].split() == [str(1 << 20), "7", "50"]
    beyond = dict.fromkeys(limits, None) | {"max-open-files": (1 << 32) - 1}
    assert call(context, "spawn", request("sh", "-c", "echo ok", limits=beyond))["stdout"] == "ok\n"


def test_what_limits_a_program_is_never_the_workspaces(
    context: GuestContext, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = programs.workspace / "bin" / "prlimit"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho fake\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    limits = {"max-memory-bytes": None, "max-cpu-secs": 7, "max-pids": None, "max-open-files": None}
    assert call(context, "spawn", request("sh", "-c", "ulimit -t", limits=limits))["stdout"] == "7\n"


# beside the guest


def test_background_runs_on_and_is_read_as_it_speaks(context: GuestContext) -> None:
    number = started(context, "echo one; read line; echo got $line; read line || echo eof >&2")
    logs(context, number, "one\n")
    answer = handle(context, "read-logs", number)
    assert answer == {"stdout": "", "stderr": "", "running": True, "exit": None}
    assert handle(context, "write-stdin", number, b"two\n") == 4
    logs(context, number, "got two\n")
    assert handle(context, "os-pid", number) > 1
    assert handle(context, "close-stdin", number) is None
    assert handle(context, "wait-with-output", number, 30_000) == {
        "stdout": "",
        "stderr": "eof\n",
        "exit": ended(0),
    }
    assert handle(context, "read-logs", number)["running"] is False
    assert handle(context, "close-stdin", number) is None
    for name, arguments in (("write-stdin", (b"x",)), ("signal", ("term",)), ("os-pid", ())):
        assert handle(context, name, number, *arguments) == Err("closed")
    assert handle(context, "kill", number) == {
        "killed": False,
        "exit": ended(0),
        "stdout": "",
        "stderr": "",
    }


@pytest.mark.parametrize(
    ("name", "number"), [("term", signal.SIGTERM), ("hup", 1), ("usr1", 10), ("usr2", 12), ("int", 2)]
)
def test_a_signal_goes_to_the_whole_group(context: GuestContext, name: str, number: int) -> None:
    script = f"trap 'exit 7' {name.upper()}; echo up; while :; do sleep 0.02; done"
    one, other = started(context, script), started(context, f"echo up; {LONG} & exec {LONG}")
    logs(context, one, "up")
    logs(context, other, "up")
    for held in (one, other):
        assert handle(context, "signal", held, name) is None
    assert handle(context, "wait", one, 30_000) == ended(7)
    assert handle(context, "wait", other, 30_000) == ended(by=number)


def test_stop_and_cont(context: GuestContext) -> None:
    number = started(context, "while :; do echo x; sleep 0.01; done")
    logs(context, number, "x")
    handle(context, "signal", number, "stop")
    wait_until(lambda: handle(context, "read-logs", number)["stdout"] == "", "it is silent")
    handle(context, "signal", number, "cont")
    logs(context, number, "x")


def test_kill_takes_the_group_and_gives_the_rest(context: GuestContext, programs: Programs) -> None:
    number = started(context, f"trap '' TERM INT; echo last; {LONG} & {LONG}")
    wait_until(lambda: programs.children.live()[0].has_output(), "it has spoken")
    answer = handle(context, "kill", number)
    assert answer == {"killed": True, "exit": ended(by=9), "stdout": "last\n", "stderr": ""}
    assert programs.children.live() == ()
    assert ("process.kill", f"sh -c trap '' TERM INT; echo last; {LONG} & {LONG}", None) in programs.notes


def test_a_wait_ends_with_its_time_or_its_call(context: GuestContext) -> None:
    number = started(context, LONG)
    assert handle(context, "wait", number, 0) == Err("wait-timeout")
    assert handle(context, "wait-with-output", number, 50) == Err("wait-timeout")
    context.is_over = lambda: True
    assert handle(context, "wait", number, None) == Err("cancelled")


def test_abi_27_the_ninth_is_refused_until_one_ends(context: GuestContext, programs: Programs) -> None:
    held = [started(context, LONG) for _ in range(8)]
    for name in ("spawn-background", "spawn-persistent"):
        assert call(context, name, request("sh")) == Err("quota")
    assert programs.denials[0].render() == (
        'denied operation=process.spawn-background command="sh" case=quota '
        'rule="8 background processes run already" allow="aos quota set --agent default --processes N"'
    )
    assert call(context, "spawn", request("sh", "-c", "echo still"))["stdout"] == "still\n"
    handle(context, "kill", held[0])
    started(context, LONG)
    programs.slots = 0
    assert call(context, "spawn-background", request("sh")) == Err("quota")


def test_abi_27_what_goes_takes_its_children_along(context: GuestContext, programs: Programs) -> None:
    """A handle that is dropped, and an instance that ends."""
    dropped = started(context, f"trap '' TERM INT; {LONG} & {LONG}")
    started(context, LONG)
    context.resources.drop("process-handle", dropped)
    wait_until(lambda: len(programs.children.live()) == 1, "the first is gone")
    context.resources.clear()
    wait_until(lambda: programs.children.live() == (), "all are gone")


def test_a_handle_that_is_gone_is_closed(context: GuestContext) -> None:
    number = started(context, "true")
    context.resources.drop("process-handle", number)
    for name, arguments in (
        ("read-logs", ()),
        ("write-stdin", (b"",)),
        ("close-stdin", ()),
        ("signal", ("term",)),
        ("kill", ()),
        ("wait", (0,)),
        ("wait-with-output", (0,)),
        ("os-pid", ()),
    ):
        assert handle(context, name, number, *arguments) == Err("closed")


def test_a_guest_that_holds_too_much_gets_no_child(programs: Programs, recorder: Recorder) -> None:
    context = recorder.context(processes=programs.door("sh"))
    context.resources.limit = 0
    assert call(context, "spawn-background", request("sh", "-c", LONG)) == Err("quota")
    wait_until(lambda: programs.children.live() == (), "it is gone")


def test_children_that_ended_are_held_in_a_bounded_number(context: GuestContext) -> None:
    held = [started(context, "true") for _ in range(4)]
    for number in held:
        handle(context, "wait", number, 30_000)
    for _ in range(MAX_HELD - 4):
        context.resources.add("process-handle", Held(context.resources.get("process-handle", held[0]).child))  # type: ignore[union-attr]
    assert call(context, "spawn-background", request("sh", "-c", LONG)) == Err("quota")
    context.resources.drop("process-handle", held[3])
    started(context, "true")


def test_a_bug_of_ours_does_not_end_the_thread(context: GuestContext, programs: Programs) -> None:
    faults: list[Exception] = []

    def fail(child: object) -> None:
        raise ZeroDivisionError

    programs.children.on_fault = faults.append
    programs.children.on_over = fail
    assert call(context, "spawn", request("sh", "-c", "echo x"))["stdout"] == "x\n"
    assert call(context, "spawn", request("sh", "-c", "echo y"))["stdout"] == "y\n"
    wait_until(lambda: len(faults) == 2, "both are told")


def test_an_argument_that_no_command_line_holds(context: GuestContext) -> None:
    assert call(context, "spawn", request("sh", "-c", "x" * 200_000)) == Err("invalid-input")


def test_pollables_are_ready_when_there_is_something(context: GuestContext) -> None:
    number = started(context, "read line; echo said; read line")
    exit_, output = handle(context, "subscribe-exit", number), handle(context, "subscribe-logs", number)

    def ready(one: int) -> bool:
        return bool(FACTORS[POLL, "[method]pollable.ready"].run(context, one))

    assert (ready(exit_), ready(output)) == (False, False)
    handle(context, "write-stdin", number, b"\n")
    assert FACTORS[POLL, "poll"].run(context, [exit_, output]) == [1]
    assert handle(context, "read-logs", number)["stdout"] == "said\n"
    assert not ready(output)
    handle(context, "close-stdin", number)
    assert FACTORS[POLL, "poll"].run(context, [exit_]) == [0]
    assert ready(output)


def test_input_is_all_or_torn(context: GuestContext) -> None:
    """A child that reads slowly gets everything; one that does not read makes the writer wait, to its end."""
    number = started(context, "sleep 0.1; wc -c")
    assert handle(context, "write-stdin", number, bytes(MAX_WRITE_BYTES)) == MAX_WRITE_BYTES
    handle(context, "close-stdin", number)
    assert handle(context, "wait-with-output", number, 30_000)["stdout"].strip() == str(MAX_WRITE_BYTES)
    number = started(context, LONG)
    assert handle(context, "write-stdin", number, bytes(MAX_WRITE_BYTES + 1)) == Err("too-large")
    over = threading.Event()
    context.is_over = over.is_set
    timer = threading.Timer(0.1, over.set)
    timer.start()
    assert handle(context, "write-stdin", number, bytes(MAX_WRITE_BYTES)) == Err("cancelled")
    timer.join()
    over.clear()
    assert handle(context, "write-stdin", number, b"x") == Err("closed")


@pytest.mark.parametrize("programs", ["bare"], indirect=True)
def test_input_that_nobody_reads_any_more_is_closed(context: GuestContext) -> None:
    number = started(context, f"exec <&-; echo shut; exec {LONG}")
    logs(context, number, "shut")

    def is_closed() -> bool:
        return bool(handle(context, "write-stdin", number, b"x") == Err("closed"))

    wait_until(is_closed, "the pipe is broken")


def test_a_background_child_may_be_given_no_input(context: GuestContext) -> None:
    number = started(context, "cat; echo end", stdin=b"all ", keep_stdin_open=False)
    assert handle(context, "wait-with-output", number, 30_000)["stdout"] == "all end\n"


def test_a_character_that_is_cut_is_left_for_the_next_read(context: GuestContext) -> None:
    number = started(context, "printf '\\303'; read line; printf '\\244'; read line; printf '\\303'")
    assert handle(context, "wait", number, 300) == Err("wait-timeout")
    assert handle(context, "read-logs", number)["stdout"] == ""
    handle(context, "write-stdin", number, b"\n")
    assert logs(context, number, "ä") == "ä"
    handle(context, "close-stdin", number)
    assert handle(context, "wait-with-output", number, 30_000)["stdout"] == "\ufffd"


# cancelled


def test_a_cancelled_spawn_is_interrupted_first(context: GuestContext, programs: Programs) -> None:
    script = "trap 'echo bye > note; exit 0' INT; echo up > up; while :; do sleep 0.02; done"
    context.current = envelope_from("default")

    def cancel() -> None:
        wait_until((programs.workspace / "up").exists, "it has started")
        context.cancelled = context.current

    context.is_over = lambda: context.is_cancelled
    thread = threading.Thread(target=cancel)
    thread.start()
    assert call(context, "spawn", request("sh", "-c", script)) == Err("cancelled")
    thread.join()
    assert (programs.workspace / "note").read_text() == "bye\n"
    assert programs.children.live() == ()


def test_a_call_that_is_over_starts_nothing(context: GuestContext, programs: Programs) -> None:
    context.is_over = lambda: True
    for name in ("spawn", "spawn-background", "spawn-persistent"):
        assert call(context, name, request("sh", "-c", "touch started")) == Err("cancelled")
    assert programs.admitted == []
    assert not (programs.workspace / "started").exists()


def test_a_spawn_whose_time_is_up_is_killed(context: GuestContext, programs: Programs) -> None:
    context.is_over = lambda: bool(programs.children.live())
    assert call(context, "spawn", request("sh", "-c", f"trap '' INT; {LONG}")) == Err("cancelled")
    wait_until(lambda: programs.children.live() == (), "it is gone")


def test_abi_27_a_cancel_takes_the_children_of_that_call_alone(
    programs: Programs, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "CANCEL_GRACE_S", 0.3)
    calls = iter(["a", "b", None])
    context = recorder.context(processes=programs.door("sh", call_id=lambda: names[-1]))
    names: list[str | None] = []
    held = []
    for name in calls:
        names.append(name)
        held.append(started(context, f"trap '' INT; echo up; {LONG} & wait; {LONG}"))
        logs(context, held[-1], "up")
    assert programs.children.cancel("default", {"a"}) == 1
    assert programs.children.cancel("somebody", {"b"}) == 0
    assert handle(context, "wait", held[0], 60_000) == ended(by=9)
    assert [handle(context, "read-logs", one)["running"] for one in held] == [False, True, True]
    context.resources.clear()


def test_a_cancelled_child_is_interrupted_at_once_and_killed_in_two_seconds(
    context: GuestContext, programs: Programs
) -> None:
    number = started(context, "trap 'echo heard' INT; echo up; while :; do sleep 0.02; done")
    logs(context, number, "up")
    before = time.monotonic()
    assert programs.children.cancel("default", {"call-1"}) == 1
    [child] = programs.children.live()
    assert child.kill_at is not None
    assert before + 2.0 <= child.kill_at <= time.monotonic() + 2.0
    logs(context, number, "heard")


def test_children_are_killed_with_the_instance_that_holds_them(
    context: GuestContext, programs: Programs
) -> None:
    logs(context, started(context, f"trap '' INT TERM; echo up; {LONG} & wait; {LONG}"), "up")
    context.resources.clear()
    wait_until(lambda: programs.children.live() == (), "the whole group is gone")


def test_the_gate_of_waiting_guests_counts(context: GuestContext) -> None:
    context.gate = WaitGate(0)
    assert call(context, "spawn", request("sh")) == Err("unknown", "too many guests wait at once")


def test_when_the_daemon_stops_nothing_starts_and_all_ends(context: GuestContext, programs: Programs) -> None:
    number = started(context, f"trap '' TERM INT; {LONG}")
    programs.registry.shut_down()
    wait_until(lambda: programs.children.live() == (), "all are gone")
    assert handle(context, "read-logs", number)["exit"] == ended(by=9)
    assert call(context, "spawn", request("sh")) == Err("cancelled")


def test_nothing_leaks(context: GuestContext, programs: Programs) -> None:
    call(context, "spawn", request("sh", "-c", "true"))
    before, threads = descriptors(), threading.active_count()
    for _ in range(10):
        call(context, "spawn", request("sh", "-c", "echo x", stdin=b"y"))
        handle(context, "kill", started(context, LONG))
    context.resources.clear()
    wait_until(lambda: programs.children.live() == (), "all are gone")
    assert (descriptors(), threading.active_count()) == (before, threads)
    assert context.resources.live == 0


def test_a_child_that_cannot_be_recorded_does_not_live(
    context: GuestContext, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []

    def fail(pid: int) -> None:
        pids.append(pid)
        raise OSError(28, "full")

    before = descriptors()
    monkeypatch.setattr(programs.records, "add", fail)
    answer = call(context, "spawn-background", request("sh", "-c", LONG))
    assert answer == Err("unknown", f"it cannot be started: {os.strerror(28)}")
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    assert descriptors() <= before + 2  # the thread's own, where this was its first child


# what outlives the instance; only behind walls

needs_walls = pytest.mark.parametrize("programs", [one for one in WALLS if one == "walled"], indirect=True)


def test_without_walls_nothing_is_kept(tmp_path: Path, recorder: Recorder) -> None:
    programs = Programs(tmp_path)
    context = recorder.context(processes=programs.door("sh"))
    assert call(context, "spawn-persistent", request("sh")) == Err("persist-unsupported")
    asked = [{"content": b"x", "placement": Case("env-pointer", "RULES")}]
    assert call(context, "spawn", request("sh", file_injections=asked)) == Err("invalid-input")
    programs.close()


@needs_walls
def test_what_persistence_needs(programs: Programs, recorder: Recorder) -> None:
    context = recorder.context(processes=programs.door("sh", may_persist=False))
    assert call(context, "spawn-persistent", request("sh")) == Err("capability-denied")
    assert programs.denials[0].allow == "[capabilities] allow_persistent = true"
    context.processes = programs.door("sh", caller=lambda: None)
    assert call(context, "spawn-persistent", request("sh")) == Err("persist-unsupported")


@needs_walls
def test_a_persistent_child_is_found_again(
    context: GuestContext, programs: Programs, recorder: Recorder
) -> None:
    name = kept(context, "echo one; read x; echo two $x >&2; read x", label="a\nb", keep_stdin_open=True)
    assert len(name) == 52
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz234567")
    context.resources.clear()
    later = recorder.context(processes=programs.door())
    [info] = call(later, "list-processes", "ab")
    assert info == call(later, "status", name) | {
        key: info[key] for key in ("age-ms", "idle-ms", "cpu-ms", "mem-bytes-peak", "buffered-bytes")
    }
    assert (info["id"], info["label"], info["phase"], info["exit"]) == (name, "ab", "running", None)
    assert info["command"] == "sh -c echo one; read x; echo two $x >&2; read x"
    assert info["os-pid"] > 1
    assert info["stdin-open"] is True
    assert call(later, "list-processes", "other") == []
    assert [one["id"] for one in call(later, "status-many", ["x", name, name])] == [name]
    assert call(later, "write-stdin", name, b"it\n") == 3
    wait_until(lambda: call(later, "status", name)["buffered-bytes"] == 11, "both lines are here")
    assert call(later, "read-logs", name) == {
        "stdout": "one\n",
        "stderr": "two it\n",
        "running": True,
        "exit": None,
    }
    assert call(later, "release-process", name) == Err("invalid-input")
    assert call(later, "wait", name, 0) == Err("wait-timeout")
    assert call(later, "close-stdin", name) is None
    assert call(later, "wait", name, 30_000) == ended(1)
    assert call(later, "status", name)["phase"] == "exited"
    assert call(later, "signal", name, "term") == Err("closed")
    for _ in range(2):
        assert call(later, "release-process", name) is None
    assert call(later, "status", name) == Err("no-such-process")


@needs_walls
def test_it_is_nobody_elses(context: GuestContext, programs: Programs, recorder: Recorder) -> None:
    name = kept(context, LONG)
    strangers = [
        programs.door("sh", owner=OWNER._replace(principal="bob")),
        programs.door("sh", owner=OWNER._replace(capsule="other")),
    ]
    for door in strangers:
        other = recorder.context(processes=door)
        assert call(other, "list-processes", None) == []
        assert call(other, "status-many", [name]) == []
        for called in (
            ("attach", name),
            ("status", name),
            ("read-logs", name),
            ("read-since", name, "stdout", {"token": None}, 10),
            ("write-stdin", name, b""),
            ("close-stdin", name),
            ("signal", name, "term"),
            ("wait", name, 0),
            ("stop", name, None),
            ("watch", name, None),
        ):
            assert call(other, *called) == Err("no-such-process")
        assert call(other, "unwatch", name) is None
        assert call(other, "release-process", name) is None
    for garbage in ("", "x", name.upper(), "\0"):
        assert call(context, "status", garbage) == Err("no-such-process")
    assert call(context, "status", name)["phase"] == "running"


@needs_walls
def test_attached_it_has_a_handle_that_ends_nothing(context: GuestContext) -> None:
    name = kept(context, f"echo up; {LONG}")
    number = call(context, "attach", name)
    logs(context, number, "up")
    assert handle(context, "wait", number, None) == Err("invalid-input")
    assert handle(context, "wait-with-output", number, None) == Err("invalid-input")
    assert handle(context, "write-stdin", number, b"x") == Err("closed")
    context.resources.drop("process-handle", number)
    assert call(context, "status", name)["phase"] == "running"
    again = call(context, "attach", name)
    assert handle(context, "kill", again)["killed"] is True
    assert call(context, "status", name)["exit"] == ended(by=9)


@needs_walls
def test_stop_asks_then_kills_and_gives_the_id_back(context: GuestContext) -> None:
    gentle = kept(context, "trap 'exit 5' TERM; echo up; while :; do sleep 0.02; done")
    stubborn = kept(context, f"trap '' TERM; echo up; {LONG} & wait; {LONG}")
    for name in (gentle, stubborn):
        wait_until(lambda name=name: call(context, "status", name)["buffered-bytes"] > 0, "it is up")
    assert call(context, "stop", gentle, None) == ended(5)
    assert call(context, "stop", stubborn, 100) == ended(by=9)
    assert call(context, "list-processes", None) == []


@needs_walls
def test_a_cursor_reads_what_others_still_can(context: GuestContext) -> None:
    name = kept(context, "printf '\\377abc'; printf err >&2", log_ring_bytes=1)
    call(context, "wait", name, 30_000)
    start = {"token": None}
    first = call(context, "read-since", name, "stdout", start, 2)
    assert (first["data"], first["bytes-dropped"], first["drained-eof"]) == (b"\xffa", 0, False)
    rest = call(context, "read-since", name, "stdout", first["next"], 100)
    assert (rest["data"], rest["drained-eof"]) == (b"bc", True)
    assert call(context, "read-since", name, "stdout", start, 100)["data"] == b"\xffabc"
    assert call(context, "read-logs", name)["stdout"] == "\ufffdabc"
    assert call(context, "read-since", name, "stdout", start, 100)["data"] == b"\xffabc"
    other = kept(context, "true")
    for wrong in ("x", "", first["next"]["token"] + "0" * 30):
        assert call(context, "read-since", name, "stdout", {"token": wrong}, 1) == Err("invalid-input")
    assert call(context, "read-since", name, "stderr", first["next"], 1) == Err("invalid-input")
    assert call(context, "read-since", other, "stdout", first["next"], 1) == Err("invalid-input")


@needs_walls
def test_a_cursor_that_falls_behind_is_told_what_it_lost(context: GuestContext) -> None:
    script = "printf %04096d 1; read x; printf %05000d 2; read x"
    name = kept(context, script, log_ring_bytes=4096, keep_stdin_open=True)
    wait_until(lambda: call(context, "status", name)["buffered-bytes"] == 4096, "it has spoken")
    first = call(context, "read-since", name, "stdout", {"token": None}, 96)
    call(context, "write-stdin", name, b"\n")
    wait_until(lambda: call(context, "status", name)["bytes-dropped"] == 4904, "it speaks again")
    second = call(context, "read-since", name, "stdout", first["next"], 1 << 20)
    assert (len(second["data"]), second["bytes-dropped"]) == (4096, 4904)
    assert call(context, "read-since", name, "stdout", second["next"], 10)["bytes-dropped"] == 4904


@needs_walls
def test_backpressure_loses_nothing(context: GuestContext) -> None:
    size = 100_000
    script = f"head -c {size} /dev/zero"
    name = kept(context, script, log_ring_bytes=4096, overflow="backpressure")
    got, cursor = b"", {"token": None}

    def is_all() -> bool:
        nonlocal got, cursor
        chunk = call(context, "read-since", name, "stdout", cursor, 1 << 20)
        got, cursor = got + chunk["data"], chunk["next"]
        assert chunk["bytes-dropped"] == 0
        return bool(chunk["drained-eof"])

    wait_until(is_all, "all of it is here")
    assert got == bytes(size)


@needs_walls
def test_watched_it_tells_what_happens_to_it(context: GuestContext, programs: Programs) -> None:
    name = kept(context, "read x; echo y; read x", keep_stdin_open=True, label="repl")
    for bad in ("", "UPPER", "a..b", "a/b", ".a", "x" * 129):
        assert call(context, "watch", name, bad) == Err("invalid-input")
    for _ in range(2):
        assert call(context, "watch", name, "mine.1") is None
    call(context, "write-stdin", name, b"\n")
    wait_until(lambda: len(programs.events) == 1, "its output is announced")
    call(context, "unwatch", name)
    call(context, "close-stdin", name)
    call(context, "wait", name, 30_000)
    assert call(context, "watch", name, None) is None
    about = {"id": name, "label": "repl"}
    assert programs.events == [
        ("default", "astrid.process.v1.log-ready.mine.1", about),
        (
            "default",
            f"astrid.process.v1.exited.{name}",
            {**about, "reason": "self-exit", "exit_code": 1, "signal": None},
        ),
    ]


@needs_walls
def test_a_signal_before_the_program_has_begun_ends_it(context: GuestContext) -> None:
    """Behind bubblewrap nobody would hear it yet."""
    for _ in range(5):
        number = started(context, LONG)
        assert handle(context, "signal", number, "term") is None
        assert handle(context, "wait", number, 30_000) == ended(by=15)


@needs_walls
def test_one_that_is_killed_says_so(context: GuestContext, programs: Programs) -> None:
    name = kept(context, LONG)
    call(context, "watch", name, "x")
    call(context, "stop", name, 0)
    assert [event[2]["reason"] for event in programs.events] == ["killed"]


@needs_walls
def test_too_many_are_refused_until_one_is_released(context: GuestContext, programs: Programs) -> None:
    programs.slots = 100
    names = [kept(context, "true") for _ in range(32)]
    assert call(context, "spawn-persistent", request("sh")) == Err("registry-full")
    call(context, "wait", names[0], 30_000)
    call(context, "release-process", names[0])
    names[0] = kept(context, "true")
    for name in names:
        call(context, "wait", name, 30_000)


@needs_walls
def test_one_that_nobody_asks_for_ends_and_is_forgotten(context: GuestContext, programs: Programs) -> None:
    idle = kept(context, LONG, idle_timeout_ms=1000, exit_retention_ms=1000)
    old = kept(context, LONG, max_lifetime_ms=5000)
    now = time.monotonic()
    programs.registry.sweep(now)
    assert [one["phase"] for one in call(context, "list-processes", None)] == ["running", "running"]
    programs.registry.sweep(now + 2)
    wait_until(lambda: len(programs.children.live()) == 1, "the idle one ends")
    programs.registry.sweep(now + 10)
    wait_until(lambda: programs.children.live() == (), "the old one ends")
    programs.registry.sweep(time.monotonic() + 2)
    assert call(context, "status", idle) == Err("no-such-process")
    assert call(context, "status", old)["exit"] == ended(by=15)


@needs_walls
def test_they_end_with_their_capsule(context: GuestContext, programs: Programs) -> None:
    name = kept(context, LONG)
    programs.registry.retain("bob", ())
    programs.registry.retain("default", ("guest",))
    assert call(context, "status", name)["phase"] == "running"
    programs.registry.retain("default", ("other",))
    assert call(context, "status", name) == Err("no-such-process")
    wait_until(lambda: programs.children.live() == (), "it ends")


@needs_walls
def test_injected_files_can_be_read_and_not_be_changed(context: GuestContext, programs: Programs) -> None:
    asked = [
        {"content": b"by variable", "placement": Case("env-pointer", "RULES")},
        {"content": b"by path", "placement": Case("fixed-path", "/etc/aos-new/rules")},
        {"content": b"covered", "placement": Case("fixed-path", "/etc/hosts")},
    ]
    change = (
        "for f in $RULES /etc/aos-new/rules /etc/hosts; do cat $f; echo; (echo x > $f) 2>&-; rm -f $f 2>&-;"
        " mv $(dirname $f) /tmp/away 2>&-; chmod 777 $f 2>&-; (echo x > $f) 2>&-; cat $f; echo; done;"
        " ls /etc/passwd"
    )
    answer = call(context, "spawn", request("sh", "-c", change, file_injections=asked))
    words = ["by variable", "by variable", "by path", "by path", "covered", "covered", "/etc/passwd"]
    assert answer["stdout"].splitlines() == words
    assert not Path("/etc/aos-new").exists()
    assert len(programs.admitted[0]["injections"]) == 3  # type: ignore[arg-type]
    for path in (str(programs.workspace / "x"), "/tmp/x", "/x"):
        asked = [{"content": b"", "placement": Case("fixed-path", path)}]
        assert call(context, "spawn", request("sh", file_injections=asked)) == Err("invalid-input")


@needs_walls
def test_behind_the_walls_there_is_nothing_of_the_home(context: GuestContext, programs: Programs) -> None:
    """The socket's token as everything else."""
    secret = programs.home.root / "run" / "system.token"
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("sesame")
    answer = call(context, "spawn", request("sh", "-c", f"cat {secret}; ls -A {programs.home.root}"))
    assert answer["stdout"] == ""
    assert "No such file" in answer["stderr"]
