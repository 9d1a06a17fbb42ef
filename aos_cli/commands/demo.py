"""`aos demo`: a capsule that answers, in a throw-away home, with nothing of the user's touched and no
Rust needed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from aos_cli.client import connect
from aos_cli.console import Console, get_console, safe
from aos_cli.control.start import start_daemon
from aos_cli.control.stop import stop_daemon
from aos_cli.install.consent import Answers
from aos_cli.install.journey import Order, Report, install_archive
from aos_cli.invocation import get_invocation
from aos_cli.render.capsules import tool_names
from aos_cli.render.logs import render_record
from aos_cli.render.tools import decode_text
from aos_cli.tools.door import call_tool, find_tool, list_all
from aos_runtime.errors import AosError, Corrupt, NotFound
from aos_runtime.home import HOME_VARIABLE, Home
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.bundled import BundledCapsule, read_catalogue
from aos_runtime.store.log_lines import Record
from aos_runtime.store.log_reader import read_records

CAPSULE = "hello"
TOOL = "hello"
ARGUMENTS = {"name": "Ada"}
_TIMEOUT_S = 30.0


def demo() -> None:
    """See a capsule answer: start a daemon in a throw-away home, install a bundled capsule, call its tool.

    Needs no Rust and no network, leaves your own home alone, and stops its daemon at the end. JSON: {capsule,
    version, tool, arguments, answer, log}.

    Examples:
      aos demo
      aos demo --json
    """
    console = get_console()
    bundled = _find_bundled()
    folder = Path(tempfile.mkdtemp(prefix="aos-demo-"))
    home = Home(folder)
    environ = {**get_invocation().environ, HOME_VARIABLE: str(folder)}
    try:
        result = _run(console, home, environ, bundled)
    finally:
        _tidy_up(home)
    if console.is_json:
        console.json(result)
    else:
        console.data(safe(str(result["answer"]), keep_lines=True))
        console.note("That was a sandboxed WebAssembly capsule. Make your own: `aos capsule new my-capsule`.")


def _find_bundled() -> BundledCapsule:
    """The bundled capsule that greets.  NotFound `bundled-missing` where this installation has none."""
    for row in read_catalogue():
        if row.name == CAPSULE:
            return row
    raise NotFound(
        "bundled-missing",
        f"this installation has no bundled capsule `{CAPSULE}`",
        hint="install the wheel of aos-cli, or run `./scripts/toolchain` in a checkout to build them",
    )


def _run(
    console: Console, home: Home, environ: Mapping[str, str], bundled: BundledCapsule
) -> dict[str, object]:
    console.note(f"$ AOS_HOME={home.root} aos start")
    start_daemon(home, environ)
    console.note(f"$ aos capsule install {bundled.path.name}")
    report = _install(console, home, environ, bundled)
    words = " ".join(f"--arg {key}={value}" for key, value in ARGUMENTS.items())
    console.note(f"$ aos tool call {TOOL} {words}")
    answer = _call(home)
    console.note(f"$ aos logs {bundled.name}")
    records = tuple(read_records([home.capsule_log(DEFAULT_PRINCIPAL, bundled.name)], limit=5))
    for record in records:
        console.note("  " + " ".join(render_record(record, None)))
    return {
        "capsule": bundled.name,
        "version": report.installed.version,
        "tool": TOOL,
        "arguments": ARGUMENTS,
        "answer": answer,
        "log": _messages(records),
    }


def _install(console: Console, home: Home, environ: Mapping[str, str], bundled: BundledCapsule) -> Report:
    order = Order(
        home=home,
        principal=DEFAULT_PRINCIPAL,
        archive=bundled.path,
        source_text=str(bundled.path),
        answers=Answers(yes=True, approve_untrusted=False, interactive=False),
        hook_answers={},
        variables={},
        environ=environ,
    )
    report = install_archive(order, console)
    if TOOL not in tool_names(report.installed.manifest):
        raise NotFound("tool-unknown", f"the bundled capsule has no tool `{TOOL}`", hint="reinstall aos-cli")
    return report


def _call(home: Home) -> str:
    with connect(home, DEFAULT_PRINCIPAL) as door:
        find_tool(list_all(door), TOOL)
        reply = call_tool(door, TOOL, ARGUMENTS, timeout_s=_TIMEOUT_S)
    content = reply.data.get("content") if isinstance(reply.data, dict) else None
    if reply.is_error or not isinstance(content, str):
        raise Corrupt("demo-failed", f"the tool gave no answer: {reply.data}", hint="reinstall aos-cli")
    return decode_text(content)


def _messages(records: Sequence[Record]) -> list[str]:
    return [record.message for record in records]


def _tidy_up(home: Home) -> None:
    """Stop the daemon and remove its home, whatever happened; the first error stays the one shown."""
    with suppress(AosError):
        stop_daemon(home, DEFAULT_PRINCIPAL)
    shutil.rmtree(home.root, ignore_errors=True)
    if home.socket.parent != home.run:
        shutil.rmtree(home.socket.parent, ignore_errors=True)
