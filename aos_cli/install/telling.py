"""What a person is told of one install, done or failed; on stderr, everything escaped."""

from __future__ import annotations

from aos_cli.console import Console, safe
from aos_cli.install.journey import Report
from aos_cli.render.errors import Described


def say_installed(console: Console, report: Report) -> None:
    """One line for the install, and what is worth knowing about it."""
    installed = report.installed
    version = safe(installed.version)
    change = {
        "install": f"Installed {installed.name} {version}",
        "upgrade": f"Upgraded {installed.name} from {safe(report.previous_version or '')} to {version}",
        "downgrade": f"Replaced {installed.name} {safe(report.previous_version or '')} by older {version}",
        "reinstall": f"Installed {installed.name} {version} again",
    }[report.phase.value]
    console.success(f"{change}.")
    for line in report.activated.warnings:
        console.warn(f"its hook said: {safe(line)}")
    if report.env.orphans:
        keys = ", ".join(safe(key) for key in report.env.orphans)
        console.note(f"Values of keys that this version no longer has are kept: {keys}")
    for row in report.missing_imports:
        interface = f"{row['namespace']}:{row['interface']} {row['requirement']}"
        console.note(f"Nothing that is installed exports what it imports: {safe(interface)}")
    for row in report.export_conflicts:
        console.note(f"{row['capsule']} exports {safe(row['namespace'])}:{safe(row['interface'])} as well.")
    if report.reload_problem:
        console.warn(f"the running daemon did not load it: {safe(report.reload_problem)}")
        console.hint("run `aos restart`")


def show_failure(console: Console, label: str, described: Described) -> None:
    """Why one of several was not installed; `label` names it."""
    console.error(f"{safe(label)}: {described.message}" if label else described.message)
    for line in described.details:
        console.raw_error(f"  {line}")
    if described.hint:
        console.hint(described.hint)
