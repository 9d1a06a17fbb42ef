"""`aos logs`: from disk, merged, filtered, followed (cases LOG-05, LOG-09, LOG-10)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.log_lines import render_line
from tests.cli.conftest import RunAos

ROOT = Path(__file__).resolve().parents[3]
START_S = 1_800_000_000.0
HOSTILE = "ok\n2026-01-01T00:00:00Z INFO daemon: capsule approved\x1b[2J"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def write_log(path: Path, origin: str, *records: tuple[float, str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [render_line(START_S + offset, level, origin, message) for offset, level, message in records]
    path.write_bytes(b"".join(lines))


@pytest.fixture
def logged(home: Home) -> Home:
    default = PrincipalName("default")
    write_log(home.daemon_log, "_daemon", (0, "INFO", "starting"), (4, "ERROR", "[alpha] it broke"))
    write_log(
        home.capsule_log(default, CapsuleName("alpha")),
        "alpha",
        (1, "INFO", "first"),
        (3, "WARN", "took 17 ms"),
    )
    write_log(home.capsule_log(default, CapsuleName("beta")), "beta", (2, "DEBUG", HOSTILE))
    write_log(home.capsule_log(PrincipalName("bob"), CapsuleName("gamma")), "gamma", (2.5, "INFO", "of bob"))
    return home


def test_the_daemon_s_log_without_a_name(run_aos: RunAos, logged: Home) -> None:
    assert run_aos("logs").out == (
        "2027-01-15 08:00:00.000 INFO  [_daemon] starting\n"
        "2027-01-15 08:00:04.000 ERROR [_daemon] [alpha] it broke\n"
    )


def test_log_05_all_are_merged_by_time_and_a_record_is_one_line(run_aos: RunAos, logged: Home) -> None:
    assert run_aos("logs", "--all").out == (
        "2027-01-15 08:00:00.000 INFO  [_daemon] starting\n"
        "2027-01-15 08:00:01.000 INFO  [alpha] first\n"
        "2027-01-15 08:00:02.000 DEBUG [beta] "
        "ok\\n2026-01-01T00:00:00Z INFO daemon: capsule approved\\x1b[2J\n"
        "2027-01-15 08:00:03.000 WARN  [alpha] took 17 ms\n"
        "2027-01-15 08:00:04.000 ERROR [_daemon] [alpha] it broke\n"
    )


def messages(run_aos: RunAos, *words: str) -> list[str]:
    out = run_aos("logs", *words, "--json").out
    return [json.loads(line)["message"] for line in out.splitlines()]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["alpha"], ["first", "took 17 ms"]),
        (["alpha", "beta", "-n", "2"], [HOSTILE, "took 17 ms"]),
        (["alpha", "-n", "0"], []),
        (["--all", "--level", "warn"], ["took 17 ms", "[alpha] it broke"]),
        (["--all", "--grep", r"took \d+"], ["took 17 ms"]),
        (["--all", "--since", "2027-01-15T08:00:03Z"], ["took 17 ms", "[alpha] it broke"]),
        (["--all", "--until", "2027-01-15T08:00:01Z"], ["starting", "first"]),
        (["--all-principals", "--level", "info", "--grep", "bob"], ["of bob"]),
    ],
)
def test_filters(run_aos: RunAos, logged: Home, words: list[str], found: list[str]) -> None:
    assert messages(run_aos, *words) == found


def test_another_principal_s_capsule(run_aos: RunAos, logged: Home) -> None:
    assert messages(run_aos, "--principal", "bob", "gamma") == ["of bob"]
    assert run_aos("logs", "gamma").status == 1


def test_records_of_others_say_whose_they_are(run_aos: RunAos, logged: Home) -> None:
    others = run_aos("logs", "--all-principals", "--grep", "bob").out
    assert others.endswith(" INFO  [bob/gamma] of bob\n")
    assert '"principal":"bob"' in run_aos("logs", "--all-principals", "--grep", "bob", "--json").out
    assert '"principal":null' in run_aos("logs", "-n", "1", "--json").out


def test_records_for_programs_have_utc_times(run_aos: RunAos, logged: Home) -> None:
    assert run_aos("logs", "alpha", "-n", "1", "--json").out == (
        '{"time":"2027-01-15T08:00:03.000Z","level":"WARN","principal":"default","origin":"alpha",'
        '"message":"took 17 ms"}\n'
    )


def test_each_capsule_has_a_colour_of_its_own(run_aos: RunAos, logged: Home) -> None:
    out = run_aos("logs", "alpha", "-n", "1", "--color", "always").out
    assert out == (
        "\x1b[2m2027-01-15 08:00:03.000\x1b[0m \x1b[33mWARN \x1b[0m \x1b[36m[alpha]\x1b[0m took 17 ms\n"
    )


@pytest.mark.parametrize("name", ["../../secrets/demo", "/etc/passwd", "a b", "_daemon"])
def test_log_09_a_name_is_checked_before_it_becomes_a_path(run_aos: RunAos, logged: Home, name: str) -> None:
    ended = run_aos("logs", name)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("error: invalid capsule name ")


def test_log_09_an_unknown_capsule_names_the_nearest(run_aos: RunAos, logged: Home) -> None:
    assert run_aos("logs", "alpa").err == (
        "error: capsule `alpa` is not installed for principal `default`\nhint: did you mean `alpha`?\n"
    )


def test_log_09_a_known_capsule_that_is_silent(run_aos: RunAos, home: Home) -> None:
    links = home.installed(PrincipalName("default"))
    links.mkdir(parents=True)
    (links / "quiet").symlink_to("nowhere")
    ended = run_aos("logs", "quiet")
    assert (ended.status, ended.out, ended.err) == (0, "", "No log yet.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--level", "loud"],
            "invalid value for --level: 'loud' is not one of trace, debug, info, warn, error",
        ),
        (
            ["--grep", "("],
            "invalid value for --grep: not a regular expression: missing ), "
            "unterminated subpattern at position 0",
        ),
        (["--lines", "-1"], "invalid value for '--lines' / '-n': '-1' is out of range: at least 0"),
    ],
)
def test_wrong_filters_are_usage_errors(run_aos: RunAos, words: list[str], message: str) -> None:
    ended = run_aos("logs", *words)
    assert (ended.status, ended.err.splitlines()[0]) == (2, f"error: {message}")


@pytest.mark.slow
def test_log_10_following_a_log_to_come(home: Home) -> None:
    path = home.capsule_log(PrincipalName("default"), CapsuleName("demo"))
    links = home.installed(PrincipalName("default"))
    links.mkdir(parents=True)
    (links / "demo").symlink_to("nowhere")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runtime")])}
    follower = subprocess.Popen(
        [sys.executable, "-m", "aos_cli", "logs", "demo", "-f"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None and follower.stderr is not None
    try:
        assert follower.stderr.readline() == "No log yet; waiting for the first record.\n"
        write_log(path, "demo", (0, "INFO", "here"))
        assert follower.stdout.readline().endswith(" INFO  [demo] here\n")
        path.rename(path.with_suffix(".old"))
        write_log(path, "demo", (1, "INFO", "after rotation"))
        assert follower.stdout.readline().endswith(" INFO  [demo] after rotation\n")
        follower.send_signal(2)
        assert (follower.wait(timeout=10), follower.stderr.read()) == (130, "")
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()
        follower.stderr.close()
