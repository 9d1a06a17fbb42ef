"""docs/formats/wire.md names every topic that may cross the socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.wire import egress, ingress
from aos_runtime.wire.methods import TOOLS_VERBS
from aos_runtime.wire.payloads import TAGS

TEXT = (Path(__file__).parents[3] / "docs/formats/wire.md").read_text(encoding="utf-8")
NAMES = {
    *ingress.ALLOWED_TOPICS,
    *ingress.ALLOWED_PREFIXES,
    *ingress.BLOCKED_PREFIXES,
    *egress.ALLOWED_TOPICS,
    *egress.ALLOWED_PREFIXES,
    *TOOLS_VERBS,
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_document_names_it(name: str) -> None:
    assert f"`{name}`" in TEXT


def test_the_document_counts_the_tags() -> None:
    assert f"lists the {len(TAGS)})" in TEXT
