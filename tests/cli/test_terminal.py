"""Prompts on a real terminal: the default is no, a secret is not echoed, Ctrl-C ends quietly (INS-12)."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from aos_cli.install.secret_prompt import read_hidden_line
from aos_cli.spinner import Spinner
from aos_runtime.errors import Unavailable
from aos_runtime.home import Home
from tests.support.capsules import make_archive, write_capsule
from tests.support.terminal import type_into

ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runtime")])}
AOS = [sys.executable, "-m", "aos_cli"]


@pytest.fixture
def archive(tmp_path: Path) -> str:
    return str(write_capsule(tmp_path / "demo.capsule", make_archive()))


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["\r", "n\r", "maybe\rno\r", "\x04"])
def test_the_default_of_an_approval_is_no(archive: str, home: Home, answer: str) -> None:
    screen = type_into(
        [*AOS, "capsule", "install", archive], [answer], until="nothing was changed", environ=PYTHONPATH
    )
    assert "Install it? [y/N] " in screen
    assert "error: capsule `demo` was not installed" in screen
    assert not home.installed("default").exists()  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("environ", [{"CI": "true"}, {"GITHUB_ACTIONS": "1"}, {}])
def test_nobody_is_asked_in_ci_or_with_no_input(archive: str, environ: dict[str, str]) -> None:
    words = [] if environ else ["--no-input"]
    screen = type_into(
        [*AOS, "capsule", "install", archive, *words], [], until="hint:", environ={**PYTHONPATH, **environ}
    )
    assert "Install it?" not in screen
    assert "needs an approval" in screen


@pytest.mark.slow
def test_ctrl_c_at_a_prompt_is_130_without_a_traceback(archive: str) -> None:
    program = f"{' '.join(AOS)} capsule install {archive}; echo status $?"
    screen = type_into(["bash", "--norc", "-c", program], ["\x03"], until="status 130", environ=PYTHONPATH)
    assert "status 130" in screen
    assert "Traceback" not in screen


@pytest.mark.slow
def test_ins_12_a_secret_is_not_echoed() -> None:
    program = (
        "from aos_cli.install.secret_prompt import read_hidden_line as r; "
        "print(len(r('key: ')), 'characters')"
    )
    screen = type_into(
        [sys.executable, "-c", program], ["hunter2\r"], until="characters\r\n", environ=PYTHONPATH
    )
    assert screen == "key: \r\n7 characters\r\n"


def test_ins_12_without_a_terminal_no_secret_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(6, "No such device or address")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Unavailable) as refused:
        read_hidden_line("key: ")
    assert refused.value.code == "no-hidden-input"


def test_the_spinner_leaves_an_empty_line() -> None:
    drawn = threading.Event()

    class Screen(io.StringIO):
        def flush(self) -> None:
            drawn.set()

    screen = Screen()
    with Spinner(screen, "Working"):
        assert drawn.wait(5)
    text = screen.getvalue()
    assert " Working" in text
    assert text.endswith("\r\x1b[K")
