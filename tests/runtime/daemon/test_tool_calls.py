"""Calls through a real daemon and the real router: whatever a tool does, its caller gets one timely answer.

Every capsule here has one tool of its own name; `aos_runtime` runs in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store.layout import open_home
from tests.support.answering_guests import DOZE, HERE, SPIN, Answer, answering_guest
from tests.support.installation import ROOT
from tests.support.sockets import NIL, Client, connected, running
from tests.support.tool_guests import archive_of, install

pytestmark = pytest.mark.journey

OTHER = "f" * 32
PROMPT_S = 3.0
"""What must be at once: far under every deadline here, far over what a busy machine needs."""
DIED = "capsule '{}' gave no answer: interceptor execution failed: it panicked or aborted"

GUESTS = {
    "good": answering_guest("good", [Answer(HERE, "good")]),
    "trap": answering_guest("trap", first="unreachable"),
    "late-trap": answering_guest("late-trap", [Answer(HERE, "before it died")], then="unreachable"),
    "spin": answering_guest("spin", first=SPIN),
    "doze": answering_guest("doze", first=DOZE),
    "other": answering_guest("other", [Answer(OTHER, "for somebody else")]),
    "twice": answering_guest("twice", [Answer(HERE, "first"), Answer(HERE, "second")]),
    "never": answering_guest("never"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("calls")
    made = Home(folder / "home")
    open_home(made, create=True)
    for name, wasm in GUESTS.items():
        row = f'"tool.v1.execute.{name}" = {{ wit = "opaque", handler = "tool_execute_{name}" }}\n'
        install(made, folder, name, archive_of(made, name, wasm, row))
    with running(made):
        yield made


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    with connected(home) as made:
        yield made


def call(client: Client, name: str, timeout_s: float = 30.0) -> Any:
    return client.tools("call", {"name": name, "timeout_s": timeout_s})


def start(client: Client, name: str, corr: str, timeout_s: float = 30.0) -> None:
    """Send a call and wait for nothing."""
    params = {"name": name, "timeout_s": timeout_s}
    topic = f"astrid.v1.request.tools.call.{corr}"
    client.send({"topic": topic, "payload": {"type": "raw_json", "params": params}, "source_id": NIL})


def answer_to(client: Client, corr: str) -> Any:
    """The next frame about that call which is no `Working`."""
    while True:
        frame = client.read()
        if frame["topic"].endswith(corr) and frame["payload"]["status"] != "Working":
            return frame["payload"]


def running_calls(client: Client, count: int) -> list[Any]:
    """The calls in flight, once there are that many."""
    deadline = time.monotonic() + 10
    while True:
        rows = client.tools("calls")["data"]
        if len(rows) == count:
            return list(rows)
        assert time.monotonic() < deadline, rows
        time.sleep(0.01)


def outcome(reply: Any) -> tuple[str, bool]:
    assert reply["status"] == "Success", reply
    return reply["data"]["content"], reply["data"]["is_error"]


@pytest.mark.parametrize(
    ("name", "content", "is_error"),
    [
        ("good", "good", False),
        ("twice", "first", False),
        ("trap", DIED.format("trap"), True),
        ("late-trap", DIED.format("late-trap"), True),  # its failure overtakes the result on its way
    ],
)
def test_the_answer(client: Client, name: str, content: str, is_error: bool) -> None:
    for _ in range(3):
        assert outcome(call(client, name)) == (content, is_error)
    assert outcome(call(client, "good")) == ("good", False)


@pytest.mark.parametrize("name", ["never", "other", "spin", "doze"])
def test_a_result_that_never_comes_is_an_error_at_the_deadline(client: Client, name: str) -> None:
    began = time.monotonic()
    assert call(client, name, 0.5) == {
        "status": "Error",
        "data": f"tool '{name}' did not answer within 0.5 s",
    }
    assert 0.5 <= time.monotonic() - began < PROMPT_S
    assert running_calls(client, 0) == []


def test_a_tool_that_no_capsule_serves(client: Client) -> None:
    assert call(client, "zzz") == {"status": "Error", "data": "no tool is called 'zzz'"}


def test_a_second_result_answers_nobody_elses_call(home: Home, client: Client) -> None:
    start(client, "never", "waits", 1.0)
    assert outcome(call(client, "twice")) == ("first", False)
    assert answer_to(client, "waits")["data"] == "tool 'never' did not answer within 1 s"


@pytest.mark.parametrize("name", ["spin", "doze"])
def test_a_cancel_stops_the_guest_and_its_queue_goes_on(home: Home, client: Client, name: str) -> None:
    before = stops(home, name)
    for number in range(3):
        start(client, name, f"{name}-{number}")
    with connected(home) as other:
        rows = running_calls(other, 3)
        for number, row in enumerate(rows):
            began = time.monotonic()
            assert other.tools("cancel", {"call_id": row["call_id"]})["data"] == {"cancelled": True}
            reply = answer_to(client, f"{name}-{number}")
            assert time.monotonic() - began < PROMPT_S
            assert reply == {"status": "Error", "data": f"the call of tool '{name}' was cancelled"}
            assert outcome(call(other, "good")) == ("good", False)
        assert other.tools("cancel", {"call_id": rows[0]["call_id"]})["data"] == {"cancelled": False}
        wait_stops(home, name, before + 1)


def stops(home: Home, name: str) -> int:
    """How many guests of the capsule were stopped by a cancel so far."""
    path = home.capsule_log(DEFAULT_PRINCIPAL, CapsuleName(name))
    return path.read_text().count("stopped (cancelled)") if path.exists() else 0


def wait_stops(home: Home, name: str, count: int) -> None:
    deadline = time.monotonic() + 10
    while stops(home, name) < count:
        assert time.monotonic() < deadline, f"{name} was stopped {stops(home, name)} times"
        time.sleep(0.01)


def test_a_cancel_by_its_own_client_and_a_disconnect_stop_the_guest(home: Home, client: Client) -> None:
    before = stops(home, "spin")
    start(client, "spin", "mine")
    running_calls(client, 1)
    assert client.tools("cancel", {"corr": "mine"})["data"] == {"cancelled": True}
    wait_stops(home, "spin", before + 1)
    with connected(home) as leaving:
        start(leaving, "spin", "left")
        running_calls(client, 1)
    wait_stops(home, "spin", before + 2)


def test_while_one_call_is_cancelled_those_of_other_capsules_go_on(home: Home) -> None:
    stop, problems, done = threading.Event(), [], []

    def work() -> None:
        with connected(home) as worker:
            while not stop.is_set():
                result = outcome(call(worker, "good"))
                (done if result == ("good", False) else problems).append(result)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    with connected(home) as client:
        for number in range(8):
            start(client, "spin", f"c{number}")
            client.tools("cancel", {"corr": f"c{number}"})
    stop.set()
    for thread in threads:
        thread.join(30)
    assert problems == [] and len(done) >= 8


def test_ctrl_c_cancels_the_call_and_the_next_one_is_served(home: Home, client: Client) -> None:
    before = stops(home, "spin")
    command = [sys.executable, "-P", "-m", "aos_cli", "tool", "call", "spin", "--no-start"]
    environ = {**os.environ, "AOS_HOME": str(home.root), "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}"}
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        running_calls(client, 1)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=10)
        assert (process.returncode, out) == (130, b"")
        assert time.monotonic() - began < PROMPT_S
    finally:
        process.kill()
        process.wait()
    wait_stops(home, "spin", before + 1)


def test_tool_calls_and_tool_cancel(home: Home, client: Client) -> None:
    start(client, "spin", "shown")
    [row] = running_calls(client, 1)

    def aos(*words: str) -> tuple[int, str, str]:
        environ = {**os.environ, "AOS_HOME": str(home.root), "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}"}
        command = [sys.executable, "-P", "-m", "aos_cli", "tool", *words]
        run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        return run.returncode, run.stdout, run.stderr

    status, out, _ = aos("calls")
    lines = out.splitlines()
    assert (status, lines[0].split()) == (0, ["CALL", "ID", "TOOL", "CAPSULE", "RUNNING", "TIMEOUT"])
    assert lines[1].split()[:3] == [row["call_id"], "spin", "spin"] and lines[1].endswith("30.0 s")
    assert aos("cancel", row["call_id"]) == (0, "", f"✓ Cancelled the call {row['call_id']}.\n")
    assert answer_to(client, "shown")["status"] == "Error"
    assert aos("cancel", row["call_id"]) == (
        1,
        "",
        f"error: no tool call with the id '{row['call_id']}' runs\n"
        "hint: it may have ended; `aos tool calls` lists what runs\n",
    )
