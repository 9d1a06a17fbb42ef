"""astrid:sys: its functions on plain values."""

from __future__ import annotations

from typing import Any

import pytest

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.errors import Unavailable
from aos_runtime.host import Err
from aos_runtime.host.factors import sys
from tests.support.guests import Recorder, envelope_from


def call(recorder: Recorder, name: str, *arguments: Any, **ports: Any) -> Any:
    return sys.FUNCTIONS[name].run(recorder.context(**ports), *arguments)


@pytest.mark.parametrize("size", [0, 1, 4096])
def test_abi_35_entropy(recorder: Recorder, size: int) -> None:
    first, second = call(recorder, "random-bytes", size), call(recorder, "random-bytes", size)
    assert len(first) == size
    assert size < 16 or first != second


@pytest.mark.parametrize("size", [4097, 100_000_000, 2**64 - 1])
def test_abi_35_too_much_entropy_is_an_error_value(recorder: Recorder, size: int) -> None:
    assert call(recorder, "random-bytes", size) == Err("too-large")


def test_config(recorder: Recorder) -> None:
    assert call(recorder, "get-config", "city") == "Zürich"
    assert call(recorder, "get-config", "none") is None


def test_abi_09_a_url_has_no_json_quotes(recorder: Recorder) -> None:
    assert call(recorder, "get-config", "url", config={"url": "http://h:1/"}.get) == "http://h:1/"


def test_a_config_that_cannot_be_read_is_an_error_value(recorder: Recorder) -> None:
    def fail(_key: str) -> str:
        raise Unavailable("file-operation-failed", "cannot use secrets", hint="look")

    assert call(recorder, "get-config", "key", config=fail) == Err("unknown", "cannot use secrets")


def test_the_caller_is_that_of_the_invocation(recorder: Recorder) -> None:
    assert call(recorder, "get-caller") == {"principal": None, "source-id": "", "timestamp": ""}
    for principal in ("alice", None):
        assert call(recorder, "get-caller", current=envelope_from(principal)) == {
            "principal": principal,
            "source-id": "99999999-2222-3333-4444-555555555555",
            "timestamp": "2026-07-25T17:20:00.123+00:00",
        }


def test_log_passes_level_and_message(recorder: Recorder) -> None:
    call(recorder, "log", "warn", "two\nlines \x1b[31m")
    assert recorder.logged == [("warn", "two\nlines \x1b[31m")]


def test_log_08_a_long_message_is_cut_and_says_so(recorder: Recorder) -> None:
    call(recorder, "log", "info", "ü" * 500_000)
    call(recorder, "log", "info", "x" * sys.MAX_LOG_BYTES)
    (_, cut), (_, whole) = recorder.logged
    assert cut == "ü" * 32_768 + " [cut: 1000000 bytes]"
    assert whole == "x" * 65_536


def test_clocks(recorder: Recorder) -> None:
    assert call(recorder, "clock-ms") == 1_785_000_000_123
    assert call(recorder, "clock-monotonic-ns") == 42


def test_sleep(recorder: Recorder) -> None:
    waits: list[object] = []
    ports = {"before_block": lambda: waits.append("way"), "sleep": lambda s: waits.append(s) or s < 60}
    assert call(recorder, "sleep-ns", 1_500_000_000, **ports) is None
    assert call(recorder, "sleep-ns", 60_000_000_000, **ports) == Err("cancelled")
    assert call(recorder, "sleep-ns", 60_000_000_001, **ports) == Err("too-large")
    assert waits == ["way", 1.5, "way", 60.0]


def test_a_sleep_is_a_wait_of_a_run_loop(recorder: Recorder) -> None:
    yields: list[int] = []
    ports = {"sleep": lambda s: True, "yielded": lambda: yields.append(1)}
    call(recorder, "sleep-ns", 0, **ports)
    call(recorder, "sleep-ns", 1_000_000, **ports)
    assert len(yields) == 2


def test_ready(recorder: Recorder) -> None:
    said: list[str] = []
    call(recorder, "signal-ready", signal_ready=lambda: said.append("ready"))
    assert said == ["ready"]


def test_capabilities(recorder: Recorder) -> None:
    held = Capabilities(uplink=True, fs_read=("home://",))
    assert call(recorder, "enumerate-capabilities", capabilities=held) == ["fs_read", "uplink"]
    assert call(recorder, "enumerate-capabilities") == []


def test_the_capability_of_another_capsule(recorder: Recorder) -> None:
    request = {"source-uuid": "u", "capability": "net"}
    assert call(recorder, "check-capsule-capability", request) == Err("registry-unavailable")
    for allowed in (True, False):
        answer = call(
            recorder,
            "check-capsule-capability",
            request,
            has_capability=lambda uuid, name, yes=allowed: (uuid, name) == ("u", "net") and yes,
        )
        assert answer == {"allowed": allowed}
