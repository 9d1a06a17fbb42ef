"""What a daemon loads when it starts, and for whom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aos_runtime.daemon.options import Options
from aos_runtime.daemon.runtime import Runtime
from aos_runtime.errors import Unavailable
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.store.bundled import read_catalogue, record_removed
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.run import RunFiles
from tests.support.tool_guests import archive_of, install, tool_guest, without_bundled

pytestmark = pytest.mark.journey

ALICE = PrincipalName("alice")
NO_TOOLS = '{"tools":[]}'
UPLINK = '[[uplink]]\nname = "front"\nplatform = "cli"\nprofile = "chat"\n[capabilities]\nuplink = true\n'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    without_bundled(made)
    return made


@contextmanager
def started(home: Home, workspace: Path | None = None) -> Iterator[Runtime]:
    runtime = Runtime(home, Options(workspace=workspace), lambda reason: None)
    runtime.open()
    try:
        yield runtime
    finally:
        runtime.close()


def put(home: Home, folder: Path, name: str, *, extra: str = "", principal: PrincipalName) -> None:
    archive = archive_of(home, name, tool_guest(NO_TOOLS), "", extra=extra)
    install(home, folder, name, archive, source=ApprovalSource.EXPLICIT, principal=principal)


def test_a_start_that_fails_half_way_says_why_and_leaves_the_home_free(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(files: RunFiles) -> None:
        raise Unavailable("no-space", "no space left", hint="free some")

    with monkeypatch.context() as patch:
        patch.setattr(RunFiles, "write_pid", fail)
        with pytest.raises(Unavailable) as failed, started(home):
            pass
        assert failed.value.code == "no-space"
    with started(home) as runtime:
        assert runtime.lifecycle.is_loaded(DEFAULT_PRINCIPAL)


def test_only_what_default_has_is_loaded_at_the_start(home: Home, tmp_path: Path) -> None:
    home.profile(ALICE).parent.mkdir(parents=True, exist_ok=True)
    home.profile(ALICE).write_text('profile_version = 1\nenabled = true\ngroups = ["agent"]\n')
    for row in read_catalogue():
        record_removed(home, ALICE, row.name, removed=True)
    put(home, tmp_path, "mine", principal=DEFAULT_PRINCIPAL)
    put(home, tmp_path, "hers", principal=ALICE)
    with started(home) as runtime:
        assert {name: view.names for name, view in runtime.lifecycle.views.items()} == {
            DEFAULT_PRINCIPAL: ("mine",)
        }
        assert runtime.lifecycle.load_all(ALICE).names == ("hers",), "with her first connection"


def test_a_capsule_in_a_workspace_is_not_loaded(home: Home, tmp_path: Path) -> None:
    """Nobody agreed to it, and who clones a project has not read it."""
    workspace = tmp_path / "project"
    for folder in (workspace / ".aos" / "capsules" / "stray", workspace / ".astrid" / "capsules" / "stray"):
        folder.mkdir(parents=True)
        (folder / "Capsule.toml").write_text(
            '[package]\nname = "stray"\nversion = "0.1.0"\n[[component]]\nfile = "stray.wasm"\n'
        )
        (folder / "stray.wasm").write_bytes(tool_guest(NO_TOOLS))
    with started(home, workspace) as runtime:
        view = runtime.lifecycle.view(DEFAULT_PRINCIPAL)
        assert (view.names, dict(view.unready)) == ((), {})


def test_an_uplink_that_was_agreed_to_serves_its_principal(home: Home, tmp_path: Path) -> None:
    put(home, tmp_path, "front", extra=UPLINK, principal=DEFAULT_PRINCIPAL)
    with started(home) as runtime:
        view = runtime.lifecycle.view(DEFAULT_PRINCIPAL)
        assert (view.names, dict(view.unready)) == (("front",), {})
