"""Which commands a manifest lists, and how a request is read."""

from __future__ import annotations

import pytest

from aos_runtime.policy.process_rules import (
    GRACE_S,
    MAX_GRACE_S,
    MAX_RING_BYTES,
    MIN_RING_BYTES,
    RING_BYTES,
    Limits,
    ProcessCase,
    ProcessRefused,
    check_command,
    check_spawn,
    check_suffix,
    grace_of,
    read_folder,
)
from tests.support.programs import request


@pytest.mark.parametrize(
    ("entry", "words", "covered"),
    [
        ("git", ("git",), True),
        ("git", ("git", "status"), True),
        ("git", ("git status",), False),
        ("git", ("./git",), False),
        ("git", ("/usr/bin/git",), False),
        ("git", ("GIT",), False),
        ("git", ("git ",), False),
        ("git", ("gitk",), False),
        ("git status", ("git",), False),
        ("git status", ("git", "status", "-s"), True),
        ("git status", ("git", "statusx"), False),
        ("git status", ("git", "-C", "status"), False),
        ("/opt/a b/git", ("/opt/a b/git", "x"), True),
        ("/opt/git", ("/opt/git",), True),
        ("", ("",), True),  # which is refused as no command
        ("", ("git",), False),
        (" ", ("git",), False),
    ],
)
def test_abi_25_an_entry_covers_its_words(entry: str, words: tuple[str, ...], covered: bool) -> None:
    denial = check_command((entry,), words[0], words[1:], "process.spawn")
    assert (denial is None) is covered


def test_a_denial_names_the_row_that_would_allow_it() -> None:
    denial = check_command(("a", "b"), 'x "y"', (), "process.spawn")
    assert denial is not None
    assert denial.kind == ("process.spawn", 'x "y"', "no host_process entry covers it")
    assert denial.render(repeated=2) == (
        'denied operation=process.spawn command="x \\"y\\"" case=capability-denied '
        'rule="no host_process entry covers it" '
        'allow="[capabilities] host_process = [\\"x \\\\\\"y\\\\\\"\\"]" repeated=2'
    )


def test_a_request_is_read_within_the_limits() -> None:
    spawn = check_spawn(request("a", "b c", env=[{"key": "K", "value": "v"}], cwd="cwd://x/./y"))
    assert (spawn.command, spawn.arguments, spawn.line) == ("a", ("b c",), "a b c")
    assert (spawn.environ, spawn.folder, spawn.label) == ({"K": "v"}, ("x", "y"), "a")
    assert (spawn.ring_bytes, spawn.lifetime_s, spawn.idle_s, spawn.retention_s) == (
        RING_BYTES,
        6 * 3600,
        1800,
        300,
    )
    assert spawn.limits == Limits()
    most = check_spawn(
        request(
            "a",
            log_ring_bytes=(1 << 32) - 1,
            max_lifetime_ms=1 << 60,
            idle_timeout_ms=1 << 60,
            exit_retention_ms=1 << 60,
            label="x" * 127 + "é\n",
            overflow="backpressure",
            keep_stdin_open=True,
            limits={
                "max-memory-bytes": 1,
                "max-cpu-secs": 2,
                "max-pids": 3,
                "max-open-files": 4,
            },
        )
    )
    assert (most.ring_bytes, most.lifetime_s, most.idle_s, most.retention_s) == (
        MAX_RING_BYTES,
        6 * 3600,
        6 * 3600,
        3600,
    )
    assert (most.label, most.has_backpressure, most.keeps_stdin) == ("x" * 127, True, True)
    assert most.limits == Limits(memory_bytes=1, cpu_s=2, processes=3, open_files=4)
    assert check_spawn(request("a", log_ring_bytes=1)).ring_bytes == MIN_RING_BYTES


@pytest.mark.parametrize(
    ("cwd", "parts"),
    [(None, ()), ("", ()), (".", ()), ("cwd://", ()), ("a//b/", ("a", "b")), ("...", ("...",))],
)
def test_a_folder_below_the_workspace(cwd: str | None, parts: tuple[str, ...]) -> None:
    assert read_folder(cwd) == parts


@pytest.mark.parametrize(
    "cwd", ["/", "cwd:///etc", "..", "a/../b", "shared://x", "file://x", "cwd://cwd://x"]
)
def test_no_folder_outside_of_it(cwd: str) -> None:
    with pytest.raises(ProcessRefused) as caught:
        read_folder(cwd)
    assert caught.value.case is ProcessCase.BOUNDARY_ESCAPE


def test_the_grace_has_a_bound() -> None:
    assert (grace_of(None), grace_of(0), grace_of(1500), grace_of(1 << 60)) == (GRACE_S, 0, 1.5, MAX_GRACE_S)


def test_a_suffix_is_the_end_of_a_topic() -> None:
    for good in ("a", "a-b_1.c", "a.b.c.d", "x" * 128):
        assert check_suffix(good) == good
    for bad in ("a.b.c.d.e", "a\n", "*"):
        with pytest.raises(ProcessRefused):
            check_suffix(bad)
