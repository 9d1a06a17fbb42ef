"""`scripts/soak frames`: silent where all is well, and not where a decoder lets something through."""

from __future__ import annotations

import msgspec
import pytest

from aos_runtime.wire import ingress, requests
from tests.soak.frames import GROWTH_BYTES, Fuzz, growth_fault

SEED = 20_261_201
BATCHES = 20


def faults() -> list[str]:
    fuzz = Fuzz(SEED)
    for _ in range(BATCHES):
        fuzz.batch()
    assert fuzz.accepted > fuzz.frames / 20
    return fuzz.faults


def test_honest_decoders_are_silent() -> None:
    assert faults() == []


@pytest.mark.parametrize(
    ("module", "name", "bug"),
    [
        (ingress, "topic_problem", lambda topic: topic.split(".")[3] and None),
        (ingress, "_decode_ids", lambda body: body["request_id"]),
        (requests, "_read_params", lambda shape, raw, name: msgspec.json.decode(raw, type=shape)),
    ],
    ids=["an index error on a short topic", "a wrong type", "a decode error that nobody catches"],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, bug: object
) -> None:
    monkeypatch.setattr(module, name, bug)
    assert faults()


def test_memory_that_grows_is_told() -> None:
    assert growth_fault(0, GROWTH_BYTES - 1, 1000) is None
    assert growth_fault(0, GROWTH_BYTES, 1000) == "memory grew by 8.4 MB over 1000 frames"
