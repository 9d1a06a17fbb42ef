"""Fixtures of the store's tests: a home in a temporary folder, and short ways to install into it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.store.commit import Approval, commit
from aos_runtime.store.env import NO_CHANGES, EnvChanges
from aos_runtime.store.installed import Installed
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.stage import stage_source
from tests.support.capsules import make_archive, write_capsule

Install = Callable[..., Installed]


def names(folder: Path) -> list[str]:
    """What a folder holds, by name."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def quick_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk: a test cannot cut the power anyway.

    test_files checks that syncs are asked for.
    """
    monkeypatch.setattr(os, "fsync", lambda _handle: None)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that does not exist yet."""
    return Home(tmp_path / "home")


@pytest.fixture
def now() -> datetime:
    return datetime(2026, 8, 1, 10, tzinfo=UTC)


@pytest.fixture
def install(home: Home, tmp_path: Path, now: datetime) -> Install:
    """Install an archive of `make_archive` with an explicit approval."""

    def run(
        name: str = "demo",
        version: str = "0.1.0",
        *,
        env: EnvChanges = NO_CHANGES,
        principal: PrincipalName = DEFAULT_PRINCIPAL,
        at: datetime | None = None,
        confirm: Callable[[], None] | None = None,
        **archive: object,
    ) -> Installed:
        data = make_archive(name, version, **archive)  # type: ignore[arg-type]  # passed on as they came
        source = write_capsule(tmp_path / f"{name}-{version}.capsule", data)
        with stage_source(home, principal, source, now=at or now, catalogue=()) as stage:
            approval = Approval(source=ApprovalSource.EXPLICIT)
            return commit(stage, approval=approval, env=env, source_text=str(source), confirm=confirm)

    return run
