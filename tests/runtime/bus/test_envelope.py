from __future__ import annotations

import pytest

from aos_runtime.bus.envelope import Envelope

MESSAGE = Envelope(
    seq=7,
    topic="tool.v1.request.execute",
    body=b"{}",
    kind=None,
    source_id="00000000-0000-0000-0000-000000000000",
    principal="default",
    device_key_id=None,
    request_owner="owner-1",
    origin="local_socket",
    workspace="/w",
    timestamp_ms=1,
)


def test_an_event_id_is_unique_over_boots() -> None:
    assert MESSAGE.event_id("5f2b") == "5f2b-7"
    assert MESSAGE.event_id("5f2c") != MESSAGE.event_id("5f2b")


def test_an_envelope_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        MESSAGE.principal = "admin"  # type: ignore[misc]  # the point of the test
