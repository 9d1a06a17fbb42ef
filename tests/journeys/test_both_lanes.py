"""Capsules as cargo and astrid-sdk make them, in their own lane and in the other one: no difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aos_runtime.capsule.archive import iter_members, scan_archive
from tests.support import capsule_conformance as conformance
from tests.support.guests import in_component_lane
from tests.support.relay import LANES

pytestmark = pytest.mark.journey


@pytest.fixture(params=LANES)
def in_lane(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Path], Path]:
    """The component of an archive, as a file, made for one of the lanes."""

    def extract(archive: Path) -> Path:
        with archive.open("rb") as file:
            [wasm] = [
                one.data for one in iter_members(file, scan_archive(file)) if one.path.endswith(".wasm")
            ]
        path = tmp_path / "component.wasm"
        path.write_bytes(wasm if request.param == "edge" else in_component_lane(wasm))
        return path

    return extract


def test_a_tool_answers(in_lane: Callable[[Path], Path], hello_capsule: Path) -> None:
    component = in_lane(hello_capsule)
    assert [tool["name"] for tool in conformance.check_any(component)] == ["hello"]
    conformance.check_tool(component, "hello", {"name": "Ada"}, "Hello, Ada!")
    conformance.check_lifecycle(component, set())


def test_state_and_panics(in_lane: Callable[[Path], Path], sampler_capsule: Path) -> None:
    component = in_lane(sampler_capsule)
    conformance.check_state(component, "count", {}, ["1", "2", "3"])
    conformance.check_error(component, "refuse", {"text": "not today"}, "not today")
    conformance.check_panic(component, "explode", {"text": "boom"}, "exploded: boom")
    conformance.check_tool(component, "repeat", {"bytes": 100_000}, "x" * 100_000)
