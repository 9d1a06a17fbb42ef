"""The guest that payloads are measured with makes the calls that it is told to, on real ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.names import DEFAULT_PRINCIPAL
from bench.payload import ALLOWANCE_S, OPERATIONS, SIZES, Measured, Plain
from bench.payload_guest import CAPSULE, CAS, FETCH, FILE, GET, KEY, READ, SEND, SET, WRITE, caller
from bench.payload_web import web_server
from bench.targets import TARGETS


def test_each_call_moves_the_bytes_and_takes_turns_with_others(tmp_path: Path) -> None:
    with caller(tmp_path) as guest:
        space = guest.state.space(DEFAULT_PRINCIPAL, CAPSULE)
        guest.call(WRITE, 1, 1000)
        assert (guest.folder / FILE).read_bytes() == b"\1" * 1000
        guest.call(WRITE, 2, 10)
        assert (guest.folder / FILE).read_bytes() == bytes(10)
        guest.call(READ, 3, 0)
        guest.call(SET, 2, 500)
        assert space.get(KEY) == bytes(500)
        guest.call(CAS, 3, 500)
        assert space.get(KEY) == b"\1" * 500
        guest.call(GET, 3, 0)
        guest.call(FETCH, 3, 700)
        guest.call(SEND, 3, 700)
        with pytest.raises(RuntimeError, match="refused"):
            guest._replace(web_port=1).call(FETCH, 1, 700)


def test_a_refused_call_is_no_figure(tmp_path: Path) -> None:
    with caller(tmp_path) as guest, pytest.raises(RuntimeError, match="call 0 of 0 bytes was refused"):
        guest.call(READ, 1, 0)


def test_the_plain_side_does_the_same(tmp_path: Path) -> None:
    with web_server() as port:
        plain = Plain(tmp_path, port)
        for what in (*OPERATIONS.values(), CAS):
            operation = plain.operation(what, 1000)
            operation()
            operation()
        plain.close()
    assert (tmp_path / "plain").read_bytes() == bytes(1000)


def test_the_allowance_is_taken_off_and_every_size_has_a_target() -> None:
    assert Measured(host_s=ALLOWANCE_S + 6e-6, plain_s=2e-6).over_allowance == pytest.approx(3.0)
    assert Measured(host_s=ALLOWANCE_S / 2, plain_s=2e-6).over_allowance == 0.0
    wanted = {f"payload_{operation}_{label}" for operation in OPERATIONS for label in (*SIZES, "memory")}
    assert {key for key in TARGETS if key.startswith("payload_")} >= wanted
