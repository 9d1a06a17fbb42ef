"""Running `aos` inside the test process, with its whole output and its exit status."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from aos_cli.app import run
from aos_cli.signals import ENDING
from aos_runtime.home import Home, resolve_home


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one command line ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error document of JSON mode."""
        return json.loads(self.err)["error"]


RunAos = Callable[..., Ended]


@pytest.fixture
def run_aos(capsys: pytest.CaptureFixture[str]) -> Iterator[RunAos]:
    """`run_aos("status", "--json")`: standard input is no terminal."""
    before = {number: signal.getsignal(number) for number in ENDING}

    def run_one(*arguments: str) -> Ended:
        capsys.readouterr()
        status = run(arguments, os.environ)
        captured = capsys.readouterr()
        return Ended(status=status, out=captured.out, err=captured.err)

    yield run_one
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture
def home() -> Home:
    """The home of this test, as `aos` sees it."""
    return resolve_home(os.environ)
