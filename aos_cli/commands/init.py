"""`aos init`: the capsules that come with this aos, installed for the principal."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.console import Console, get_console, safe
from aos_cli.install.consent import Answers
from aos_cli.install.journey import Order, Report, install_archive
from aos_cli.install.telling import say_installed, show_failure
from aos_cli.invocation import get_invocation
from aos_cli.render.errors import describe
from aos_runtime.errors import AosError, NotFound
from aos_runtime.store.bundled import (
    BundledCapsule,
    damaged_bundled,
    due_bundled,
    read_catalogue,
    read_removed,
)


def init(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to what the capsules ask for.")] = False,
) -> int:
    """Install the capsules that come with aos: tools for files and more. Each asks for what it needs.

    A capsule that asks for permissions is shown and needs a yes, or -y for all of them. Run again, it
    installs what is missing, older or damaged, and leaves alone what you removed or replaced. The exit
    status is 1 where one was not installed.
    JSON: {installed, unchanged: [{name, version, reason}], failed, total}; a reason is `current` or
    `removed`.

    Examples:
      aos init
      aos init -y
      aos --principal bob init -y --json
    """
    console = get_console()
    catalogue = read_catalogue()
    if not catalogue:
        raise NotFound(
            "bundled-missing",
            "this installation has no bundled capsules",
            hint="install the wheel of aos-cli, or run `./scripts/toolchain` in a checkout to build them",
        )
    invocation = get_invocation()
    damaged = damaged_bundled(invocation.home, invocation.principal, catalogue)
    for row in damaged:
        console.warn(f"{row.name} is damaged and is put back as it came with aos")
    due = (*due_bundled(invocation.home, invocation.principal, catalogue), *damaged)
    answers = Answers(yes=yes, approve_untrusted=False, interactive=console.interactive and not yes)
    reports: list[Report] = []
    failures: list[tuple[BundledCapsule, AosError]] = []
    for row in due:
        try:
            reports.append(_install(row, answers, console))
        except AosError as error:
            failures.append((row, error))
            show_failure(console, row.name, describe(error))
        else:
            say_installed(console, reports[-1])
    _tell(console, reports, [row for row in catalogue if row not in due], failures)
    return 1 if failures else 0


def _install(row: BundledCapsule, answers: Answers, console: Console) -> Report:
    invocation = get_invocation()
    order = Order(
        home=invocation.home,
        principal=invocation.principal,
        archive=row.path,
        source_text=str(row.path),
        answers=answers,
        variables={},
        hook_answers={},
        environ=invocation.environ,
    )
    return install_archive(order, console)


def _tell(
    console: Console,
    reports: list[Report],
    unchanged: list[BundledCapsule],
    failures: list[tuple[BundledCapsule, AosError]],
) -> None:
    invocation = get_invocation()
    removed = read_removed(invocation.home, invocation.principal)
    total = len(reports) + len(unchanged) + len(failures)
    if console.is_json:
        console.json(
            {
                "installed": [report.document() for report in reports],
                "unchanged": [
                    {
                        "name": row.name,
                        "version": row.version,
                        "reason": "removed" if row.name in removed else "current",
                    }
                    for row in unchanged
                ],
                "failed": [{"name": row.name, **describe(error).document()} for row, error in failures],
                "total": total,
            }
        )
        return
    for row in unchanged:
        if row.name in removed:
            command = f"aos capsule install {row.path}"
            console.note(f"{row.name} was removed; to have it again: {safe(command)}")
    present = sum(1 for row in unchanged if row.name not in removed)
    console.note(f"Installed {len(reports)} of {total}; {present} were there already.")
