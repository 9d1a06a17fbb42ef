"""What an install request may name, and what its authority is worth."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aos_runtime.errors import AosError, Conflict, Denied
from aos_runtime.home import Home
from aos_runtime.kernel import changes as module
from aos_runtime.kernel.activation import Activator
from aos_runtime.kernel.changes import Changes, decide_approval, find_source
from aos_runtime.kernel.lifecycle import Lifecycle
from aos_runtime.kernel.requests import Caller
from aos_runtime.kernel.views import View
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.origin import Phase, Provenances
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.stage import Stage


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("https://example.org/x.capsule", "only a local archive can be installed"),
        ("@acme/notes", "only a local archive can be installed"),
        ("gh:acme/notes", "only a local archive can be installed"),
        ("dist/x.capsule", "source path is not absolute"),
        ("file://dist/x.capsule", "source path is not absolute"),
        ("~/x.capsule", "source path is not absolute"),
        ("/nonexistent/x.capsule", "source path does not exist: /nonexistent/x.capsule"),
    ],
)
def test_a_source_that_is_not_taken(text: str, sentence: str) -> None:
    with pytest.raises(AosError) as raised:
        find_source(text)
    assert raised.value.message == sentence


def test_a_local_archive_is_taken(tmp_path: Path) -> None:
    archive = tmp_path / "x.capsule"
    archive.write_bytes(b"")
    assert find_source(str(archive)) == find_source(f"file://{archive}") == archive


class Desk:
    """A lifecycle that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def unload(self, principal: str, name: str) -> bool:
        self.told.append(f"unload {name}")
        return False

    def reload(self, principal: str, name: str) -> View:
        self.told.append(f"reload {name}")
        return View(principal=DEFAULT_PRINCIPAL)


def busy(*_anything: object) -> None:
    raise Conflict("busy", "somebody changes profiles", hint="wait")


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    for name in ("allow_capsule", "disallow_capsule"):
        monkeypatch.setattr(module, name, busy)
    return Desk()


def changes(desk: Desk, home: Home) -> Changes:
    return Changes(
        home=home,
        lifecycle=cast(Lifecycle, desk),
        activator=cast(Activator, SimpleNamespace(activate=lambda stage, elicit: None)),
        announce=lambda principal, topic, body: None,
        may=lambda principal, capability: True,
    )


PLAIN: dict[str, object] = {
    "source": "/nowhere",
    "target_principal": None,
    "workspace": False,
    "env": [],
    "authority": "automatic",
    "expected_generation": None,
    "batch": None,
}
CALLER = Caller(principal=DEFAULT_PRINCIPAL, request_owner=None)


def test_a_removed_capsule_serves_no_more_also_where_its_grant_stays(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "remove_installed", lambda *args, **kwargs: None)
    with pytest.raises(Conflict):
        changes(desk, Home(tmp_path)).remove(CALLER, {"id": "x", "purge": False, "force": False})
    assert desk.told == ["unload x"]


def test_an_installed_capsule_serves_also_where_it_was_not_granted(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = SimpleNamespace(
        previous=None,
        name="x",
        provenance_class=Provenances.LOCAL,
        needs_consent=False,
        phase=Phase.INSTALL,
        read_offered_env=lambda: None,
    )
    monkeypatch.setattr(module, "stage_source", lambda *args, **kwargs: contextlib.nullcontext(staged))
    monkeypatch.setattr(module, "commit", lambda *args, **kwargs: SimpleNamespace(name="x"))
    archive = tmp_path / "x.capsule"
    archive.touch()
    with pytest.raises(Conflict):
        changes(desk, Home(tmp_path / "home")).install(CALLER, {**PLAIN, "source": str(archive)})
    assert desk.told == ["reload x"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"workspace": True}, "install-workspace"),
        ({"expected_generation": {"archive": "a"}}, "install-condition"),
        ({"batch": "b-1"}, "install-condition"),
        ({"source": "https://x"}, "install-remote"),
        ({"source": "x"}, "install-relative"),
    ],
)
def test_a_condition_that_cannot_be_kept_is_refused(
    desk: Desk, tmp_path: Path, asked: dict[str, object], code: str
) -> None:
    with pytest.raises(AosError) as refused:
        changes(desk, Home(tmp_path)).install(CALLER, {**PLAIN, **asked})
    assert refused.value.code == code


def stage(origin: Provenances, *, needs_consent: bool) -> Stage:
    return cast(Stage, SimpleNamespace(name="x", provenance_class=origin, needs_consent=needs_consent))


@pytest.mark.parametrize(
    ("origin", "needs_consent", "authority", "source"),
    [
        (Provenances.LOCAL, False, "automatic", ApprovalSource.LOCAL_BUILD),
        (Provenances.BUNDLED, False, "automatic", ApprovalSource.BUNDLED),
        (Provenances.FOREIGN, True, "explicit_approval", ApprovalSource.EXPLICIT),
        (Provenances.LOCAL, True, "operator_distribution", ApprovalSource.EXPLICIT),
    ],
)
def test_what_an_authority_is_worth(
    origin: Provenances, needs_consent: bool, authority: str, source: ApprovalSource
) -> None:
    assert decide_approval(stage(origin, needs_consent=needs_consent), authority).source is source


@pytest.mark.parametrize("origin", [Provenances.FOREIGN, Provenances.UNSIGNED, Provenances.LOCAL])
def test_what_needs_a_yes_is_not_installed_automatically(origin: Provenances) -> None:
    with pytest.raises(Denied, match="needs an explicit approval"):
        decide_approval(stage(origin, needs_consent=True), "automatic")
