"""`scripts/soak load`: what counts as growth, and what as a wrong reply."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from bench.clients import WrongReply
from tests.soak.__main__ import telling
from tests.soak.held import SLACK, Held, leaks, least
from tests.soak.load import Greetings
from tests.soak.registry import Budget

WARM = Held(resident_bytes=100_000_000, descriptors=30, threads=8, children=1)


def test_a_long_run_says_that_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with telling("load", Budget(for_s=600), each_s=0.001):
        until = time.monotonic() + 30
        said = ""
        while not said and time.monotonic() < until:
            said = capsys.readouterr().err
    assert re.match(r"soak load: \d+ of 600 s\n", said)
    assert not any(one.name == "soak-teller" for one in threading.enumerate())


def test_what_stays_is_no_leak() -> None:
    assert leaks(WARM, replace(WARM, resident_bytes=104_999_999, descriptors=30 + SLACK)) == []


@pytest.mark.parametrize(
    ("grown", "words"),
    [
        ({"resident_bytes": 105_000_000}, "memory grew from 100.0 to 105.0 MB"),
        ({"descriptors": 31 + SLACK}, "descriptors grew from 30 to 35"),
        ({"threads": 9 + SLACK}, "threads grew from 8 to 13"),
        ({"children": 2}, "children grew from 1 to 2"),
    ],
)
def test_what_grew_is_told(grown: dict[str, Any], words: str) -> None:
    assert leaks(WARM, replace(WARM, **grown)) == [words]


def test_what_is_held_for_a_while_is_no_leak_and_a_leak_raises_the_least() -> None:
    sizes = [100_000_000, 150_000_000, 103_000_000]
    early = [replace(WARM, resident_bytes=size, children=3) for size in sizes]
    assert leaks(least(early), least(early[::-1])) == []
    late = [replace(one, resident_bytes=one.resident_bytes + 6_000_000) for one in early]
    assert leaks(least(early), least(late)) == ["memory grew from 100.0 to 106.0 MB"]


def reply(greetings: Greetings, number: int, content: str, status: str = "Success") -> bytes:
    topic = json.loads(greetings.make(number)[4:])["topic"].replace(".request.", ".response.")
    data = {"content": content, "is_error": False}
    return json.dumps({"topic": topic, "payload": {"status": status, "data": data}}).encode()


def test_each_reply_is_checked() -> None:
    greetings = Greetings()
    right = f'"Hello, {7:031d}!"'
    assert greetings.check(7, reply(greetings, 7, right))
    assert not greetings.check(7, reply(greetings, 7, "", "Working"))
    for wrong in (reply(greetings, 7, f'"Hello, {8:031d}!"'), reply(greetings, 8, right)):
        with pytest.raises(WrongReply):
            greetings.check(7, wrong)
