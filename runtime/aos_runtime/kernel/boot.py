"""Making a home ready to serve: the bundled capsules in place, and what was loaded written to the log.

One broken capsule never stops a boot (DMN-19).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from aos_runtime.errors import AosError
from aos_runtime.home import Home
from aos_runtime.kernel.activation import Activator
from aos_runtime.kernel.kernel import Journal
from aos_runtime.kernel.order import boot_order
from aos_runtime.kernel.views import View
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.bundled import BUNDLED_FOLDER, BundledCapsule, due_bundled, read_catalogue
from aos_runtime.store.commit import Approval, commit
from aos_runtime.store.installed import Installed, list_installed, list_names
from aos_runtime.store.names_index import read_tools, record_tools
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.shown_wit import show_wit
from aos_runtime.store.stage import Expected, stage_source

LOCK_WAIT_S = 1.0
"""A capsule that somebody is installing right now is left to them."""


def ensure_bundled(
    home: Home,
    principal: PrincipalName,
    activator: Activator,
    journal: Journal,
    now: datetime,
    *,
    folder: Path = BUNDLED_FOLDER,
) -> tuple[str, ...]:
    """Install the bundled capsules that are due, and show the interfaces of all (`store.shown_wit`).

    The names installed.  What fails is logged.

    Due is what is absent and was never removed by the operator, and what is newer than what is there.
    Nothing is installed here that asks for a capability which nobody agreed to: that is for `aos init`.
    """
    try:
        catalogue = read_catalogue(folder)
        present = frozenset(list_names(home, principal))
        due = [row for row in due_bundled(home, principal, catalogue) if row.name in present or not row.asks]
    except AosError as error:
        journal.daemon("error", f"bundled capsules: {error.message}")
        return ()
    installed = tuple(_install(home, principal, due, catalogue, activator, journal, now))
    try:
        show_wit(home, principal)
    except AosError as error:
        journal.daemon("warn", f"the interfaces at home://wit are not up to date: {error.message}")
    return installed


def _install(
    home: Home,
    principal: PrincipalName,
    due: Iterable[BundledCapsule],
    catalogue: tuple[BundledCapsule, ...],
    activator: Activator,
    journal: Journal,
    now: datetime,
) -> Iterable[str]:
    for row in due:
        expected = Expected(name=row.name, version=row.version, content_digest=row.content_digest)
        try:
            with stage_source(
                home,
                principal,
                row.path,
                now=now,
                expected=expected,
                catalogue=catalogue,
                wait_s=LOCK_WAIT_S,
            ) as stage:
                if stage.needs_consent:
                    journal.daemon("warn", f"{row.name} {row.version} asks for more than it holds: aos init")
                    continue
                activator.activate(stage)
                commit(stage, approval=Approval(source=ApprovalSource.BUNDLED), source_text=None)
        except AosError as error:
            journal.daemon("error", f"bundled capsule {row.name} {row.version}: {error.message}")
            continue
        journal.daemon("info", f"installed the bundled capsule {row.name} {row.version} for {principal}")
        yield row.name


def in_boot_order(home: Home, principal: PrincipalName, journal: Journal) -> tuple[CapsuleName, ...]:
    """What `principal` has installed, uplinks and providers first; what is odd about it is logged.

    What cannot be read comes last, to be reported as what it is.
    """
    entries = list_installed(home, principal)
    manifests = {entry.name: entry.manifest for entry in entries if isinstance(entry, Installed)}
    order = boot_order(manifests)
    for note in order.notes:
        journal.daemon("warn", note)
    return (*order.names, *(name for name in list_names(home, principal) if name not in manifests))


def report_view(view: View, journal: Journal) -> None:
    """Say in the log what is loaded, what is not and why, and what is odd about it."""
    journal.daemon("info", f"principal {view.principal} has {len(view.residents)} capsules ready")
    for unready in view.unready.values():
        journal.daemon(
            "warn", f"capsule {unready.name} of {view.principal} is {unready.state}: {unready.reason}"
        )
    for resident in view.residents.values():
        for warning in resident.loaded.warnings:
            journal.daemon("warn", f"capsule {resident.name}: {warning}")
    for shadowed in view.surfaces.shadowed:
        journal.daemon("warn", f"capsule {shadowed.loser}: {shadowed.topic} is shadowed by {shadowed.winner}")


def index_tools(home: Home, view: View, journal: Journal) -> None:
    """Record the tool names for shell completion, where they changed."""
    tools = {name: [tool.name for tool in resident.tools] for name, resident in view.residents.items()}
    known = {name: list(names) for name, names in read_tools(home, view.principal).items()}
    if {name: sorted(names) for name, names in tools.items()} == known:
        return
    try:
        record_tools(home, view.principal, tools)
    except AosError as error:
        journal.daemon("warn", f"tool names were not recorded: {error.message}")
