"""What the events door reads from the home."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.daemon import seeing
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, EnvKey
from aos_runtime.store.secrets import write_secret
from tests.support.kernels import ALICE


def test_the_secrets_of_all_capsules_of_one_principal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    monkeypatch.setattr(seeing, "list_names", lambda home, principal: (CapsuleName("a"), CapsuleName("b")))
    write_secret(home, ALICE, CapsuleName("a"), EnvKey("KEY"), "first")
    write_secret(home, ALICE, CapsuleName("b"), EnvKey("KEY"), "second")
    write_secret(home, ALICE, CapsuleName("gone"), EnvKey("KEY"), "third")
    assert seeing.held_secrets(home, ALICE) == ("first", "second")
