"""Figures are drawn with their target beside them, and one that falls short is said and counted."""

from __future__ import annotations

import json
import re

from bench.report import Figure, render_json, render_table
from bench.targets import MEASURES, TARGETS

CONDITIONS = {"date": "2026-01-01 00:00 UTC", "published": "absent"}
GOOD = Figure(key="call_p50", runs=(0.2, 0.1, 0.3, 0.25, 0.15))
SLOW = Figure(key="load_8_rate", runs=(8000.0, 8100.0, 7900.0), published=450.0)


def test_the_table_shows_median_spread_target_and_the_published_value() -> None:
    drawn = render_table([GOOD, SLOW], CONDITIONS).splitlines()
    assert drawn[:3] == ["date: 2026-01-01 00:00 UTC", "published: absent", ""]
    assert [re.split(r" {2,}", line) for line in drawn[3:]] == [
        ["figure", "median", "spread", "target", "published"],
        ["one tool call, p50", "0.2 ms", "0.1 to 0.3", "< 0.4 ms", "ok", "absent"],
        ["8 clients", "8,000 calls/s", "7,900 to 8,100", ">= 9,000 calls/s", "FALLS SHORT", "450 calls/s"],
    ]


def test_the_json_says_whether_all_targets_are_met() -> None:
    document = json.loads(render_json([GOOD, SLOW], CONDITIONS))
    assert document["met"] is False
    assert [(row["key"], row["median"], row["met"], row["published"]) for row in document["figures"]] == [
        ("call_p50", 0.2, True, "absent"),
        ("load_8_rate", 8000.0, False, 450.0),
    ]
    assert json.loads(render_json([GOOD], CONDITIONS))["met"] is True


def test_a_rate_must_reach_its_target_and_a_time_stay_below() -> None:
    assert TARGETS["load_8_rate"].is_met(9000) and not TARGETS["load_8_rate"].is_met(8999)
    assert TARGETS["boot_ready"].is_met(0.499) and not TARGETS["boot_ready"].is_met(0.5)


def test_every_measure_has_a_target() -> None:
    assert MEASURES == ("hook", "call", "load", "boot", "install", "build", "status", "payload", "kv")
