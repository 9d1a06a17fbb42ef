"""Every resource that a factor hands out goes by its WIT name: the component lane finds its type by that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aos_runtime.host.resources import Resource, ResourceTable

WIT = Path(__file__).parents[3] / "golden" / "abi" / "astrid.wit"
KINDS = frozenset(re.findall(r"^\s*resource ([a-z-]+)", WIT.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.fixture(autouse=True)
def resources_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    add = ResourceTable.add

    def checked(table: ResourceTable, kind: str, resource: Resource) -> int | None:
        assert kind in KINDS, f"{kind} is no resource of the ABI"
        return add(table, kind, resource)

    monkeypatch.setattr(ResourceTable, "add", checked)
