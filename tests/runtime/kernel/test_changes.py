"""What an install request may name, and what its authority is worth."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from aos_runtime.errors import AosError, Denied
from aos_runtime.kernel.changes import decide_approval, find_source
from aos_runtime.store.origin import Provenances
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
