"""`aos demo` where it cannot run; that it runs is shown by the journeys on the wheel."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from aos_cli.commands import demo
from aos_runtime.errors import Unavailable
from aos_runtime.names import CapsuleName, Digest
from aos_runtime.store.bundled import BundledCapsule
from tests.cli.conftest import RunAos


def test_an_installation_without_capsules_says_what_brings_them(
    run_aos: RunAos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "read_catalogue", lambda: ())
    ended = run_aos("demo")
    assert (ended.status, ended.out, ended.err) == (
        1,
        "",
        "error: this installation has no bundled capsule `hello`\n"
        "hint: install the wheel of aos-cli, or run `./scripts/toolchain` in a checkout to build them\n",
    )


def test_a_demo_that_fails_leaves_nothing_behind(
    run_aos: RunAos, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = BundledCapsule(
        name=CapsuleName("hello"),
        version="0.1.0",
        path=tmp_path / "hello.capsule",
        content_digest=Digest("0" * 64),
    )
    folders: list[str] = []

    def fail(home: object, environ: dict[str, str], **_options: object) -> None:
        folders.append(environ["AOS_HOME"])
        raise Unavailable("daemon-start-failed", "the daemon did not start", hint="look at its log")

    monkeypatch.setattr(demo, "read_catalogue", lambda: (row,))
    monkeypatch.setattr(demo, "start_daemon", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = run_aos("demo", "-q")
    assert (ended.status, ended.err) == (1, "error: the daemon did not start\nhint: look at its log\n")
    assert folders[0].startswith(str(tmp_path)) and folders[0] != os.environ["AOS_HOME"]
    assert list(tmp_path.glob("aos-demo-*")) == []
