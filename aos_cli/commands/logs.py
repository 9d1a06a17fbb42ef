"""`aos logs`: read from disk, merged by time, with no daemon."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from aos_cli.capsule_names import unknown_capsule
from aos_cli.console import Console, get_console
from aos_cli.invocation import get_invocation
from aos_cli.render.logs import level_style, origin_style, record_document, render_record
from aos_cli.times import parse_moment
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName, parse_capsule_name
from aos_runtime.store.installed import list_names
from aos_runtime.store.log_lines import LEVELS, Record
from aos_runtime.store.log_reader import Filter, find_logs, follow, owner_of, read_records

_POLL_S = 0.2


def logs(
    capsules: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CAPSULE]...", help="Capsules to show; none: the daemon.", show_default=False
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every capsule of the principal, and the daemon.")
    ] = False,
    all_principals: Annotated[
        bool, typer.Option("--all-principals", help="Of every principal, not only the caller's.")
    ] = False,
    following: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is logged from now on.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many records at the end to show.")
    ] = 100,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From then on: 10m, 2h30m, or an ISO time.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to then.")] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level", metavar="LEVEL", help="That level and above: trace, debug, info, warn, error."
        ),
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="REGEX", help="Only messages in which this is found.")
    ] = None,
) -> None:
    """Show what capsules and the daemon logged, merged by time, read from disk.

    Without a name it shows the daemon's log. With --follow it goes on over rotation, waits for a log that
    does not exist yet, and ends with Ctrl-C. JSON: one object {time, level, principal, origin, message} a
    line.

    Examples:
      aos logs my-capsule
      aos logs --all --since 10m --level warn
      aos logs my-capsule -f --grep 'took [0-9]+ ms'
      aos logs --all -n 1000 --json
    """
    console, invocation = get_console(), get_invocation()
    home, principal = invocation.home, invocation.principal
    wanted = _read_filter(since, until, level, grep)
    names = [_known_name(home, principal, text, anybody=all_principals) for text in capsules or ()]
    choose = _chooser(home, principal, names, everything=everything, all_principals=all_principals)
    show = _shower(console, home, principal)
    if following:
        _follow(console, show, choose, wanted, lines)
        return
    found = list(_read(choose(), wanted, lines))
    for record in found:
        show(record)
    if not found and not any(path.exists() for path in choose()):
        console.note("No log yet.")


def _read_filter(since: str | None, until: str | None, level: str | None, grep: str | None) -> Filter:
    now_s = time.time()
    if level is not None and level.upper() not in LEVELS:
        known = ", ".join(name.lower() for name in LEVELS)
        raise typer.BadParameter(f"{level!r} is not one of {known}", param_hint="--level")
    try:
        pattern = None if grep is None else re.compile(grep)
    except re.error as error:
        raise typer.BadParameter(f"not a regular expression: {error}", param_hint="--grep") from None
    return Filter(
        since=_moment("--since", since, now_s),
        until=_moment("--until", until, now_s),
        level=None if level is None else level.upper(),
        grep=pattern,
    )


def _moment(option: str, text: str | None, now_s: float) -> float | None:
    try:
        return None if text is None else parse_moment(text, now_s)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _known_name(home: Home, principal: PrincipalName, text: str, *, anybody: bool) -> CapsuleName:
    """A capsule that is installed or has logged; checked before it becomes a path (case LOG-09)."""
    name = parse_capsule_name(text)
    logged = [log.capsule for log in find_logs(home, principal=None if anybody else principal)]
    known = tuple(sorted({*list_names(home, principal), *(one for one in logged if one is not None)}))
    if name not in known:
        raise unknown_capsule(principal, name, known)
    return name


def _chooser(
    home: Home,
    principal: PrincipalName,
    names: Sequence[CapsuleName],
    *,
    everything: bool,
    all_principals: bool,
) -> Callable[[], Sequence[Path]]:
    """A function that gives the wanted log files, asked anew at each round so that new capsules join."""

    def choose() -> Sequence[Path]:
        existing = find_logs(home, principal=None if all_principals else principal)
        if names:
            own = [home.capsule_log(principal, name) for name in names]
            return [*own, *(log.path for log in existing if log.capsule in names)]
        if everything or all_principals:
            return [home.daemon_log, *(log.path for log in existing)]
        return [home.daemon_log]

    return choose


def _read(paths: Sequence[Path], wanted: Filter, limit: int | None) -> Iterator[Record]:
    return read_records(
        paths, since=wanted.since, until=wanted.until, level=wanted.level, grep=wanted.grep, limit=limit
    )


def _follow(
    console: Console,
    show: Callable[[Record], None],
    choose: Callable[[], Sequence[Path]],
    wanted: Filter,
    limit: int,
) -> None:
    """The last records, then each new one, none lost and none twice between the two."""
    shown: Counter[Record] = Counter()
    primed = False

    def show_backlog() -> None:
        nonlocal primed
        primed = True
        for record in _read(choose(), wanted, limit):
            show(record)
            shown[record] += 1
        if not shown and not any(path.exists() for path in choose()):
            console.note("No log yet; waiting for the first record.")

    def wait() -> bool:
        if not primed:
            show_backlog()
        time.sleep(_POLL_S)
        return wanted.until is None or time.time() <= wanted.until

    for record in follow(choose, wait=wait, since=wanted.since, level=wanted.level, grep=wanted.grep):
        if not primed:
            show_backlog()
        if shown[record]:
            shown[record] -= 1
        elif wanted.until is None or record.time_s <= wanted.until:
            show(record)


def _shower(console: Console, home: Home, caller: PrincipalName) -> Callable[[Record], None]:
    """A function that prints one record, with whose it is where that is not the caller's own."""

    def show(record: Record) -> None:
        owner = None if record.log is None else owner_of(home, record.log)
        if console.is_json:
            console.json(record_document(record, owner), compact=True)
            return
        moment, level, origin, message = render_record(record, None if owner == caller else owner)
        style = level_style(record.level)
        level = console.paint(level, style) if style else level
        origin = console.paint(origin, origin_style(record.origin))
        console.data(f"{console.paint(moment, 'dim')} {level} {origin} {message}")

    return show
