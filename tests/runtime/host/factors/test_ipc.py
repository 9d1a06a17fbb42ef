"""astrid:ipc: the factor behind `publish`, for a guest that the edge does not serve."""

from __future__ import annotations

import pytest

from aos_runtime.host import Err
from aos_runtime.host.factors.ipc import FUNCTIONS
from tests.support.guests import Recorder


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (None, None),
        ("rate-limited", Err("rate-limited")),
        ("unknown:no capsule handles x", Err("unknown", "no capsule handles x")),
    ],
)
def test_publish(recorder: Recorder, refusal: str | None, answer: Err | None) -> None:
    recorder.answers = lambda _topic, _payload: refusal
    assert FUNCTIONS["publish"].run(recorder.context(), "a.b", "ü") == answer
    assert recorder.published == [("a.b", "ü".encode())]
