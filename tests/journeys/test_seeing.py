"""Seeing the bus of a real daemon: its own capsules, one that lies to the terminal, and one that floods."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.home import Home
from tests.support.guests import CONTINUE, IPC, PUBLISH_IMPORT, component_of, guest_text, world_of
from tests.support.installation import Aos, wait_until
from tests.support.sockets import Client, connected, running
from tests.support.tool_guests import archive_of, install, without_bundled

pytestmark = pytest.mark.journey

FLOOD = 20_000
HOSTILE_TOPIC = "evil.\x1b[2J\x1b[31mapprove"
HOSTILE_PAYLOAD = json.dumps({"\x1b[2Jkey": "\x1b]0;title\x07", "api_key": "sk-very-secret"}).encode()
SPY_TOPIC = "astrid.v1.request.events.publish.spy"
SPY_PAYLOAD = json.dumps(
    {"type": "raw_json", "method": "EventsPublish", "params": {"topic": "spied.on", "payload": {}}}
).encode()
IPC_PACKAGE = """package astrid:ipc@1.0.0 {
  interface host {
    variant error-code { capability-denied, invalid-input, closed, rate-limited, backpressure, quota, timeout,
                         unknown(string) }
    publish: func(topic: string, payload: string) -> result<_, error-code>;
  }
}"""


def speaking_guest(topic: str, payload: bytes, times: int) -> bytes:
    """A component that publishes `payload` on `topic` so many times in every hook."""
    words = topic.encode()
    body = f"""(local.set $i (i32.const {times}))
      (loop $again
       (call $publish (i32.const 8192) (i32.const {len(words)}) (i32.const 9000) (i32.const {len(payload)})
        (i32.const 512))
       (local.set $i (i32.sub (local.get $i) (i32.const 1)))
       (br_if $again (local.get $i)))"""
    data = "".join(
        f'(data (i32.const {at}) "{"".join(f"{chr(92)}{byte:02x}" for byte in text)}")'
        for at, text in ((8192, words), (9000, payload))
    )
    text = guest_text(body + CONTINUE, imports=PUBLISH_IMPORT, more=data, pages="2")
    return component_of(text, world_of(IPC, packages=IPC_PACKAGE))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A daemon with a capsule that paints and one that floods, each on a topic of its own."""
    made = Home(tmp_path / "home")
    without_bundled(made)
    for name, topic, payload, times in (
        ("painter", HOSTILE_TOPIC, HOSTILE_PAYLOAD, 1),
        ("flooder", "flood.x", b'{"n":1}', FLOOD),
        ("spy", SPY_TOPIC, SPY_PAYLOAD, 1),
    ):
        rows = f'"start.{name}" = {{ wit = "opaque", handler = "handle" }}\n'
        wasm = speaking_guest(topic, payload, times)
        extra = '"evil.*" = "opaque"\n"flood.*" = "opaque"\n"astrid.v1.request.*" = "opaque"\n'
        install(made, tmp_path, name, archive_of(made, name, wasm, rows, extra=extra))
    with running(made):
        yield made


def events(client: Client, verb: str, corr: str = "c1", **params: object) -> None:
    topic = f"astrid.v1.request.events.{verb}.{corr}"
    client.send({"topic": topic, "payload": {"type": "raw_json", "params": params}, "source_id": "0" * 32})


def until(client: Client, status: str) -> list[Any]:
    """The payloads up to the first with this status."""
    found = [client.read()["payload"]]
    while found[-1]["status"] != status:
        found.append(client.read()["payload"])
    return found


def test_a_call_is_seen_as_it_passes_and_afterwards_and_counted(aos: Aos) -> None:
    aos.run("start")
    watcher = watching(aos, "tool.v1.*", "-n", "4", "--json")
    assert aos.run("tool", "call", "hello", "--arg", "name=Ada").out == "Hello, Ada!\n"
    out, err = watcher.communicate(timeout=30)
    assert watcher.returncode == 0, err
    seen = [json.loads(line) for line in out.splitlines()]
    assert [(one["source"], one["topic"], one["targets"]) for one in seen] == [
        (None, "tool.v1.request.execute", ["router"]),
        ("router", "tool.v1.execute.hello", ["hello"]),
        ("hello", "tool.v1.execute.hello.result", ["router"]),
        ("router", "tool.v1.execute.result", []),
    ]
    assert all("payload" not in one and "Ada" not in json.dumps(one) for one in seen)
    assert [one["seq"] for one in seen] == sorted(one["seq"] for one in seen)
    call = aos.run("trace", "last", "--payloads", "--json").json
    assert (call["tool"], call["outcome"], call["principal"]) == ("hello", "ok", "default")
    assert call["steps"][1]["payload"]["arguments"] == {"name": "Ada"}
    what = [step["what"] for step in call["steps"] if step["what"] != "called"]
    assert what[:3] == ["received", "published", "handled"]
    assert (what.count("published"), what.count("handled"), what.count("answered")) == (4, 3, 1)
    assert "hello ran tool_execute_hello: continue" in aos.run("trace", call["call_id"]).out
    rows = aos.run("top", "--json", "--interval", "0.2").json["capsules"]
    counted = {row["capsule"]: row for row in rows}
    assert (counted["router"]["calls"], counted["hello"]["calls"]) == (2, 1)
    assert min(counted["router"]["p50_us"], counted["hello"]["p50_us"]) > 0


def watching(aos: Aos, *arguments: str) -> subprocess.Popen[str]:
    """`aos events tail` that has begun: two more commands take far longer than its first frame."""
    before = clients(aos)
    watcher = aos.start("events", "tail", *arguments)
    wait_until(lambda: clients(aos) > before, "the watcher is connected")
    aos.run("trace", "not-a-call", status=1)
    time.sleep(0.1)
    return watcher


def clients(aos: Aos) -> int:
    """Connections, the one that asks included."""
    return int(aos.run("status", "--json").json["daemon"]["connected_clients"])


def test_ctrl_c_ends_a_tail_with_130(aos: Aos) -> None:
    aos.run("start")
    watcher = watching(aos)
    watcher.send_signal(signal.SIGINT)
    _, err = watcher.communicate(timeout=20)
    assert (watcher.returncode, "Traceback" in err) == (130, False)
    wait_until(lambda: clients(aos) == 1, "the daemon forgets the watcher")


def test_a_word_and_its_answer(aos: Aos) -> None:
    aos.run("start")
    asked = '{"type":"raw_json","method":"ListCapsules"}'
    listed = aos.run("events", "request", "astrid.v1.request.x.1", asked, "--json").json
    assert listed["status"] == "Success" and {"hello", "router"} <= set(listed["data"])
    answers = ("--reply-topic", "tool.v1.response.describe.*")
    described = aos.run("events", "request", "tool.v1.request.describe", "{}", *answers, "--json").json
    assert [tool["name"] for tool in described["tools"]] == ["hello"]
    taken = aos.run("events", "pub", "nobody.hears", "{}", "--json").json
    assert taken == {"topic": "nobody.hears", "handlers": [], "taken": False}
    for topic in ("astrid.v1.response.failure.x", "astrid.v1.approval.response.x", "client.v1.connect"):
        assert aos.run("events", "pub", topic, "{}", "--json", status=1).out == ""


def test_attack_guest_text_never_paints_the_watchers_terminal(home: Home) -> None:
    aos = Aos(root=home.root.parent)
    watcher = watching(aos, "evil.*", "--payloads", "-n", "1")
    aos.run("events", "pub", "start.painter", "{}")
    out, err = watcher.communicate(timeout=30)
    assert watcher.returncode == 0, err
    assert "\x1b" not in out and "\x07" not in out
    assert "evil.\\x1b[2J\\x1b[31mapprove" in out and "\\x1b[2Jkey" in out
    assert "sk-very-secret" not in out and "[secret]" in out


def test_attack_a_capsule_cannot_use_its_principals_right_to_speak(home: Home) -> None:
    with connected(home) as watcher, connected(home) as other:
        events(watcher, "tail")
        assert until(watcher, "Tailing")
        events(other, "publish", topic="start.spy", payload={})
        assert until(other, "Success")[-1]["data"]["handlers"] == ["spy"]
        seen: list[str] = []
        while SPY_TOPIC not in seen:
            seen.append(watcher.read()["payload"]["data"]["topic"])
        events(other, "publish", corr="c2", topic="the.end", payload={})
        while seen[-1] != "the.end":
            seen.append(watcher.read()["payload"]["data"]["topic"])
        assert "spied.on" not in seen
        assert not any(topic.startswith("astrid.v1.response.events.") for topic in seen)


def test_attack_a_flood_costs_the_watcher_events_and_the_bus_nothing(home: Home) -> None:
    with connected(home) as reader, connected(home) as sleeper, connected(home) as other:
        for client in (reader, sleeper):
            events(client, "tail", pattern="flood.*")
            assert until(client, "Tailing")
        events(other, "publish", topic="start.flooder", payload={})
        assert until(other, "Success")[-1]["data"]["handlers"] == ["flooder"]
        slowest = 0.0
        for _ in range(20):
            started = time.monotonic()
            assert other.request("ListCapsules")["status"] == "Success"
            slowest = max(slowest, time.monotonic() - started)
        assert slowest < 2.0, "a request waited behind the flood"
        events(reader, "tail", corr="probe", pattern="probe.*")
        seen = lost = 0
        while seen + lost < FLOOD:
            payload = reader.read()["payload"]
            seen += payload["status"] == "Event"
            lost += payload["data"]["count"] if payload["status"] == "Dropped" else 0
        assert seen + lost == FLOOD and lost > 0 and seen >= 1024
        log = home.daemon_log.read_text()
        assert "internal fault" not in log


def test_who_has_no_rights_sees_nothing(home: Home) -> None:
    with Client(home) as client:
        assert client.hello()["status"] == "ok"  # anonymous
        for verb, params in (
            ("tail", {}),
            ("trace", {}),
            ("top", {}),
            ("publish", {"topic": "a.b", "payload": {}}),
        ):
            events(client, verb, **params)
            # An anonymous client is sent nothing that is stamped with a principal; the reply is its own.
            (reply,) = until(client, "Error")
            assert reply["data"].startswith("permission denied for principal anonymous: missing capability ")


def test_the_daemon_stops_while_somebody_watches(home: Home) -> None:
    aos = Aos(root=home.root.parent)
    with connected(home) as client:
        events(client, "tail")
        assert until(client, "Tailing")
        pid = aos.daemon_pid()
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        wait_until(
            lambda: aos.daemon_pid() is None or not home.socket.exists(), "the daemon ends", timeout_s=15
        )
