"""Run one command line: parse, call, and project every failure to words and an exit status.

Exit statuses are the published client's (cli-ux 5.4): 0 done, 1 failed or a negative answer, 2 usage, 130 and
143 for signals.  This module holds the only broad `except` of the toolchain and prints through the console.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aos_cli import environment
from aos_cli.console import Console, set_console
from aos_cli.invocation import Invocation, set_invocation
from aos_cli.signals import (
    INTERRUPTED_STATUS,
    TERMINATED_STATUS,
    Terminated,
    end_on_signal,
    unwind_on_signal,
)

if TYPE_CHECKING:
    from aos_cli.render.errors import Described


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run `aos argv...` and return its exit status.  Never raises; from then on a signal ends the process."""
    try:
        return _run(argv, environ)
    except KeyboardInterrupt:  # it came while a failure of the command was told
        return INTERRUPTED_STATUS
    except Terminated:
        return TERMINATED_STATUS
    finally:
        end_on_signal()


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    console = Console(environ=environ)
    set_console(console)
    set_invocation(Invocation(environ=environ))
    try:
        unwind_on_signal()
        status = _dispatch(list(argv))
        _flush()
        return status
    except BaseException as error:  # noqa: BLE001 - the edge: every failure becomes words and a status
        return _project(error, console, list(argv))


def _dispatch(argv: list[str]) -> int:
    from typer.exceptions import Exit

    from aos_cli.lazy import make_command
    from aos_cli.tree import ROOT

    root = make_command(ROOT)
    try:
        with root.make_context("aos", _spelt_out(argv)) as context:
            status = root.invoke(context)
    except Exit as done:
        return done.exit_code
    return status if isinstance(status, int) else 0


def _spelt_out(argv: list[str]) -> list[str]:
    """Bare `aos`, `aos help COMMAND` and `aos --version` as the words that they stand for."""
    leading = list(itertools.takewhile(lambda word: word.startswith("-") and word != "--", argv))
    if not argv:
        return ["--help"]
    if argv[0] == "help":
        return [*argv[1:], "--help"]
    if "--version" in leading or "-V" in leading:
        return ["version", *(word for word in argv if word not in ("--version", "-V"))]
    return argv


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _project(error: BaseException, console: Console, argv: list[str]) -> int:
    if isinstance(error, BrokenPipeError):
        return _silence_broken_pipe()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if environment.is_truthy(console.environ, environment.BACKTRACE):
        traceback.print_exception(error)
    if _asked_for_json(argv):
        console.format = "json"
    from aos_cli.render.errors import describe

    described = describe(error)
    try:
        _show(described, console)
        _flush()
    except BrokenPipeError:
        _silence_broken_pipe()
    return described.status


def _show(described: Described, console: Console) -> None:
    if console.is_json:
        console.raw_error(json.dumps(described.document(), ensure_ascii=False))
        return
    if described.text:
        console.raw_error(described.text)
        return
    if not described.message:
        return
    console.error(described.message)
    for line in described.details:
        console.raw_error(f"  {line}")
    if described.hint and console.quiet < 2:
        console.raw_error(f"{console.paint_talk('hint:', 'cyan')} {described.hint}")


def _asked_for_json(argv: list[str]) -> bool:
    """Whether the words ask for JSON, for errors that arise before the options have been read."""
    words = list(itertools.takewhile(lambda word: word != "--", argv))
    pairs = itertools.pairwise(words)
    return "--json" in words or "--format=json" in words or ("--format", "json") in pairs


def _silence_broken_pipe() -> int:
    """The reader went away, which is its right: send what is left nowhere and end quietly."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    return 0
