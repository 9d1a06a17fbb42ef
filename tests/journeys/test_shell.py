"""The first-party `shell` capsule through a real daemon: a command is asked for, runs, goes on, is cancelled,
and ends with whoever started it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.installation import COMMAND_TIMEOUT_S, ROOT, Aos, wait_until
from tests.support.programs import WALLS
from tests.support.terminal import answer_on_cue

pytestmark = pytest.mark.journey

CUE = "[N]o: "
ALLOWED = '[[rule]]\ncapsule = "shell"\naction = "*"\nresource = "*"\ndecision = "allow"\n'
BUNDLED = ROOT / "runtime" / "aos_runtime" / "_bundled" / "shell.capsule"
NEEDED = ("bash", "sleep", "echo", "cat", "prlimit")


class Shell:
    """A home with the capsule, in a working folder that is a workspace."""

    def __init__(self, root: Path, extra: Mapping[str, str] = {}) -> None:
        self.aos = Aos(root=root, extra=extra)
        (self.aos.folder / ".git").mkdir(parents=True)

    def allow(self) -> None:
        """Approve everything from now on."""
        self.aos.home.approvals_file.write_text(ALLOWED, encoding="utf-8")

    def call(self, tool: str, *words: str, **arguments: object) -> str:
        return self.aos.run("tool", "call", tool, "--input", json.dumps(arguments), *words).out

    def fail(self, tool: str, *words: str, **arguments: object) -> str:
        ended = self.aos.run("tool", "call", tool, "--input", json.dumps(arguments), *words, status=1)
        return next(line for line in ended.err.splitlines() if line.startswith("error: "))

    def spawn(self, command: str) -> int:
        """The id of a background process."""
        said = self.call("spawn_background_process", command=command)
        found = re.match(r"Background process started with id: ([0-9]+)\.", said)
        assert found is not None, said
        return int(found[1])

    def kill(self, number: int) -> Any:
        return json.loads(self.call("kill_process", id=number))

    def begin(self, **arguments: object) -> subprocess.Popen[str]:
        """A command that is waited for by a client of its own."""
        return self.aos.start("tool", "call", "run_shell_command", "--input", json.dumps(arguments))

    def logs(self, number: int, enough: str) -> Any:
        """What a background process said since, once it said `enough`."""
        said: dict[str, Any] = {"stdout": ""}

        def has_said() -> bool:
            answer = json.loads(self.call("read_process_logs", id=number))
            said.update(answer, stdout=said["stdout"] + answer["stdout"])
            return enough in said["stdout"]

        wait_until(has_said, f"process {number} says {enough!r}")
        return said


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A running daemon."""
    made = Shell(tmp_path_factory.mktemp("shell"))
    made.aos.run("capsule", "install", str(BUNDLED), "--approve-untrusted")
    made.aos.run("start")
    yield made
    made.aos.close()


@pytest.fixture
def shell(serving: Shell) -> Shell:
    """Where everything is approved."""
    serving.allow()
    return serving


@pytest.fixture
def nap(tmp_path: Path) -> str:
    """A command that sleeps for long and can be told from every other one."""
    return f"sleep 86{abs(hash(str(tmp_path))) % 10**9}"


def sleeping(nap: str) -> list[int]:
    """The processes that run this very command, behind whatever walls."""
    wanted = nap.encode().replace(b" ", b"\0") + b"\0"
    return [
        int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _words_of(path) == wanted
    ]


def _words_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_command_is_asked_for_each_time_and_runs_in_the_workspace(serving: Shell) -> None:
    shell = serving
    shell.aos.home.approvals_file.unlink(missing_ok=True)
    arguments = json.dumps({"command": " touch note && pwd "})
    words = ("tool", "call", "run_shell_command", "--input", arguments)
    told = "Command 'touch note && pwd' was not approved by user"
    for typed, until in (("\r", told), ("y\r", f"{shell.aos.folder}\r\n"), ("n\r", told)):
        screen = answer_on_cue(
            ["env", "-C", str(shell.aos.folder), sys.executable, "-m", "aos_cli", *words],
            [(CUE, typed)],
            until=until,
            environ={**shell.aos.environ, "CI": "", "GITHUB_ACTIONS": ""},
        )
        assert "Action:    touch note && pwd" in screen
        assert until in screen
        assert (shell.aos.folder / "note").exists() is (typed == "y\r"), typed
        (shell.aos.folder / "note").unlink(missing_ok=True)
    assert told in shell.fail("run_shell_command", command="touch note && pwd")
    (shell.aos.folder / "note").write_text("noted")
    assert shell.call("run_shell_command", "--approve", "cat", command="cat ./note") == "noted\n"


def test_what_becomes_of_a_command_is_told(shell: Shell) -> None:
    arguments = json.dumps({"command": "echo out; echo why >&2; exit 3"})
    failed = shell.aos.run("tool", "call", "run_shell_command", "--input", arguments, status=1).err
    assert "Command failed (exit code 3): why\nstdout:\nout\n" in failed
    assert shell.call("run_shell_command", command="echo built >&2") == "built\n"
    assert shell.call("run_shell_command", command="echo out; echo noise >&2") == "out\n"
    too_long = shell.fail("run_shell_command", command=f": {'x' * 4096}")
    assert "longer than the 4096 characters that a person can be asked about" in too_long
    assert "Command cannot be empty" in shell.fail("run_shell_command", command="  \n ")
    blocked = shell.fail("run_shell_command", command="cd x; rm -rf /")
    assert "Command blocked: it removes what the machine needs" in blocked
    token = shell.aos.home.token_file
    assert token.exists()
    assert "No such file" in shell.fail("run_shell_command", command=f"cat {token}")
    long = shell.call("run_shell_command", command="head -c 3000000 /dev/zero | tr '\\0' x")
    assert " bytes left out " in long
    longer = shell.call("run_shell_command", command="head -c 5000000 /dev/zero | tr '\\0' x; echo end")
    assert longer.startswith(f"... {5_000_004 - (4 << 20)} bytes left out ...\n")
    assert longer.endswith("xend\n")
    shown = shell.aos.run("audit", "tail", "--json").out
    assert "process_spawned" in shown
    assert "bash -c echo out; echo why >&2; exit 3" in shown


def test_a_process_goes_on_is_read_and_killed(shell: Shell, nap: str) -> None:
    number = shell.spawn(f"echo up; {nap} & cat; {nap}")
    logs = shell.logs(number, "up\n")
    assert (logs["running"], logs["stderr"]) == (True, "")
    wait_until(lambda: len(sleeping(nap)) == 2, "both sleep; its input has ended")
    assert shell.kill(number) == {"running": False, "ended": "signal 9", "stdout": "", "stderr": ""}
    assert sleeping(nap) == []
    assert f"no background process with id {number}" in shell.fail("read_process_logs", id=number)
    other = shell.spawn("echo two; exit 4")
    assert other == number + 1
    wait_until(lambda: not json.loads(shell.call("read_process_logs", id=other))["running"], "it ends")
    assert json.loads(shell.call("read_process_logs", id=other))["ended"] == "exit code 4"


def test_the_quota_of_background_processes_holds(shell: Shell, nap: str) -> None:
    number = shell.spawn(nap)
    shell.aos.run("quota", "set", "--processes", "1")
    refused = shell.fail("spawn_background_process", command=nap)
    assert "as many background processes as there may be run already" in refused
    assert 'case=quota rule="1 background processes run already"' in shell.aos.run("logs", "shell").out
    assert shell.call("run_shell_command", command="echo still") == "still\n"
    assert json.loads(shell.call("read_process_logs", id=number))["running"], "a quota ends nothing"
    shell.kill(number)
    shell.kill(shell.spawn(nap))
    shell.aos.run("quota", "set", "--processes", "8")


def test_abi_27_a_cancel_takes_the_children_of_that_call_alone(shell: Shell, nap: str) -> None:
    """By its id, by Ctrl-C, and of a call that is over but for its child."""
    number = shell.spawn(f"echo other; {nap}1 & wait")
    shell.logs(number, "other")
    for how in ("id", "Ctrl-C"):
        polite = f"trap 'echo {how} > {how}; exit 0' INT; {nap}2 & wait; {nap}2"
        client = shell.begin(command=polite)
        wait_until(lambda: len(sleeping(f"{nap}2")) == 1, "it sleeps")
        if how == "id":
            [call] = shell.aos.run("tool", "calls", "--json").json
            shell.aos.run("tool", "cancel", call["call_id"])
        else:
            client.send_signal(signal.SIGINT)
        _, err = client.communicate(timeout=COMMAND_TIMEOUT_S)
        assert client.returncode == (1 if how == "id" else 130), err
        wait_until(lambda: sleeping(f"{nap}2") == [], "what it started is gone")
        assert (shell.aos.folder / how).read_text() == f"{how}\n", "it was asked first"
        assert len(sleeping(f"{nap}1")) == 1, "the child of another call goes on"
        assert json.loads(shell.call("read_process_logs", id=number))["running"] is True
    stubborn = shell.begin(command=f"trap '' INT; {nap}3 & wait; {nap}3")
    wait_until(lambda: len(sleeping(f"{nap}3")) == 1, "it sleeps")
    [call] = shell.aos.run("tool", "calls", "--json").json
    shell.aos.run("tool", "cancel", call["call_id"])
    stubborn.communicate(timeout=COMMAND_TIMEOUT_S)
    wait_until(lambda: sleeping(f"{nap}3") == [], "who does not listen is killed")
    spawned = shell.aos.run(
        *("tool", "call", "spawn_background_process", "--input", json.dumps({"command": f"{nap}4"})),
        *("--format", "json"),
    ).json
    wait_until(lambda: len(sleeping(f"{nap}4")) == 1, "it sleeps")
    shell.aos.run("tool", "cancel", spawned["call_id"])
    wait_until(lambda: sleeping(f"{nap}4") == [], "the child of a call that is over is gone")
    assert "no tool call with the id" in shell.aos.run("tool", "cancel", spawned["call_id"], status=1).err


def test_abi_27_a_capsule_that_goes_and_a_daemon_that_stops_take_theirs_along(shell: Shell, nap: str) -> None:
    shell.spawn(f"{nap} & wait")
    wait_until(lambda: len(sleeping(nap)) == 1, "it sleeps")
    shell.aos.run("restart")
    assert sleeping(nap) == []
    shell.spawn(f"{nap} & wait")
    wait_until(lambda: len(sleeping(nap)) == 1, "it sleeps")
    shell.aos.run("capsule", "remove", "shell")
    wait_until(lambda: sleeping(nap) == [], "it ends with its capsule")


@pytest.fixture(params=WALLS)
def walls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """With bubblewrap, and on a machine that has none, where the operator does without."""
    extra: dict[str, str] = {}
    if request.param == "bare":
        bin_folder = tmp_path / "bin"
        bin_folder.mkdir()
        for name in NEEDED:
            found = shutil.which(name)
            assert found is not None
            (bin_folder / name).symlink_to(found)
        extra["PATH"] = str(bin_folder)
    made = Shell(tmp_path, extra)
    if request.param == "bare":
        made.aos.home.etc.mkdir(parents=True)
        made.aos.home.config_file.write_text("[process]\nunsandboxed = true\n", encoding="utf-8")
    made.aos.run("capsule", "install", str(BUNDLED), "--approve-untrusted")
    yield made
    made.aos.close()


def test_what_a_killed_daemon_leaves_is_ended_at_the_next_start(walls: Shell, nap: str) -> None:
    walls.allow()
    walls.aos.run("start")
    walls.spawn(f"{nap} & wait")
    wait_until(lambda: len(sleeping(nap)) == 1, "it sleeps")
    walls.aos.kill_daemon()
    walls.aos.run("start")
    wait_until(lambda: sleeping(nap) == [], "nothing is left of it")
    assert walls.call("run_shell_command", command="echo again") == "again\n"
    assert os.listdir(walls.aos.home.children) == ["mark"]  # noqa: PTH208
