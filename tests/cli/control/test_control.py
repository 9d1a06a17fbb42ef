"""aos_cli.control.start and daemon_stop with stand-in daemon processes (cases DMN-06, DMN-07, DMN-10).

The stand-ins hold the real lock and write the real run files, and then misbehave.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aos_cli.control import start as daemon_start
from aos_cli.control.fence import hold_fence
from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.store.run import Liveness, liveness
from tests.cli.conftest import RunAos

ROOT = Path(__file__).resolve().parents[2]
PREAMBLE = """
import os, signal, sys, time
from pathlib import Path
from aos_runtime.home import resolve_home
from aos_runtime.store.run import RunFiles
home = resolve_home(os.environ)
files = RunFiles(home)
"""
SERVING = (
    PREAMBLE
    + """
from tests.support.fake_daemon import FakeDaemon
files.acquire()
files.write_pid()
done = []
def answer(topic, payload):
    if ".shutdown." in topic and {obeys}:
        done.append(topic)
    return {{"status": "Success", "data": {{"status": "shutting_down"}}}}
for number in (signal.SIGTERM,):
    signal.signal(number, signal.SIG_DFL if {terminates} else signal.SIG_IGN)
with FakeDaemon(home, answer):
    files.write_ready(Path("/"))
    while not done:
        time.sleep(0.01)
files.clear()
"""
)

Spawn = Callable[[str], None]


@pytest.fixture
def as_daemon(monkeypatch: pytest.MonkeyPatch, home: Home) -> Iterator[Spawn]:
    """`as_daemon(program)`: `aos start` runs that program as the daemon.  Killed at the end, by pid."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "runtime")]))
    home.etc.mkdir(parents=True)
    home.layout_file.write_text("aos-1\n", encoding="ascii")
    home.config_file.write_text("[timeouts]\ndaemon_shutdown_secs = 1\n", encoding="ascii")

    def use(program: str) -> None:
        monkeypatch.setattr(daemon_start, "serve_command", lambda **_options: [sys.executable, "-c", program])

    yield use
    if home.pid_file.exists():
        pid = int(home.pid_file.read_text(encoding="ascii").splitlines()[0])
        if liveness(home) in (Liveness.RUNNING, Liveness.STARTING):
            os.kill(pid, signal.SIGKILL)


def pid_of(home: Home) -> int:
    return int(home.pid_file.read_text(encoding="ascii").splitlines()[0])


@pytest.mark.slow
def test_start_stop_and_what_they_say(run_aos: RunAos, home: Home, as_daemon: Spawn) -> None:
    as_daemon(SERVING.format(obeys=True, terminates=True))
    started = run_aos("start")
    pid = pid_of(home)
    assert (started.status, started.out, started.err) == (
        0,
        "",
        f"Starting the daemon ...\n✓ The daemon is running (pid {pid}).\n",
    )
    again = run_aos("start", "--ephemeral", "--json")
    assert again.json == {"state": "running", "pid": pid, "was_running": True}
    stopped = run_aos("stop")
    assert stopped.err == f"Stopping the daemon ...\n✓ The daemon has stopped (pid {pid}).\n"
    assert run_aos("stop", "--json").json == {"state": "stopped", "pid": None, "ending": "not-running"}
    assert run_aos("stop").err == "✓ The daemon is not running.\n"


@pytest.mark.slow
def test_dmn_07_a_daemon_that_acknowledges_and_hangs_is_ended_and_that_is_said(
    run_aos: RunAos, home: Home, as_daemon: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aos_cli.control.stop._SIGNAL_GRACE_S", 0.5)
    as_daemon(SERVING.format(obeys=False, terminates=False))
    run_aos("start")
    pid = pid_of(home)
    stopped = run_aos("stop")
    assert (stopped.status, stopped.err) == (
        0,
        "Stopping the daemon ...\n"
        f"warning: the daemon (pid {pid}) did not end within 1 s of being asked\n"
        f"Sending SIGTERM to process {pid}.\n"
        f"Sending SIGKILL to process {pid}.\n"
        f"✓ The daemon was ended with SIGKILL (pid {pid}).\n",
    )
    assert liveness(home) is Liveness.STOPPED
    assert not home.socket.exists()


@pytest.mark.slow
def test_a_daemon_that_dies_while_starting_shows_its_last_words(
    run_aos: RunAos, home: Home, as_daemon: Spawn
) -> None:
    as_daemon("import sys; sys.exit('no room \\x1b[2J on the disk')")
    ended = run_aos("start")
    assert (ended.status, ended.err) == (
        1,
        "Starting the daemon ...\n"
        "error: the daemon exited with status 1 while it was starting\n"
        "  no room \\x1b[2J on the disk\n"
        f"hint: look at {home.daemon_log}\n",
    )
    as_daemon("import os; os.kill(os.getpid(), 9)")
    assert run_aos("start", "--json").error["message"] == (
        "the daemon was ended by SIGKILL while it was starting"
    )


@pytest.mark.slow
def test_a_daemon_that_never_gets_ready_is_left_alone_and_said(
    run_aos: RunAos, home: Home, as_daemon: Spawn
) -> None:
    home.config_file.write_text("[timeouts]\ndaemon_ready_secs = 1\n", encoding="ascii")
    as_daemon(PREAMBLE + "files.acquire(); files.write_pid(); time.sleep(30)")
    ended = run_aos("start", "--json")
    assert ended.error["code"] == "daemon-start-timeout"
    pid = pid_of(home)
    os.kill(pid, 0)
    assert run_aos("status", "--json").json["state"] == "starting"
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_dmn_06_a_pid_that_is_another_process_now_is_never_signalled(
    run_aos: RunAos, home: Home, as_daemon: Spawn
) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        home.run.mkdir(parents=True)
        home.pid_file.write_text(f"{sleeper.pid}\n{sys.executable}\n{'ab' * 16}\n", encoding="ascii")
        ended = run_aos("stop")
        assert (ended.status, ended.err) == (0, "✓ The daemon is not running.\n")
        assert sleeper.poll() is None
        assert not home.pid_file.exists(), "what is stale is swept"
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.slow
def test_dmn_10_the_daemon_holds_nothing_of_its_starter(
    run_aos: RunAos, home: Home, as_daemon: Spawn, tmp_path: Path
) -> None:
    report = tmp_path / "descriptors"
    program = SERVING.format(obeys=True, terminates=True).replace(
        "files.acquire()",
        f"Path({str(report)!r}).write_text(repr([os.readlink(f'/proc/self/fd/{{n}}') for n in (0, 1)] + "
        "[os.getcwd(), os.getsid(0) == os.getpid()])); files.acquire()",
    )
    as_daemon(program)
    run_aos("start")
    assert report.read_text(encoding="utf-8") == "['/dev/null', '/dev/null', '/', True]"
    run_aos("stop")


def test_the_fence_lets_one_in_at_a_time(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with hold_fence(home, timeout_s=1):
        with pytest.raises(AosError) as refused, hold_fence(home, timeout_s=0.01):
            pass
        with hold_fence(Home(tmp_path / "other"), timeout_s=0.01):
            pass
    assert refused.value.code == "start-busy"
    with hold_fence(home, timeout_s=0.01):
        pass


def test_a_fence_folder_that_others_can_write_is_refused(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / f"aos-start-fences-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(AosError) as refused, hold_fence(home, timeout_s=0.01):
        pass
    assert refused.value.code == "fence-foreign"


@pytest.mark.slow
def test_a_mistake_in_the_configuration_does_not_keep_the_daemon_from_stopping(
    run_aos: RunAos, home: Home, as_daemon: Spawn
) -> None:
    as_daemon(SERVING.format(obeys=True, terminates=True))
    run_aos("start")
    home.config_file.write_text("nonsense = 1\n", encoding="ascii")
    stopped = run_aos("stop")
    assert (stopped.status, "using the defaults" in stopped.err) == (0, True)
    assert liveness(home) is Liveness.STOPPED


@pytest.mark.slow
def test_who_may_not_stop_it_gets_no_signal_sent_either(
    run_aos: RunAos, home: Home, as_daemon: Spawn
) -> None:
    as_daemon(SERVING.format(obeys=True, terminates=True))
    run_aos("start")
    refused = run_aos("--principal", "bob", "stop", "--json")
    assert (refused.status, refused.error["code"]) == (1, "principal-key-missing")
    assert liveness(home) is Liveness.RUNNING
    assert run_aos("stop").status == 0
